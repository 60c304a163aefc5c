"""The porter's end of a carrier, which copies pieces when a test says so, by the simulated driver in a process."""

import os
import select
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from cuda_structures import access
from gpu_host import CudaProcess

OUT, IN, FORGET, HELD, READY, COPIED, FILLED, FAILED = 1, 2, 3, 4, 5, 16, 17, 18
NO_ROOM, NO_COPY = 1, 2
DESCRIPTOR = 1
READ_WRITE = 3
TIMEOUT = 120.0
_FRAME = struct.Struct("IIQQII")


@dataclass(frozen=True)
class Frame:
    """One frame of a carrier."""

    kind: int
    device: int = 0
    piece: int = 0
    size: int = 0
    failed: int = 0
    error: int = 0


class ScriptedPorter:
    """Copies lie in memory of the host of a process of its own."""

    def __init__(self, directory: Path, folder: Path) -> None:
        self._process = CudaProcess(directory, {}, [])
        self._process.start()
        self._path = folder / "descriptor.sock"
        self.copies: dict[int, int] = {}
        self._carrier: socket.socket | None = None
        self._descriptors: dict[int, int] = {}

    def new_carrier(self) -> socket.socket:
        """Begin a carrier, in place of the one before; return the end that is the process's."""
        self.close_carrier()
        self._carrier, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._carrier.settimeout(TIMEOUT)
        return other

    def close_carrier(self) -> None:
        if self._carrier:
            self._carrier.close()
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def receive(self) -> Frame:
        assert self._carrier
        data, descriptors, _flags, _address = socket.recv_fds(self._carrier, _FRAME.size, 1)
        if not data:
            raise EOFError
        frame = Frame(*_FRAME.unpack(data))
        if descriptors:
            self._descriptors[frame.piece] = descriptors[0]
        return frame

    def wait(self) -> None:
        """Wait until something is there to be received."""
        assert select.select([self._carrier], [], [], TIMEOUT)[0]

    def send(self, frame: Frame) -> None:
        assert self._carrier
        values = (frame.kind, frame.device, frame.piece, frame.size, frame.failed, frame.error)
        self._carrier.send(_FRAME.pack(*values))

    def _map(self, frame: Frame) -> tuple[int, int]:
        """Hand the piece to the process, and map it there: its handle and address."""
        self._process.ask("take", str(self._path))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(self._path))
            listener.listen()
            taker = listener.accept()[0]
            descriptor = self._descriptors.pop(frame.piece)
            with taker:
                socket.send_fds(taker, [b"-"], [descriptor])
            os.close(descriptor)
        self._path.unlink()
        _result, taken = self._process.answer()
        result, handle = self._process("cuMemImportFromShareableHandle", taken, DESCRIPTOR)
        assert result == 0
        self._process("close", taken)
        result, address = self._process("cuMemAddressReserve", frame.size, 0, 0, 0)
        assert result == 0
        assert self._process("cuMemMap", address, frame.size, 0, handle, 0) == [0]
        assert self._process("cuMemSetAccess", address, frame.size, access(READ_WRITE), 1) == [0]
        return handle, address

    def _unmap(self, frame: Frame, handle: int, address: int) -> None:
        assert self._process("cuMemUnmap", address, frame.size) == [0]
        assert self._process("cuMemRelease", handle) == [0]
        assert self._process("cuMemAddressFree", address, frame.size) == [0]

    def copy(self, frame: Frame) -> None:
        """Do what OUT or IN asks for, without an answer."""
        handle, address = self._map(frame)
        if frame.kind == OUT:
            result, self.copies[frame.piece] = self._process("cuMemHostAlloc", frame.size, 0)
            assert result == 0
            assert self._process("cuMemcpy", self.copies[frame.piece], address, frame.size) == [0]
        else:
            assert self._process("cuMemcpy", address, self.copies[frame.piece], frame.size) == [0]
        self._unmap(frame, handle, address)

    def forget(self, frame: Frame) -> None:
        assert self._process("cuMemFreeHost", self.copies.pop(frame.piece)) == [0]

    def serve(self) -> Frame:
        """Wait for OUT or IN, copy, and answer."""
        frame = self.receive()
        assert frame.kind in {OUT, IN}
        self.copy(frame)
        if frame.kind == IN:
            self.forget(frame)
        self.send(Frame(COPIED if frame.kind == OUT else FILLED, frame.device, frame.piece, frame.size))
        return frame

    def free_memory(self) -> int:
        """Bytes that the driver says are free on the device."""
        return self._process.free_memory()

    def take_all_but(self, size: int) -> int:
        """Take the device's memory, as a program outside ConvGPU would; return the address."""
        return self._process.allocate(self.free_memory() - size)

    def give_back(self, address: int) -> None:
        assert self._process("cuMemFree_v2", address) == [0]

    def close(self) -> None:
        self.close_carrier()
        self._process.kill()
        assert self._process.popen.stdin
        assert self._process.popen.stdout
        self._process.popen.stdin.close()
        self._process.popen.stdout.close()
