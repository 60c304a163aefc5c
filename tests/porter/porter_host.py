"""A porter with a control socket of the test's own, and processes whose pieces it moves.

The test speaks for the hook: a CUDA process makes pieces and exports them, and the test takes the descriptors out of it
and hands them over on the carrier.
"""

import ctypes
import os
import socket
import struct
import subprocess
from pathlib import Path
from uuid import UUID

from cuda_structures import access, allocation_properties
from gpu_host import CudaProcess, GpuHost

from convgpu.daemon.system.procfs import start_time
from convgpu.protocol.residency import porter as p

MIB = 1 << 20
PIECE = 64 * MIB
DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
READ_WRITE = 3
OUT, IN, FORGET, HELD, READY, COPIED, FILLED, FAILED = 1, 2, 3, 4, 5, 16, 17, 18
NO_ROOM, NO_COPY, BAD_PIECE = 1, 2, 3
ALL = 1 << 62
_FRAME = struct.Struct("=IIQQII")
_LIBC = ctypes.CDLL(None, use_errno=True)
_PIDFD_GETFD = 438


class Porter:
    """A running porter; `session` numbers rise, as the scheduler's do."""

    def __init__(self, program: Path, host: GpuHost, pool: Path, log: Path) -> None:
        self.host, self.pool, self.log = host, pool, log
        self._program = program
        self._sessions = 0
        self._carriers: list[socket.socket] = []
        self.reports: list[p.PorterReport] = []
        self.start()

    def start(self) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(120)
        command = [self._program, f"--control={theirs.fileno()}", f"--pool={self.pool}"]
        with theirs, self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                [*command, f"--driver={self.host.directory / 'libcuda.so.1'}"],
                pass_fds=[theirs.fileno()],
                stderr=log,
            )

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        self.control.close()

    def stop(self) -> int:
        """End it as the end of the scheduler does."""
        self.control.close()
        return self.popen.wait(timeout=120)

    def close(self) -> None:
        if self.popen.poll() is None:
            self.kill()
        self.control.close()
        for carrier in self._carriers:
            carrier.close()

    def resize(self, size: int) -> None:
        self.control.send(p.pack_pool(size))

    def allow(self, carrier: "Carrier", most: int) -> None:
        self.control.send(p.pack_allow(carrier.session, most))

    def expect(self, kind: type[p.PorterReport], **fields: object) -> p.PorterReport:
        """Return the next report of that kind with these fields; others before it are collected in `reports`."""
        while True:
            report = p.unpack_report(self.control.recv(4096))
            self.reports.append(report)
            if isinstance(report, kind) and all(getattr(report, name) == value for name, value in fields.items()):
                return report

    def carrier(self, pid: int, most: int = ALL) -> "Carrier":
        """Make a carrier for a process, as the scheduler does."""
        self._sessions += 1
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = os.pidfd_open(pid)
        uuids = tuple(UUID(uuid.removeprefix("GPU-")).bytes for uuid in self.host.uuids)
        frame = p.pack_session(self._sessions, pid, start_time(pid), most, uuids)
        socket.send_fds(self.control, [frame], [theirs.fileno(), process])
        theirs.close()
        os.close(process)
        self._carriers.append(ours)
        return Carrier(ours, self._sessions)


class Carrier:
    """The process's end of a carrier."""

    def __init__(self, sock: socket.socket, session: int) -> None:
        self.socket, self.session = sock, session
        sock.settimeout(120)

    def send(self, kind: int, piece: int = 0, size: int = 0, *, device: int = 0, descriptor: int | None = None) -> None:
        frame = _FRAME.pack(kind, device, piece, size, 0, 0)
        socket.send_fds(self.socket, [frame], [] if descriptor is None else [descriptor])

    def receive(self) -> tuple[int, int, int]:
        """Return kind and piece of the next answer, and its error."""
        answer = self.receive_if_open()
        assert answer is not None, "the porter closed the carrier"
        return answer

    def receive_if_open(self) -> tuple[int, int, int] | None:
        """As `receive`; None at the end of the carrier."""
        try:
            packet = self.socket.recv(4096)
        except ConnectionResetError:  # comes once, before answers that were sent
            packet = self.socket.recv(4096)
        if not packet:
            return None
        kind, _device, piece, _size, _failed, error = _FRAME.unpack(packet)
        return kind, piece, error

    def is_closed(self) -> bool:
        try:
            return self.socket.recv(4096) == b""
        except ConnectionResetError:
            return True


class Owner:
    """A CUDA process with pieces; `carry` and `bring` do what the hook does."""

    def __init__(self, host: GpuHost) -> None:
        self.cuda: CudaProcess = host.process()
        self.cuda.start()
        self._handles: dict[int, int] = {}

    @property
    def pid(self) -> int:
        return self.cuda.popen.pid

    def call(self, name: str, *arguments: object) -> list:
        result, *outputs = self.cuda(name, *arguments)
        assert result == 0, (name, result)
        return outputs

    def piece(self, contents: bytes, size: int = PIECE) -> int:
        """Make a piece with contents at its begin and end; return its address."""
        [address] = self.call("cuMemAddressReserve", size, 0, 0, 0)
        self.back(address, size)
        self.write(address, contents, size)
        return address

    def back(self, address: int, size: int = PIECE) -> None:
        [handle] = self.call("cuMemCreate", size, allocation_properties(handle=DESCRIPTOR), 0)
        self.call("cuMemMap", address, size, 0, handle, 0)
        self.call("cuMemSetAccess", address, size, access(READ_WRITE), 1)
        self._handles[address] = handle

    def drop(self, address: int, size: int = PIECE) -> None:
        self.call("cuMemUnmap", address, size)
        self.call("cuMemRelease", self._handles.pop(address))

    def write(self, address: int, contents: bytes, size: int = PIECE) -> None:
        self.call("write", address, contents.hex())
        self.call("write", address + size - len(contents), contents.hex())

    def contents(self, address: int, length: int, size: int = PIECE) -> tuple[bytes, bytes]:
        places = (address, address + size - length)
        first, last = (bytes.fromhex(self.call("read", place, length)[0]) for place in places)
        return first, last

    def export(self, address: int) -> int:
        """Return a descriptor of a piece, in this test's process."""
        [theirs] = self.call("cuMemExportToShareableHandle", self._handles[address], DESCRIPTOR, 0)
        process = os.pidfd_open(self.pid)
        descriptor = _LIBC.syscall(_PIDFD_GETFD, process, theirs, 0)
        error = ctypes.get_errno()
        os.close(process)
        assert descriptor >= 0, os.strerror(error)
        self.call("close", theirs)
        return descriptor

    def offer(self, carrier: Carrier, kind: int, address: int, size: int = PIECE, *, device: int = 0) -> None:
        descriptor = self.export(address)
        carrier.send(kind, address, size, device=device, descriptor=descriptor)
        os.close(descriptor)

    def carry(self, carrier: Carrier, address: int, size: int = PIECE) -> None:
        self.offer(carrier, OUT, address, size)
        assert carrier.receive() == (COPIED, address, 0)
        self.drop(address, size)

    def bring(self, carrier: Carrier, address: int, size: int = PIECE) -> None:
        self.back(address, size)
        self.offer(carrier, IN, address, size)
        assert carrier.receive() == (FILLED, address, 0)

    def kill(self) -> None:
        self.cuda.kill()
