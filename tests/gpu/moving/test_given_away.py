"""Memory that a program gives to others, as RDMA does: the range stays on the card, the rest leaves and comes back."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from card import Card
from conductor import PORTER, Conductor
from containers import GIB, SIMULATED

pytestmark = pytest.mark.skipif(SIMULATED, reason="simulated memory has no content")

PROGRAM = Path(__file__).parent / "given_away.py"
SIZE = 64 << 20
NOT_SUPPORTED = 801


@pytest.fixture
def conductor(card: Card, tmp_path: Path) -> Iterator[Conductor]:
    if not PORTER.exists():
        pytest.skip("the porter is not built: make -C porter")
    conductor = Conductor(tmp_path, card.uuid, card.total, None, GIB)
    yield conductor
    conductor.close()


def test_what_a_dma_buf_shows_stays_on_the_card(conductor: Conductor, figures: dict[str, object]) -> None:
    native = conductor.spawn(None, "python3", PROGRAM)
    assert native.stdout is not None
    wanted = json.loads(native.stdout.readline())
    native.kill()
    native.communicate()
    member = conductor.start("given", "python3", PROGRAM)
    found = json.loads(member.answer())
    conductor.wait_for_pool()
    moved = member.suspend_all()
    member.resume()
    member.process.send_signal(signal.SIGUSR1)
    right = json.loads(member.answer())
    member.close()
    figures["given away"] = {"backed": found, "native": wanted, "moved": moved, "right": right}
    # A refusal of the driver's own, where the host has no such buffers, comes after the range was fixed.
    assert (found.pop("older IPC"), wanted.pop("older IPC")) == (NOT_SUPPORTED, 0)
    assert found == wanted
    assert moved == 2 * SIZE
    assert right == [True] * 3
