"""The server of processes of containers, on their `scheduler.sock`: connections, and the handler of each message."""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from convgpu.core.machine import Machine
from convgpu.core.volume_options import OptionError
from convgpu.daemon.containers.registry import ContainerRegistry
from convgpu.daemon.hook_api.handshake import Counted, Handshake, PendingHello
from convgpu.daemon.hook_api.nvml_view import observe
from convgpu.daemon.hook_api.peers import Isolation
from convgpu.daemon.hook_api.session_requests import SessionRequests, not_allowed
from convgpu.daemon.hook_api.silent import SilentConnections
from convgpu.daemon.sessions.disconnected import DisconnectedSessions
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.system.background_tasks import BackgroundTasks
from convgpu.daemon.system.descriptors import Descriptors
from convgpu.daemon.system.processes.looker import Looker
from convgpu.daemon.system.procfs import KernelFacts
from convgpu.daemon.transport.connection import Connection
from convgpu.daemon.transport.shares import Share
from convgpu.protocol import messages as m
from convgpu.protocol.stream import ProtocolError
from convgpu.protocol.wire import Failure

log = logging.getLogger(__name__)

MAX_FRAME: Final = 4096  # bytes: a HELLO with 63 devices has 1,632
_NOT_VISIBLE: Final = KernelFacts(0, [], None, [])


class HookServer:
    """Serves each connection: HELLO gives it a session, and the requests of the session follow.

    Args:
        containers: declare the limits that an OBSERVE brings.
        machine: read for answers to OBSERVE.
        sessions: all that are connected.
        handshake: admits processes that say HELLO.
        requests: carries out what processes with a session ask.
        disconnected: gets sessions whose connection ended.
        isolation: keeps containers apart.
    """

    def __init__(
        self,
        containers: ContainerRegistry,
        machine: Machine,
        sessions: SessionRegistry,
        handshake: Handshake,
        requests: SessionRequests,
        disconnected: DisconnectedSessions,
        isolation: Isolation,
    ) -> None:
        self._shares, self._peers = isolation.shares, isolation.peers
        self._facts: dict[Connection, KernelFacts] = {}  # of processes that may be here
        self._looker = Looker(asyncio.get_running_loop())
        self._containers = containers
        self._machine = machine
        self._sessions = sessions
        self._handshake = handshake
        self._requests = requests
        self._disconnected = disconnected
        self._open: dict[Connection, Session] = {}
        self._descriptors = Descriptors()
        self._silent = SilentConnections(asyncio.get_running_loop(), self._descriptors)
        self._counting: set[Connection] = set()  # said HELLO, and wait for what the driver says
        self._tasks = BackgroundTasks()

    # -- connections -----------------------------------------------------------------------------------------

    def accept(self, container: str, sock: socket.socket) -> None:
        """Serve a connection to the container's socket; it is closed unless HELLO comes within ten seconds."""
        if not self._silent.has_room(container):
            self._shares.of(container).release(sock)
            return
        receive, ended = partial(self._receive, container), partial(self._ended, container)
        connection = Connection(self._shares.of(container), sock, receive, ended, MAX_FRAME)
        self._silent.add(container, connection)

    def forget(self, container: str) -> None:
        """Close the connections to a container whose socket is closed; its processes have ended before."""
        for connection in self._silent.of(container):
            connection.close("its volume is removed, or not mounted any more")
        self._shares.remove(container)

    def share(self, container: str) -> Share:
        """Return the part of the event loop in which a container's processes are served."""
        return self._shares.of(container)

    def _ended(self, container: str, connection: Connection) -> None:
        self._silent.remove(container, connection)
        self._counting.discard(connection)
        self._facts.pop(connection, None)
        session = self._open.pop(connection, None)
        if session is not None:
            self._disconnected.add(session)

    def close(self) -> None:
        """Close all connections; the processes keep their memory and connect to the next scheduler."""
        for connection in [*self._open, *self._silent.all()]:
            connection.close()

    # -- messages --------------------------------------------------------------------------------------------

    def _receive(self, container: str, connection: Connection, request: int, message: m.Message) -> None:
        """Handle a message. Raises ProtocolError, with which the connection fails."""
        session = self._open.get(connection)
        if isinstance(message, m.Observe):
            self._look(container, connection, request, partial(self._observe, container, connection, request, message))
        elif session is not None:
            self._requests.handle(session, request, message)
        elif connection in self._counting:
            raise not_allowed(message, request)
        elif isinstance(message, m.Hello):
            hello = partial(PendingHello, container, connection, request, message)
            self._look(container, connection, request, lambda facts: self._hello(hello(facts)))
        else:
            raise ProtocolError(Failure.ORDER, f"{type(message).__name__} before HELLO", request)

    def _look(
        self, container: str, connection: Connection, request: int, handle: Callable[[KernelFacts], None]
    ) -> None:
        """Check the process that connected, and handle its message with what the kernel tells of it.

        A process can keep who looks at it waiting, but not others. While it is not told when the process started, it is
        looked at for each message.
        """
        facts = self._facts.get(connection)
        if facts is not None or not connection.pid:
            handle(facts or _NOT_VISIBLE)
            return

        def handle_found(found: KernelFacts | None) -> None:
            if found is None:
                text = "the process that connected has ended, or cannot be looked at: connect from one that lives"
                raise ProtocolError(Failure.PEER, text, request)
            self._peers.check(container, connection.pid, found.ids, request)
            if found.started:
                self._facts[connection] = found
            handle(found)

        connection.hold()
        self._looker.ask(container, connection.look, lambda found: connection.go_on(partial(handle_found, found)))

    def _observe(
        self, container: str, connection: Connection, request: int, message: m.Observe, facts: KernelFacts
    ) -> None:
        """Answer a program that needs no session. Its connection counts as silent, so their number is bounded."""
        try:
            self._containers.declare(container, message.memory)
        except OptionError as error:
            raise ProtocolError(Failure.NO_LIMIT, str(error), request) from error
        asker = facts if connection.pid else None
        connection.send(observe(self._machine, self._sessions, container, asker, message.device), request)

    def _hello(self, hello: PendingHello) -> None:
        if self._descriptors.are_scarce() and not self._is_known(hello):
            hello.connection.close("its session cannot be opened: descriptors are scarce; end some processes")
        elif self._handshake.needs_count(hello):
            self._counting.add(hello.connection)
            self._tasks.start(self._count_and_admit(hello))
        elif self._handshake.is_leaving(hello):
            self._counting.add(hello.connection)
            self._tasks.start(self._leave_and_admit(hello))
        else:
            self._admit(hello, None)

    def _is_known(self, hello: PendingHello) -> bool:
        return self._sessions.find(hello.container, hello.pid, hello.started) is not None

    async def _count_and_admit(self, hello: PendingHello) -> None:
        counted = await self._handshake.count(hello)
        self._counting.discard(hello.connection)
        if not hello.connection.closed:
            self._admit(hello, counted)

    async def _leave_and_admit(self, hello: PendingHello) -> None:
        await self._handshake.leave(hello)
        self._counting.discard(hello.connection)
        if not hello.connection.closed:
            self._admit(hello, None)

    def _admit(self, hello: PendingHello, counted: Mapping[str, Counted] | None) -> None:
        self._silent.remove(hello.container, hello.connection)
        try:
            self._welcome(hello, counted)
        except OptionError as error:
            hello.connection.fail(ProtocolError(Failure.NO_LIMIT, str(error), hello.request))
        except OSError as error:
            hello.connection.close(f"its session cannot be opened: {error}")

    def _welcome(self, hello: PendingHello, counted: Mapping[str, Counted] | None) -> None:
        session = self._handshake.make_session(hello)
        # Before WELCOME is sent: when that fails, the end of the connection has to find the session.
        self._open[hello.connection] = session
        previous = self._handshake.find_previous(session)
        if previous is not None:
            self._detach(previous)
        welcome = self._handshake.open(session, previous, hello, counted)
        self._requests.opened(session)
        hello.connection.send(welcome, hello.request, descriptor=session.page.descriptor)
        session.page.close_descriptor()

    def _detach(self, session: Session) -> None:
        """Close the old connection of a session whose process has connected again."""
        if isinstance(session.connection, Connection):
            self._open.pop(session.connection, None)
        session.connection.close()
        self._disconnected.forget(session)
