"""The porter's process: started with the first elastic process, started again when it ends, stopped when none is left.

What it copies outlives it (`porter/`, docs/protocol.md), so it may end at any time.
"""

import asyncio
import hashlib
import logging
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from convgpu.daemon.residency.pool_files import PoolFiles, PoolState
from convgpu.daemon.sessions.session import Session
from convgpu.protocol.residency import porter as p
from convgpu.protocol.uuids import uuid_bytes, uuid_text

log = logging.getLogger(__name__)

_PACKET: Final = 4096
FIRST_PAUSE: Final = 0.1  # seconds before a porter that ended is started again
MOST_PAUSE: Final = 30.0
STEADY: Final = 10.0  # seconds from its first report on after which it counts as running well
RESTING: Final = 60.0  # seconds without a process that could leave, after which it ends
_GRACE: Final = 0.2  # seconds for the pieces at hand; and as many for the kernel to end a porter that was killed
_LAST_GRACE: Final = 3.0  # when the scheduler ends: it gives the host's memory back only where no porter is left


@dataclass(frozen=True, slots=True)
class PorterFiles:
    """Where the porter is, where it finds the driver, and where its pool lies."""

    program: Path
    driver: str
    pool: PoolFiles


class Porter:
    """Starts the porter, brings it processes, and gives out its reports.

    Args:
        files: of the porter.
        on_report: gets each report.
        on_start: called when a new porter runs: it knows no process yet.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        files: PorterFiles,
        on_report: Callable[[p.PorterReport], None],
        on_start: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._files = files
        self._on_report = on_report
        self._on_start = on_start
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._adoption: asyncio.TimerHandle | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._pause = FIRST_PAUSE
        self._serves_since: float | None = None  # its first report, which each one makes once it has the pool

    @property
    def runs(self) -> bool:
        """Whether a porter runs, as far as is known."""
        return self._control is not None

    def start(self) -> None:
        """Start the porter unless it runs; if it cannot be started, try again later."""
        if self._control is not None or self._timer is not None:
            return
        try:
            self._spawn()
        except OSError as error:
            log.error("the porter cannot be started: %s; memory that is out stays there", error)
            self._start_later()
            return
        self._on_start()

    def _spawn(self) -> None:
        self._files.pool.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [str(self._files.program), f"--control={theirs.fileno()}", f"--pool={self._files.pool.path}"]
            try:
                # Its lines on stderr are lines of our log.
                self._process = subprocess.Popen(
                    [*command, f"--driver={self._files.driver}"], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
                )
            except OSError:
                control.close()
                raise
        control.setblocking(False)
        self._control = control
        self._serves_since = None
        self._loop.add_reader(control, self.read)
        log.info("the porter runs pid=%d", self._process.pid)

    def read(self) -> None:
        """Give out all reports that are there.

        A process says that its memory has moved only after the porter has reported it, so this comes before it is
        believed.
        """
        while self._control is not None:
            try:
                packet = self._control.recv(_PACKET)
            except BlockingIOError:
                return
            except ConnectionResetError:  # once, before what a killed porter had reported
                continue
            except OSError:
                packet = b""
            if not packet:
                self._ended()
                return
            if self._serves_since is None:
                self._serves_since = self._loop.time()
            self._on_report(p.unpack_report(packet))

    def _ended(self) -> None:
        status = self._close(_GRACE)
        # Not from its start on: it may have waited that long for another porter's pool.
        if self._serves_since is not None and self._loop.time() - self._serves_since >= STEADY:
            self._pause = FIRST_PAUSE
        known = "not known yet" if status is None else status
        log.warning("the porter has ended (status %s); another one starts in %.1f s", known, self._pause)
        self._start_later()

    def _start_later(self) -> None:
        def again() -> None:
            self._timer = None
            self.start()

        self._timer = self._loop.call_later(self._pause, again)
        self._pause = min(2 * self._pause, MOST_PAUSE)

    def _close(self, patience: float) -> int | None:
        """Close its socket, which ends the porter; return its exit status, None while it has none.

        `patience`: seconds for the kernel to end it once it is killed; the event loop stands still. No signal ends a
        call of the driver, and the kernel unpins a large pool for seconds. The end of its socket does not mean that it
        can be reaped: the kernel closes that before.
        """
        if self._control is not None:
            self._loop.remove_reader(self._control)
            self._control.close()
            self._control = None
        process, self._process = self._process, None
        if process is None:
            return None
        with suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=_GRACE)
        process.kill()  # it finishes the pieces at hand, and waits for nothing else
        with suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=patience)
        log.warning("the porter pid=%d was killed and has not ended: the driver or the kernel keeps it", process.pid)
        _reap_apart(process)
        return None

    def adopt(self) -> None:
        """Give back what an earlier scheduler left on the host, or watch over the copies of processes that live."""
        if self._control is not None:
            return
        match self._files.pool.give_back():
            case PoolState.IN_USE:
                self._adoption = self._loop.call_later(FIRST_PAUSE, self.adopt)
            case PoolState.HAS_COPIES:
                self.start()
            case PoolState.GONE:
                pass

    def stop(self) -> None:
        """Stop the porter. What is out stays out, for the next one; without any, nothing is left on the host."""
        for timer in (self._timer, self._adoption, self._rest):
            if timer is not None:
                timer.cancel()
        self._timer = self._adoption = self._rest = None
        self._close(_LAST_GRACE)
        self._files.pool.give_back()

    def rest(self, is_used: Callable[[], bool]) -> None:
        """Look in a minute, and each minute from then on, whether the porter is used, and end it if not.

        Its contexts are memory of the devices. No report is waited for: it tells of changes only, and a pool that had
        no time to grow does not shrink. Called again, the minute begins anew.
        """
        if self._rest is not None:
            self._rest.cancel()
        self._rest = self._loop.call_later(RESTING, self._end_rest, is_used)

    def _end_rest(self, is_used: Callable[[], bool]) -> None:
        self._rest = None
        if self._control is None or self._process is None:
            return  # the next one rests from its start on
        if is_used():
            self.rest(is_used)
            return
        log.info("the porter pid=%d ends: no process is there whose memory could leave", self._process.pid)
        self._loop.remove_reader(self._control)
        self._control.close()
        _reap_apart(self._process)  # the driver takes a moment for its contexts
        self._loop.call_later(_LAST_GRACE, self._process.kill)  # nothing happens to one that has ended
        self._control = self._process = None
        self.adopt()

    def copies_of(self, pid: int, started: int) -> Mapping[str, int]:
        """Return the bytes of complete copies of a process, by device.

        Raises:
            OSError: nobody can tell.
        """
        return {uuid_text(device): size for device, size in self._files.pool.copies_of(pid, started).items()}

    def resize(self, size: int) -> None:
        """Ask for so many bytes of host memory; POOLED says what came of it."""
        self._send(p.pack_pool(size), [])

    def checkpoint(self, session: int, *, restore: bool) -> None:
        """Have the driver take what is left of a process off its devices, or put it back; CHECKPOINTED follows."""
        self._send(p.pack_checkpoint(session, restore=restore), [])

    def allow(self, session: int, most: int) -> None:
        """Let a process have so many bytes of copies from now on; the porter hears it before it hears the process."""
        self._send(p.pack_allow(session, most), [])

    def bring(self, session: Session, most: int) -> socket.socket | None:
        """Return a carrier of a process to the porter; None while no porter runs, or the process has ended.

        `most`: as in `allow`.
        """
        if self._control is None or session.process is None or not session.started:
            return None
        theirs, porters = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        uuids = tuple(uuid_bytes(uuid) for uuid in session.rows)
        frame = p.pack_session(session.number, session.pid, session.started, most, uuids)
        with porters:
            if self._send(frame, [porters.fileno(), session.process]):
                return theirs
        theirs.close()
        return None

    def _send(self, frame: bytes, descriptors: Sequence[int]) -> bool:
        """Send a frame; False if nobody got it. A porter that does not read is as good as none."""
        if self._control is None:
            return False
        try:
            socket.send_fds(self._control, [frame], list(descriptors))
        except OSError as error:
            log.error("the porter does not listen: %s", error)
            if self._process is not None:
                self._process.kill()
            return False
        return True


def _reap_apart(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process in a thread, which does not keep ours from ending."""
    with suppress(RuntimeError):  # no thread is left: subprocess looks for it when the next one is started
        threading.Thread(target=process.wait, name="reap", daemon=True).start()


def pool_path(directory: Path) -> Path:
    """Return where the pool of the scheduler in a directory lies: in memory, if this host has a file system there.

    Its name is of the folder itself: the plugins of two Engines have theirs at one path, and one `/dev/shm`.
    """
    folder = directory.stat()
    identity = f"{directory.resolve()} {folder.st_dev} {folder.st_ino}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    shared = Path("/dev/shm")  # noqa: S108 - a folder of our own below it, for us only
    return shared / f"convgpu-{digest}" / "pool" if os.access(shared, os.W_OK) else directory / "pool"
