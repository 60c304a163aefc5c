"""Starts random programs of one container, which take memory of a GPU, fork children that keep it, and end.

Together they stay within the limit at each moment, so each refusal is wrong. Prints one line for each that was refused,
and how many were started.

    honest_programs.py SEED PROGRAMS LIMIT CONTEXT     in MiB
"""

import contextlib
import ctypes
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

MIB = 1 << 20
TOGETHER = 4
SMALLEST, SPARE = 50, 12  # MiB
KINDS = ("created", "allocated", "managed")
HOLD, KEEP = (0.0, 0.02, 0.1, 0.3, 1.0), (0.05, 0.2, 0.6, 1.5)  # seconds

seed, programs, limit, context = map(int, sys.argv[1:])
chance = random.Random(seed)  # noqa: S311 - of a test
told, tell = os.pipe()


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("window", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )  # fmt: skip


def take(kind: str, size: int, parts: int) -> list[int]:
    """Return what the driver says of each part."""
    cuda, word = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
    part, place = ctypes.c_size_t(size // parts * MIB), ctypes.byref(word)
    assert cuda.cuInit(0) == 0
    if kind != "created":
        assert cuda.cuDevicePrimaryCtxRetain(place, 0) == 0 == cuda.cuCtxSetCurrent(word)
    calls = {
        "created": lambda: cuda.cuMemCreate(
            place, part, ctypes.byref(Properties(1, 1, Location(1, 0))), ctypes.c_uint64(0)
        ),
        "allocated": lambda: cuda.cuMemAlloc_v2(place, part),
        "managed": lambda: cuda.cuMemAllocManaged(place, part, 1),
    }
    return [calls[kind]() for _ in range(parts)]


def run(kind: str, size: int, parts: int, mine: random.Random) -> None:
    """Be one of the programs."""
    refused = [code for code in take(kind, size, parts) if code]
    if refused:
        os.write(tell, f"{kind} {size} MiB in {parts}: {refused}\n".encode())
    for _ in range(mine.choice((0, 1, 3))):
        if os.fork() == 0:
            time.sleep(mine.choice(KEEP))
            os._exit(0)
    time.sleep(mine.choice(HOLD))
    os.kill(os.getpid(), mine.choice((signal.SIGKILL, signal.SIGTERM)))


def groups() -> set[int]:
    """Return the groups of processes that live."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = path.read_bytes().rpartition(b")")[2].split()[:3]  # a name may be any bytes
        except OSError:
            continue
        if state != b"Z":
            found.add(int(group))
    return found


def reap() -> None:
    """Wait for all that have ended, children of the programs too."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main() -> None:
    """Start programs as long as there is room."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    sizes, gone, started = dict[int, int](), dict[int, int](), 0
    while started < programs or sizes:
        reap()
        living = groups()
        for group in list(sizes):  # in two looks: a child may be forked during one
            gone[group] = 0 if group in living else gone.get(group, 0) + 1
            if gone[group] > 1:
                del sizes[group]
        kind = chance.choice(KINDS)
        least = 0 if kind == "created" else context
        room = limit - sum(sizes.values()) - least - SPARE
        if started == programs or len(sizes) == TOGETHER or room < SMALLEST:
            time.sleep(0.003)
            continue
        parts = chance.choice((1, 1, 2, 5))
        size = chance.choice((room, chance.randint(SMALLEST, room))) // (2 * parts) * 2 * parts
        mine = random.Random(chance.random())  # noqa: S311
        child = os.fork()
        os.setpgid(child, child)  # in both, as it is looked for by its group at once; 0 is oneself
        if child == 0:
            run(kind, size, parts, mine)
        sizes[child] = size + least
        started += 1
    while select.select([told], [], [], 0)[0]:
        sys.stdout.write(os.read(told, 1 << 16).decode())
    print(started, "programs")


main()
