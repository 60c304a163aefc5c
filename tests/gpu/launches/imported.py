"""Uses so many bytes, past the hook, that another process made, exported and left; beside a CUDA context behind it.

    imported.py BYTES [lives|kept]

It keeps the descriptor, too, so NVML lists the memory for nobody. It stays until it is ended. To be started in a PID
namespace of its own, by which the scheduler knows whose process it is. `lives`: the other process does not leave.
`kept`: it uses nothing, and has no context.
"""

import os
import signal
import socket
import subprocess
import sys
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

from calls import ABSENT, Cuda

DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
READ_WRITE = 3
NONE = c_uint64(0)


def export(size: int, to: socket.socket) -> None:
    """Make memory and send its descriptor."""
    cuda, handle, descriptor = Cuda(), c_uint64(), c_int()
    properties = (c_int * 8)(PINNED, DESCRIPTOR, DEVICE, 0)
    cuda.must("cuMemCreate", byref(handle), c_size_t(size), properties, NONE)
    cuda.must("cuMemExportToShareableHandle", byref(descriptor), handle, DESCRIPTOR, NONE)
    socket.send_fds(to, [b"x"], [descriptor.value])
    to.close()


def use(cuda: Cuda, descriptor: int, size: int) -> None:
    """Import the memory and write all of it."""
    handle, address = c_uint64(), c_uint64()
    cuda.must("cuMemImportFromShareableHandle", byref(handle), c_void_p(descriptor), DESCRIPTOR)
    cuda.must("cuMemAddressReserve", byref(address), c_size_t(size), c_size_t(0), NONE, NONE)
    cuda.must("cuMemMap", address, c_size_t(size), c_size_t(0), handle, NONE)
    cuda.must("cuMemSetAccess", address, c_size_t(size), (c_int * 3)(DEVICE, 0, READ_WRITE), c_size_t(1))
    cuda.must("cuMemsetD8_v2", address, 1, c_size_t(size))
    cuda.must("cuCtxSynchronize")


def main(size: int, how: str = "") -> int:
    """Return 77 where the scheduler cannot ask the driver, as with a simulated one."""
    if os.environ.get("CONVGPU_SIMULATED"):
        return ABSENT
    if os.environ.pop("LD_PRELOAD", None):
        cuda = Cuda()
        return subprocess.run([sys.executable, __file__, str(size), how], check=False).returncode
    ours, theirs = socket.socketpair()
    if (owner := os.fork()) == 0:
        ours.close()
        export(size, theirs)
        if how == "lives":
            signal.pause()
        os._exit(0)
    theirs.close()
    _, [descriptor], *_ = socket.recv_fds(ours, 1, 1)
    if how != "lives":
        os.waitpid(owner, 0)
    if how != "kept":
        cuda = Cuda()
        use(cuda, descriptor, size)
    print("its owner lives" if how == "lives" else "its owner has ended", flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
