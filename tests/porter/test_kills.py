"""The porter is killed at any instant, and no piece is lost, doubled, or left behind on the host."""

import contextlib
import os
import random

import pytest
from porter_host import COPIED, FILLED, HELD, IN, MIB, OUT, READY, Carrier, Owner, Porter
from rounds import rounds

from convgpu.protocol.residency.porter import Pooled

ROUNDS = rounds(30, few=10)
SEEDS = int(os.environ.get("CONVGPU_SEEDS", "1"))  # for each build; `make storm` kills at every named step
SIZES = [2 * MIB, 8 * MIB, 16 * MIB, 64 * MIB, 4 * MIB]


class Mover:
    """What the hook does for its pieces, whatever happens to the porter; the test looks at their contents."""

    def __init__(self, porter: Porter, owner: Owner) -> None:
        self._porter, self._owner = porter, owner
        self.contents = {owner.piece(b"%d" % size * 3, size): (size, b"%d" % size * 3) for size in SIZES}
        self.out: set[int] = set()
        self.asked: dict[int, int] = {}  # piece: OUT or IN, without an answer
        self._carrier = porter.carrier(owner.pid)

    def ask(self, piece: int) -> None:
        kind = IN if piece in self.out else OUT
        if kind == IN:
            self._owner.back(piece, self.contents[piece][0])
        self.asked[piece] = kind
        self._send(self._carrier, piece)

    def _send(self, carrier: Carrier, piece: int) -> None:
        with contextlib.suppress(ConnectionError):
            self._owner.offer(carrier, self.asked[piece], piece, self.contents[piece][0])

    def receive(self) -> bool:
        """Handle one answer; False at the end of the carrier."""
        answer = self._carrier.receive_if_open()
        if answer is None:
            return False
        kind, piece, _error = answer
        assert kind == {OUT: COPIED, IN: FILLED}[self.asked.pop(piece)]
        if kind == COPIED:
            self._owner.drop(piece, self.contents[piece][0])
            self.out.add(piece)
        else:
            self.out.remove(piece)
            size, text = self.contents[piece]
            assert self._owner.contents(piece, len(text), size) == (text, text)
        return True

    def reconnect(self) -> None:
        self._carrier = self._porter.carrier(self._owner.pid)
        for piece in self.out - self.asked.keys():
            self._carrier.send(HELD, piece, self.contents[piece][0])
        for piece in self.asked:
            self._send(self._carrier, piece)
        self._carrier.send(READY)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_storm_of_kills_loses_nothing(porter, owner, grown, seed) -> None:
    chance = random.Random(seed)  # noqa: S311 - which instants are tried
    mover = Mover(porter, owner)
    grown()
    for _ in range(ROUNDS):
        for piece in chance.sample(sorted(mover.contents), chance.randint(1, len(SIZES))):
            if piece not in mover.asked:
                mover.ask(piece)
        for _ in range(chance.randint(0, len(mover.asked))):
            assert mover.receive()
        for _ in range(chance.choice([0, 0, 1, 10, 100])):
            os.sched_yield()
        porter.kill()
        while mover.receive():
            pass
        porter.start()
        porter.resize(256 * MIB)
        mover.reconnect()
    while mover.asked:
        assert mover.receive()
    for piece in sorted(mover.out):
        mover.ask(piece)
        assert mover.receive()
    porter.expect(Pooled, used=0, size=256 * MIB)


def test_a_process_that_ends_without_a_porter_leaves_no_copy(porter, host, owner, grown) -> None:
    mover = Mover(porter, owner)
    grown()
    for piece in sorted(mover.contents):
        mover.ask(piece)
        assert mover.receive()
    porter.kill()
    owner.kill()
    porter.start()
    porter.resize(256 * MIB)
    porter.carrier(Owner(host).pid)
    porter.expect(Pooled, used=0, size=256 * MIB)
    assert f"pid {owner.pid} has ended: {sum(SIZES) // MIB} MiB of its copies are freed" in porter.log.read_text()
