"""What the kernel says of mappings, of real processes."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from convgpu.daemon.system.mappings import UNENDING, managed_size

# Maps so many files at their own offsets, as the driver maps managed memory; and others at other ones.
PROGRAM = """
import ctypes, os, sys, threading, signal
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
def share(address, size, flags, offset):
    file = os.memfd_create("any")
    assert libc.mmap(ctypes.c_void_p(address), ctypes.c_size_t(size), 3, flags, file, ctypes.c_long(offset)) == address
    os.close(file)
SHARED, PRIVATE, FIXED = 1, 2, 0x100000
MANY, BASE = int(sys.argv[1]), 1 << 40
for number in range(MANY):
    share(BASE + (number << 21), 4096, SHARED | FIXED, BASE + (number << 21))
share(2 << 40, 1 << 32, SHARED | FIXED, 0)
share(3 << 40, 1 << 32, PRIVATE | FIXED, 3 << 40)
share(4 << 40, 1 << 32, SHARED | FIXED, 4 << 40)
libc.mprotect(ctypes.c_void_p((4 << 40) + (1 << 31)), ctypes.c_size_t(4096), 0)  # parts it into three
if sys.argv[2] == "thread":
    def go_on():
        while open(f"/proc/self/task/{os.getpid()}/maps").read():
            pass
        print("ready", flush=True)
        signal.pause()
    threading.Thread(target=go_on).start()
    libc.pthread_exit(None)
print("ready", flush=True)
signal.pause()
"""


@contextmanager
def running(program: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", program, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("many", "who"), [(0, "first"), (3_000, "first"), (2, "thread")])
def test_only_shared_mappings_at_their_own_offset_are_managed_memory(many: int, who: str) -> None:
    """Also in parts, however many there are, and if the first thread has ended."""
    with running(PROGRAM, str(many), who) as process:
        assert managed_size(process.pid) == (4 << 30) + many * 4096
    assert managed_size(process.pid) == 0


# Moves 2,000 mappings upwards, below one that is managed memory, faster than a reader follows.
MOVING = """
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
file = os.memfd_create("x" * 200)
os.ftruncate(file, 1 << 20)
SHARED, PRIVATE, FIXED = 1, 2, 0x100000
libc.mmap(ctypes.c_void_p(4 << 40), ctypes.c_size_t(1 << 32), 3, SHARED | FIXED, file, ctypes.c_long(4 << 40))
WINDOW, BASE = 2_000, 1 << 40
def show(number):
    address = ctypes.c_void_p(BASE + (number << 13))
    libc.mmap(address, ctypes.c_size_t(4096), 1, PRIVATE | FIXED, file, ctypes.c_long((number & 1) << 13))
for number in range(WINDOW):
    show(number)
print("ready", flush=True)
while True:
    number += 1
    libc.munmap(ctypes.c_void_p(BASE + ((number - WINDOW) << 13)), ctypes.c_size_t(4096))
    show(number)
"""


def test_who_moves_its_mappings_away_from_the_reader_may_have_any_memory() -> None:
    """Its list need not have an end; an honest one is never so long."""
    with running(MOVING) as process:
        assert managed_size(process.pid, longest=1 << 18) == UNENDING
        process.send_signal(signal.SIGSTOP)
        assert managed_size(process.pid) == 4 << 30
