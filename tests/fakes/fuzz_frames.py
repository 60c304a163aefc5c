"""Frames and pages as no honest process makes them, for the scheduler's readers: `python fuzz_frames.py COUNT SEED`.

Of COUNT inputs each 16th is a page, 4 KiB of noise; the others are frames of all kinds that the protocol has, changed.
Whatever comes, a reader says what it is or refuses it, and no figure leaves its bounds.
"""

import ctypes
import random
import sys
from typing import Any, cast

from built import HOOK

from convgpu.daemon.sessions.session import Session
from convgpu.daemon.transport.connection import Absent
from convgpu.daemon.transport.shared_page import PAGE_SIZE, Page, PageLibrary
from convgpu.protocol import messages as m
from convgpu.protocol.inspection import messages as i
from convgpu.protocol.messages import Message, pack
from convgpu.protocol.residency import messages as r
from convgpu.protocol.stream import MessageStream, ProtocolError

FRAMES: list[Message] = [
    m.Hello(42, "python3", "2g", ((b"u" * 16, 7), (b"v" * 16, 1 << 40))),
    m.Allocate(3, 2 << 30, "cuMemAlloc"),
    m.Freed(1),
    m.Context(0, 526 << 20, 1),
    m.Query(2),
    m.Observe(b"x" * 16, "2g"),
    m.Welcome(4096, (m.DeviceRow(b"w" * 16, 2 << 30, 526 << 20),)),
    m.Observed(1, 2, (m.ProcessRow(7, 1007, 3), m.ProcessRow(8, 0, 4))),
    r.Able(2, 3),
    r.Run(5),
    r.Stopped(5, 1, 6, 7_000),
    r.Evicted(5, 0, 64 << 20, 1),
    r.Restored(5, 0, 64 << 20, 2),
    r.Idle(1, 7_000),
    r.State(5, 0, (r.StateRow(b"y" * 16, 1, 2, 3), r.StateRow(b"z" * 16, 4, 5, 6))),
    i.Listed(1, 3, 4_096, (i.ListedRow(1 << 40, 4_096, 0, i.UNKNOWN, "cuMemAlloc"),)),
    i.Traced(1, 4_096, "cuMemAlloc"),
    i.Withdraw(),
    i.Exported(1 << 40, 64 << 20, 1, 5, 6, 7),
    i.List(100),
    i.Explained("why it is paused"),
    m.Accepted(2 << 30, 1),
    m.Rejected(1, 2 << 30, 1 << 30),
    m.ContextSize(526 << 20),
    m.Usage(2 << 30, 1 << 30, 3),
    r.Carrier(1),
    r.Stop(5, 1_000),
    r.Step(5, 6),
    r.Evict(5, 0, 64 << 20),
    r.Restore(5, 0, 64 << 20),
    r.Go(5),
    r.Watch(1),
    m.Failed(2, "what to do"),
    m.Admin(b'{"op": "devices"}'),
    m.AdminReply(b'{"ok": true}'),
]
ROWS = 3
LEASE = 1 << 30
MAX_FRAME = 4096
PAGE_EACH = 16  # inputs, of which the others are frames


def fuzz(count: int, seed: int) -> tuple[int, int]:
    """Try `count` inputs, of which 1/16 are pages; return how many frames were understood and how many refused.

    Raises:
        AssertionError: a reader gave out what cannot be.
    """
    dice = random.Random(seed)  # noqa: S311 - the same inputs each time
    frames = [pack(message, number) for number, message in enumerate(FRAMES)]
    understood = refused = 0
    pages = Pages(dice)
    for number in range(count):
        if number % PAGE_EACH == 0:
            pages.try_one()
            continue
        if read(changed(dice, dice.choice(frames))):
            understood += 1
        else:
            refused += 1
    return understood, refused


def changed(dice: random.Random, frame: bytes) -> bytes:
    """Return a frame with some bytes changed, cut out or doubled."""
    data = bytearray(frame)
    for _ in range(dice.randrange(3)):
        place, length = dice.randrange(len(data)), dice.choice((1, 2, 4, 8))
        kind = dice.randrange(4)
        if kind == 0:
            data[place : place + length] = dice.randbytes(length)
        elif kind == 1:
            data[place : place + length] = dice.choice((b"\0", b"\xff", b"\x7f")) * length
        elif kind == 2:
            del data[place : place + length]
        else:
            data += data[place : place + 64]
        if not data:
            break
    return bytes(data)


def read(data: bytes) -> bool:
    """Let the reader have some bytes; what it understands must be the same when it is written and read again."""
    try:
        messages = MessageStream(MAX_FRAME).receive(data)
    except ProtocolError:
        return False
    for request, message in messages:
        again = MessageStream(MAX_FRAME + 64).receive(pack(message, request))
        assert [entry for entry, _ in again] == [request], data
        assert type(again[0][1]) is type(message), data
    return True


class Pages:
    """One session of the scheduler, whose process writes noise into their page."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        page = Page(PageLibrary(HOOK / "libconvgpu-page.so"), ROWS)
        rows = tuple(f"GPU-{row}" for row in range(ROWS))
        self._session = Session(1, "a", cast("Any", Absent(0)), page, rows, "noise", 0.0)
        self._memory = (ctypes.c_char * PAGE_SIZE).from_buffer(page._map)

    def try_one(self) -> None:
        """Write noise, and read all figures as the scheduler does."""
        session = self._session
        self._memory[:] = self._dice.randbytes(PAGE_SIZE)
        for row, device in enumerate(session.rows):
            assert 0 <= session.usage(device, LEASE) <= LEASE
            session.page.arm(row, armed=True)
            session.page.publish_limit(row, LEASE, alone=False)
            assert 0 <= session.page.trace(row, 5) < 1 << 32
            assert 0 <= session.take_headroom(device) < 1 << 64
            assert session.page.read(row) == 0
            session.page.lease(row, 4096)
            assert session.usage(device, LEASE) == LEASE - 4096


if __name__ == "__main__":
    _understood, _refused = fuzz(int(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.write(f"{_understood} frames understood, {_refused} refused\n")
