"""What a process says on its carrier, for `fuzz_carrier.c`: `python carrier_packets.py FOLDER` writes the seeds."""

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

MIB = 1 << 20
OUT, IN, FORGET, HELD, READY = 1, 2, 3, 4, 5
WITH_DESCRIPTOR, BEGIN_JOBS, FINISH_JOBS, FAIL_COPIES, RECONNECT = 1, 2, 4, 8, 16


def packet(kind: int, piece: int = 1, size: int = 2 * MIB, device: int = 0, bits: int = 0) -> bytes:
    """One frame of the fuzzer's input with a packet in it."""
    body = struct.pack("=IIQQII", kind, device, piece * 2 * MIB, size, 0, 0)
    return struct.pack("=II", 8 + len(body), bits) + body


def seeds() -> Iterator[bytes]:
    """What an honest process says, from its first piece to the next porter, and what comes near it."""
    out, back = WITH_DESCRIPTOR | BEGIN_JOBS | FINISH_JOBS, WITH_DESCRIPTOR | BEGIN_JOBS | FINISH_JOBS
    yield packet(OUT, bits=out) + packet(IN, bits=back)
    yield packet(OUT, bits=out) + packet(HELD, bits=RECONNECT) + packet(READY) + packet(IN, bits=back)
    yield packet(OUT, bits=out) + packet(READY, bits=RECONNECT) + packet(HELD)
    yield packet(OUT, bits=out) + packet(FORGET) + packet(IN, bits=back)
    yield packet(OUT, bits=WITH_DESCRIPTOR | BEGIN_JOBS) + packet(FORGET, bits=FINISH_JOBS)
    yield packet(OUT, bits=WITH_DESCRIPTOR | BEGIN_JOBS) + packet(READY, bits=RECONNECT | FINISH_JOBS)
    yield packet(OUT, bits=out) + packet(OUT, bits=WITH_DESCRIPTOR | BEGIN_JOBS) + packet(OUT, bits=out)
    yield packet(OUT, bits=out | FAIL_COPIES) + packet(OUT, bits=out) + packet(IN, bits=back | FAIL_COPIES)
    yield packet(OUT, device=1, bits=out) + packet(OUT, device=2, bits=out) + packet(OUT, device=3, bits=out)
    yield b"".join(packet(OUT, piece, 64 * MIB, bits=out) for piece in range(4))  # more than the share
    yield b"".join(packet(OUT, piece, bits=WITH_DESCRIPTOR) for piece in range(17))  # more than the depth
    yield packet(OUT, size=0, bits=out) + packet(OUT, size=66 * MIB, bits=out) + packet(OUT, bits=FINISH_JOBS)
    yield packet(OUT, bits=out) + 2 * packet(IN, bits=WITH_DESCRIPTOR | BEGIN_JOBS) + packet(HELD, bits=FINISH_JOBS)
    yield b"".join(packet(OUT, piece, 2 * MIB, bits=out) for piece in range(81))
    yield packet(OUT, bits=out) + struct.pack("=II", 2108, 0) + bytes(2100) + packet(READY, bits=RECONNECT)
    yield packet(OUT, bits=out) + packet(HELD, size=4 * MIB) + packet(IN, size=4 * MIB, bits=back)
    yield packet(9) + packet(OUT, bits=out | RECONNECT)


if __name__ == "__main__":
    for number, seed in enumerate(seeds()):
        (Path(sys.argv[1]) / f"seed-{number:03}").write_bytes(b"\0" + seed)
