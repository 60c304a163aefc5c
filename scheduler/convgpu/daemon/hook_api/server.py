"""Answers to the processes of containers on their `scheduler.sock`."""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from convgpu.core.machine import Machine
from convgpu.core.volume_options import OptionError
from convgpu.daemon.containers.registry import ContainerRegistry
from convgpu.daemon.gpu.context_sizes import ContextSizes
from convgpu.daemon.hook_api.nvml_view import observe
from convgpu.daemon.sessions.disconnected import DisconnectedSessions
from convgpu.daemon.sessions.lifecycle import SessionLifecycle
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.storage.rows import PreviousSession
from convgpu.daemon.storage.sessions import SessionTable
from convgpu.daemon.system.procfs import containers_of, namespace_pids, open_process, pid_namespace, start_time
from convgpu.daemon.transport.connection import Absent, Connection
from convgpu.daemon.transport.shared_page import PAGE_SIZE, Page, PageLibrary
from convgpu.protocol import messages as m
from convgpu.protocol.stream import ProtocolError
from convgpu.protocol.uuids import uuid_bytes, uuid_text
from convgpu.protocol.wire import Failure

log = logging.getLogger(__name__)

# Bounds on what one container can make us keep or do; far above what programs need.
HELLO_TIMEOUT: Final = 10.0
MAX_SILENT_CONNECTIONS: Final = 1024
MAX_OPEN_REQUESTS: Final = 1024
MAX_SESSIONS: Final = 1024
MAX_FRAME: Final = 4096  # bytes: a HELLO with 63 devices has 1,632


class RefusalJudge(Protocol):
    """Judges allocations that the driver refused although they were granted."""

    async def may_wait(self, device: str, size: int) -> bool:
        """Say whether `size` bytes of a device may be asked for again, because external memory is in the way."""


class HookServer:
    """Opens a session for each process that says HELLO, and serves it until its connection ends.

    Args:
        containers: declare the limits that a HELLO brings.
        machine: read for answers about memory.
        sessions: all that are connected.
        lifecycle: turns what processes do into events.
        contexts: knows what CUDA contexts take.
        pages: makes the pages that are shared with processes.
        previous: where the next scheduler finds the sessions.
        disconnected: waits for processes that lost their connection.
        judge: decides whether an allocation that the driver refused may wait.
        wall_clock: Unix seconds.
    """

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        containers: ContainerRegistry,
        machine: Machine,
        sessions: SessionRegistry,
        lifecycle: SessionLifecycle,
        contexts: ContextSizes,
        pages: PageLibrary,
        previous: SessionTable,
        disconnected: DisconnectedSessions,
        judge: RefusalJudge,
        wall_clock: Callable[[], float],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._containers = containers
        self._machine = machine
        self._sessions = sessions
        self._lifecycle = lifecycle
        self._contexts = contexts
        self._pages = pages
        self._previous = previous
        self._disconnected = disconnected
        self._wall_clock = wall_clock
        self._open: dict[Connection, Session] = {}
        self._silent: dict[str, dict[Connection, asyncio.TimerHandle]] = {}
        self._measured: set[Connection] = set()  # said HELLO, and NVML is asked what their processes hold
        self._tasks: set[asyncio.Future[None]] = set()
        self._judge = judge

    def accept(self, container: str, sock: socket.socket) -> None:
        """Take a connection that was made on the container's socket; it has to say HELLO soon."""
        silent = self._silent.setdefault(container, {})
        if len(silent) >= MAX_SILENT_CONNECTIONS:
            log.warning("a connection to %s is refused: %d others have not said HELLO", container, len(silent))
            sock.close()
            return
        receive, ended = partial(self._receive, container), partial(self._ended, container)
        connection = Connection(self._loop, sock, receive, ended, MAX_FRAME)
        silent[connection] = self._loop.call_later(HELLO_TIMEOUT, connection.close, "no HELLO")

    def forget(self, container: str) -> None:
        """Close the connections of a container that is gone; its processes have ended before."""
        for connection in list(self._silent.get(container, ())):
            connection.close("its volume is removed")
        self._silent.pop(container, None)

    def _said_hello(self, container: str, connection: Connection) -> None:
        timer = self._silent.get(container, {}).pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _receive(self, container: str, connection: Connection, request: int, message: m.Message) -> None:
        if isinstance(message, m.Observe):
            self._observe(container, connection, request, message)
            return
        session = self._open.get(connection)
        if session is None and connection not in self._measured:
            self._hello(container, connection, request, message)
            return
        row = getattr(message, "device", 0)
        if (
            session is None
            or not isinstance(message, m.Allocate | m.Freed | m.Context | m.Query)
            or (row >= len(session.rows) and not isinstance(message, m.Allocate))
        ):
            text = f"{type(message).__name__} is not allowed here"
            connection.fail(ProtocolError(Failure.ORDER, text, request))
            return
        if isinstance(message, m.Allocate | m.Context) and session.open_requests >= MAX_OPEN_REQUESTS:
            text = f"more than {MAX_OPEN_REQUESTS} allocations wait in one process"
            connection.fail(ProtocolError(Failure.ORDER, text, request))
            return
        match message:
            case m.Allocate(device, size, call, refused):
                if refused and device < len(session.rows):
                    session.open_requests += 1
                    self._start(self._ask_again(session, request, message))
                else:
                    self._lifecycle.allocate(session, request, device, size, call)
            case m.Freed(device):
                self._lifecycle.free(session, session.rows[device])
            case m.Context():
                session.open_requests += 1
                self._start(self._measure(session, request, message))
            case m.Query(device):
                connection.send(self._usage(session, session.rows[device]), request)

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _measure(self, session: Session, request: int, message: m.Context) -> None:
        size = await self._contexts.measure(session.rows[message.device], session.pid, message.charged, message.used)
        session.open_requests -= 1
        session.connection.send(m.ContextSize(size), request)

    async def _ask_again(self, session: Session, request: int, message: m.Allocate) -> None:
        """Let an allocation wait that the driver refused because of external memory, like any that is not free."""
        waits = await self._judge.may_wait(session.rows[message.device], message.size)
        session.open_requests -= 1
        if session.number not in self._sessions.by_number:
            return  # it has ended; or it has another connection, and asks again there
        if waits:
            self._lifecycle.allocate(session, request, message.device, message.size, message.call)
        else:
            self._lifecycle.reject_as_driver(session, request, session.rows[message.device], message.size, message.call)

    def _usage(self, session: Session, device: str) -> m.Usage:
        account = self._machine.account(session.container, device)
        limit = account.limit if account is not None else 0
        used = self._sessions.used(session.container, device)
        return m.Usage(limit, used, self._machine.settling(device))

    def _observe(self, container: str, connection: Connection, request: int, message: m.Observe) -> None:
        """Answer who has no session and needs none; a bound on silent connections holds for it as well."""
        try:
            self._containers.declare(container, message.memory)
        except OptionError as error:
            connection.fail(ProtocolError(Failure.NO_LIMIT, str(error), request))
            return
        connection.send(observe(self._machine, self._sessions, container, connection.pid, message.device), request)

    def _hello(self, container: str, connection: Connection, request: int, message: m.Message) -> None:
        if not isinstance(message, m.Hello):
            text = f"{type(message).__name__} before HELLO"
            connection.fail(ProtocolError(Failure.ORDER, text, request))
            return
        past = self._sessions.find(container, connection.pid, start_time(connection.pid))
        if past is None and len(self._sessions.of(container)) >= MAX_SESSIONS:
            text = f"more than {MAX_SESSIONS} processes of this container use ConvGPU: end some"
            connection.fail(ProtocolError(Failure.ORDER, text, request))
            return
        if message.held and past is None and not self._machine.recovering:
            self._measured.add(connection)
            self._start(self._ask_and_admit(container, connection, request, message))
        else:
            self._said_hello(container, connection)
            self._admit(container, connection, request, message)

    async def _ask_and_admit(self, container: str, connection: Connection, request: int, hello: m.Hello) -> None:
        """Compare what a process says that it holds with the driver's count, and admit it."""
        known = {uuid_text(device) for device, _ in hello.held} & self._machine.devices
        seen = await self._seen(known, connection.pid)
        self._measured.discard(connection)
        if not connection.closed:
            self._said_hello(container, connection)
            self._admit(container, connection, request, hello, {uuid: size or 0 for uuid, size in seen.items()})

    async def _seen(self, devices: Iterable[str], pid: int) -> dict[str, int | None]:
        """Return what the driver says that a process holds, of each device; None where it does not tell."""
        uuids = list(devices)
        return dict(zip(uuids, await asyncio.gather(*(self._contexts.held(uuid, pid) for uuid in uuids)), strict=True))

    def _admit(
        self,
        container: str,
        connection: Connection,
        request: int,
        hello: m.Hello,
        seen: Mapping[str, int] | None = None,
    ) -> None:
        try:
            self._containers.declare(container, hello.memory)
            self._welcome(container, connection, request, hello, seen)
        except OptionError as error:
            connection.fail(ProtocolError(Failure.NO_LIMIT, str(error), request))
        except OSError as error:
            connection.close(f"its session cannot be opened: {error}")

    def _welcome(
        self, container: str, connection: Connection, request: int, hello: m.Hello, seen: Mapping[str, int] | None
    ) -> None:
        accounts = self._machine.accounts(container)
        rows = tuple(accounts)
        page = Page(self._pages, len(rows))
        session = Session(
            number=self._lifecycle.next_number(),
            container=container,
            connection=connection,
            page=page,
            rows=rows,
            program=hello.program,
            since=self._wall_clock(),
            process=connection.open_process(),
            started=start_time(connection.pid),
            ids=containers_of(connection.pid),
            namespace=pid_namespace(connection.pid),
            pids=namespace_pids(connection.pid),
            own_pid=hello.pid,
        )
        devices = tuple(
            m.DeviceRow(uuid_bytes(uuid), accounts[uuid].limit, self._contexts.size(uuid, accounts[uuid].limit))
            for uuid in rows
        )
        held = {uuid_text(uuid): size for uuid, size in hello.held}
        self._note(session)
        # The session is open before the process can ask: its first message finds it.
        self._open[connection] = session
        self._begin(session, held, seen)
        connection.send(m.Welcome(PAGE_SIZE, devices), request, descriptor=page.descriptor)
        page.close_descriptor()

    def _begin(self, session: Session, held: dict[str, int], seen: Mapping[str, int] | None) -> None:
        """Open a session, or let the one go on that the process had before."""
        previous = self._sessions.find(session.container, session.pid, session.started)
        if previous is None:
            self._lifecycle.open(session, held if seen is None else _believe(session, held, seen))
            return
        if isinstance(previous.connection, Connection):
            self._open.pop(previous.connection, None)
        previous.connection.close()
        self._disconnected.forget(previous)
        self._lifecycle.reconnect(session, previous, held)

    def _note(self, session: Session) -> None:
        """Keep who may hold memory, for the next scheduler, before it can be so."""
        if not session.pid:
            self._previous.mark_incomplete()
        if not session.started:
            return
        self._previous.add(PreviousSession(session.pid, session.started, session.container, session.program))

    async def adopt(self, missing: Sequence[PreviousSession]) -> None:
        """Open sessions for processes that live but do not come back: what they hold is not to be granted twice."""
        all_seen = await asyncio.gather(
            *(self._seen(self._machine.accounts(previous.container), previous.pid) for previous in missing)
        )
        for previous, seen in zip(missing, all_seen, strict=True):
            accounts = self._machine.accounts(previous.container)  # meanwhile its volume may be gone, or another
            # Not known is not nothing.
            held = {
                uuid: accounts[uuid].limit if size is None else size for uuid, size in seen.items() if uuid in accounts
            }
            try:
                self._adopt(previous, held)
            except OSError as error:
                log.error("what pid %d holds may be granted twice: %s", previous.pid, error)

    def _adopt(self, previous: PreviousSession, held: Mapping[str, int]) -> None:
        if self._sessions.find(previous.container, previous.pid, previous.started) is not None:
            return
        process = open_process(previous.pid)
        if not any(held.values()) or process is None or start_time(previous.pid) != previous.started:
            if process is not None:
                os.close(process)
            self._previous.drop(previous)
            return
        accounts = self._machine.accounts(previous.container)
        log.warning("pid %d of %s does not reconnect; what it holds stays its own", previous.pid, previous.container)
        page = Page(self._pages, len(accounts))
        page.close_descriptor()
        session = Session(
            number=self._lifecycle.next_number(),
            container=previous.container,
            connection=Absent(previous.pid),
            page=page,
            rows=tuple(accounts),
            program=previous.program,
            since=self._wall_clock(),
            process=process,
            started=previous.started,
            ids=containers_of(previous.pid),
            namespace=pid_namespace(previous.pid),
            pids=namespace_pids(previous.pid),
        )
        self._lifecycle.open(session, held)
        self._disconnected.add(session)

    def _ended(self, container: str, connection: Connection) -> None:
        self._said_hello(container, connection)
        self._measured.discard(connection)
        session = self._open.pop(connection, None)
        if session is not None:
            self._disconnected.add(session)

    def close(self) -> None:
        """Close all connections; the processes keep what they have and connect to the next scheduler."""
        for connection in [*self._open, *(one for silent in self._silent.values() for one in silent)]:
            connection.close()


def _believe(session: Session, held: Mapping[str, int], seen: Mapping[str, int]) -> dict[str, int]:
    """Return how much of what a process says it holds is believed, by device.

    All of it while the processes of an earlier scheduler come back (then nobody asks here). Later, of one that had no
    session, what the driver counts for it: an unchecked claim would let any process overtake those that wait.
    """
    believed = {uuid: min(size, seen.get(uuid, 0)) for uuid, size in held.items()}
    for uuid, size in believed.items():
        if size < held[uuid]:
            log.warning("pid %d says it holds %d bytes of %s; the driver says %d", session.pid, held[uuid], uuid, size)
    return believed
