"""What a scheduler answers, for `src/fuzz_reply.c`: `python replies.py FOLDER` writes the right ones."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

from convgpu.protocol import messages as m
from convgpu.protocol.inspection import messages as i
from convgpu.protocol.messages import pack

WITHOUT_PAGE, WITH_PAGE, WITH_SMALL_PAGE, SERVICE, OBSERVER = range(5)
"""Who reads: the handshake, the service thread with requests 1 (ALLOCATE), 2 (CONTEXT) and 3 (QUERY), an observer."""


def seeds() -> Iterator[bytes]:
    """Every answer, whole, at each of its readers; and several in a row for the service thread."""
    rows = tuple(m.DeviceRow(bytes([number]) * 16, 1 << 30, 526 << 20) for number in range(3))
    welcome, failed = pack(m.Welcome(4096, rows), 1), pack(m.Failed(2, "not\nso"), 1)
    observed = pack(m.Observed(1 << 30, 5, (m.ProcessRow(7, 1007, 3), m.ProcessRow(8, 0, 2))), 1)
    answers = [
        pack(m.Accepted(4096, 7), 1),
        pack(m.Rejected(1, 2, 3), 1),
        pack(m.ContextSize(526 << 20), 2),
        pack(m.Usage(1, 2, 3), 3),
        pack(i.List(5), 9),
    ]
    full = pack(m.Welcome(4096, rows * 21), 1)
    for reader in range(5):
        for answer in (welcome, full, failed, observed, *answers):
            yield bytes([reader]) + answer
    yield bytes([SERVICE]) + b"".join(answers)
    yield bytes([SERVICE]) + b"".join(reversed(answers))
    yield bytes([SERVICE]) + answers[0] + failed + answers[3]


def mutations(count: int, seed: int) -> Iterator[bytes]:
    """Seeds with bytes changed, cut out, doubled, or set to what lengths and counts must not be."""
    dice = random.Random(seed)  # noqa: S311 - the same inputs each time
    every = list(seeds())
    for _ in range(count):
        data = bytearray(dice.choice(every))
        for _change in range(dice.randrange(1, 4)):
            place, length = dice.randrange(1, len(data)), dice.choice((1, 2, 4, 8))
            match dice.randrange(4):
                case 0:
                    data[place : place + length] = dice.randbytes(length)
                case 1:
                    data[place : place + length] = dice.choice((b"\0", b"\xff", b"\x7f")) * length
                case 2:
                    del data[place : place + dice.randrange(64)]
                case _:
                    data += data[place:]
            data = data[:4096] + bytes(max(2 - len(data), 0))
        yield bytes(data)


if __name__ == "__main__":
    for number, reply in enumerate(seeds()):
        (Path(sys.argv[1]) / f"seed-{number}").write_bytes(reply)
