"""What the kernel says of mappings, of real processes."""

import subprocess
import sys

import pytest

from convgpu.daemon.system.mappings import managed_size

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


@pytest.mark.parametrize(("many", "who"), [(0, "first"), (3_000, "first"), (2, "thread")])
def test_only_shared_mappings_at_their_own_offset_are_managed_memory(many: int, who: str) -> None:
    """Also in parts, however many there are, and if the first thread has ended."""
    command = [sys.executable, "-c", PROGRAM, str(many), who]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert managed_size(process.pid) == (4 << 30) + many * 4096
        process.kill()
    assert managed_size(process.pid) == 0
