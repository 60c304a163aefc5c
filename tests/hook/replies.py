"""What a scheduler sends, whole and in its right order, for `fuzz_reply.c`: `python replies.py FOLDER` writes it.

Each file begins with a byte that says who reads it.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from convgpu.protocol import messages as m
from convgpu.protocol import wire
from convgpu.protocol.inspection import messages as i
from convgpu.protocol.messages import pack
from convgpu.protocol.residency import messages as r

WITHOUT_PAGE, WITH_PAGE, WITH_SMALL_PAGE, SERVICE, OBSERVER, SERVICE_WITH_DESCRIPTOR = range(6)
"""Who reads: the handshake; the service thread, with an ALLOCATE, a CONTEXT, a QUERY and an ALLOCATE for fixed memory
open as requests 1 to 4; an observer."""

READERS = 6
NOISY_SLOTS, NOISY_FLAGS, PADDED = 1, 2, 32  # variants: of the page; zeros follow, more than a frame may have
ORDER = 1 << 63


def seeds() -> Iterator[bytes]:
    """Every message at the reader that it is for, those of others, and several in a row for the service thread."""
    rows = tuple(m.DeviceRow(bytes([number]) * 16, (number + 1) << 30, 526 << 20) for number in range(3))
    welcome, failed = pack(m.Welcome(4096, rows), 1), pack(m.Failed(2, "not\nso"), 1)
    full = pack(m.Welcome(4096, tuple(m.DeviceRow(bytes([row]) * 16, 1 << 30, 0) for row in range(63))), 1)
    observed = pack(m.Observed(1 << 30, 5, (m.ProcessRow(7, 1007, 3), m.ProcessRow(8, 0, 2))), 1)
    for reader in (WITH_PAGE, WITH_PAGE, WITHOUT_PAGE, WITH_SMALL_PAGE, SERVICE, OBSERVER):
        for answer in (welcome, full, failed, observed):
            yield bytes([reader]) + answer
    for variant in (NOISY_SLOTS, NOISY_FLAGS, NOISY_SLOTS | NOISY_FLAGS):
        for answer in (welcome, full):
            yield bytes([WITH_PAGE + READERS * variant]) + answer
    yield bytes([WITH_PAGE]) + pack(m.Welcome(4096, (*rows, *rows)), 1)
    for reader, frame in ((WITH_PAGE, full), (SERVICE, pack(i.List(5), 9)), (OBSERVER, observed)):
        for size in (wire.MAX_FRAME, wire.MAX_FRAME + 1):
            yield bytes([reader + READERS * PADDED]) + size.to_bytes(4, sys.byteorder) + frame[4:]
    for reader in (SERVICE_WITH_DESCRIPTOR, SERVICE):  # what comes with one frame is not the next connection's
        for frame in service():
            yield bytes([reader]) + frame
        yield bytes([reader]) + b"".join(service())
        yield bytes([reader]) + b"".join(reversed(list(service())))
        yield bytes([reader]) + b"".join(service()) + failed


def service() -> Iterator[bytes]:
    """Yield what a process with open requests is sent, whatever its kind."""
    yield pack(r.Carrier(1), ORDER)
    yield pack(i.Explained("wait for\n2 GiB"), 1)
    yield pack(i.Explained("of any"), 0)
    yield pack(m.Accepted(4096, 7), 1)
    yield pack(m.Rejected(1, 2, 3), 4)
    yield pack(m.ContextSize(526 << 20), 2)
    yield pack(m.Usage(1, 2, 3), 3)
    yield pack(i.List(5), 9)
    yield pack(r.Stop(5, 200), ORDER | 1)
    yield pack(r.Evict(5, 0, 64 << 20), ORDER | 2)
    yield pack(r.Step(5, 3), ORDER | 3)
    yield pack(r.Restore(5, 0, 64 << 20), ORDER | 4)
    yield pack(r.Go(6), ORDER | 5)
    yield pack(r.Watch(1), ORDER | 6)


if __name__ == "__main__":
    for number, reply in enumerate(seeds()):
        (Path(sys.argv[1]) / f"seed-{number}").write_bytes(reply)
