"""The process behind `daemon.Process`: the scheduler knows processes by their pid, so each connection has one.

It connects, hands the socket over, and lives until it is killed or its channel ends; for an empty line it connects
again, for `ROW SIZE MANAGED` it takes memory of a device past the hook.
"""

import ctypes
import os
import socket
import struct
import sys


def _hold(row: int, size: int, managed: int) -> None:
    cuda = ctypes.CDLL(os.path.abspath("driver/libcuda.so.1"))  # noqa: PTH100 - pathlib is not imported
    context, pointer = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    if size < 0:  # without a context
        properties = struct.pack("=4i2Q", 1, 0, 1, row, 0, 0)  # CUmemAllocationProp: pinned memory of a device
        assert cuda.cuMemCreate(ctypes.byref(pointer), ctypes.c_size_t(-size), properties, ctypes.c_uint64(0)) == 0
        return
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), row) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
    assert not managed or cuda.cuMemAllocManaged(ctypes.byref(pointer), ctypes.c_size_t(managed), 1) == 0


def _connect(channel: socket.socket) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        socket.send_fds(channel, [b"x"], [connection.fileno()])


def main() -> None:
    """Serve the channel, which is stdout."""
    channel = socket.socket(fileno=1)
    _connect(channel)
    while line := channel.recv(4096):
        if line == b"\n":
            _connect(channel)
        else:
            _hold(*map(int, line.split()))
            channel.send(b"x")
