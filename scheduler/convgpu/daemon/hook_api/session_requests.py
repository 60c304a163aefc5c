"""Requests of processes with a session: allocate, free, measure a context, query usage."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from convgpu.core.machine import Machine
from convgpu.daemon.gpu.context_sizes import ContextSizes
from convgpu.daemon.hook_api.fixed_leases import Suspension
from convgpu.daemon.sessions.inspection import Inspection
from convgpu.daemon.sessions.lifecycle import SessionLifecycle
from convgpu.daemon.sessions.open_requests import MAX_QUEUED, Kind, Withdrawal
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.system.background_tasks import BackgroundTasks
from convgpu.protocol import messages as m
from convgpu.protocol.inspection import messages as i
from convgpu.protocol.residency.messages import ResidencyMessage
from convgpu.protocol.stream import ProtocolError
from convgpu.protocol.wire import AllocateFlag, Failure


class RefusalJudge(Protocol):
    """Judges allocations that the driver refused although they were granted."""

    async def may_wait(self, device: str, size: int, container: str) -> bool:
        """Say whether a container may ask for `size` bytes of a device again, because others' memory is in the way."""


class SessionRequests:
    """Carries out the requests of processes.

    Args:
        machine: read for answers about memory.
        sessions: all that are connected.
        lifecycle: turns requests into events.
        contexts: measures CUDA contexts.
        judge: decides whether an allocation that the driver refused may wait.
        inspection: takes what processes say of single allocations.
        suspension: elastic processes, and what of them cannot leave the devices.
    """

    def __init__(
        self,
        machine: Machine,
        sessions: SessionRegistry,
        lifecycle: SessionLifecycle,
        contexts: ContextSizes,
        judge: RefusalJudge,
        inspection: Inspection,
        suspension: Suspension,
    ) -> None:
        self._machine = machine
        self._sessions = sessions
        self._lifecycle = lifecycle
        self._contexts = contexts
        self._judge = judge
        self._inspection = inspection
        self._elastic, self._fixed = suspension.elastic, suspension.fixed
        self._outliving = lifecycle.outliving
        self._tasks = BackgroundTasks()

    def handle(self, session: Session, request: int, message: m.Message) -> None:
        """Carry out a request; some answers come later.

        Raises:
            ProtocolError: the message is not allowed here, names no device of the session, or is one too many.
        """
        match message:
            case m.Allocate(device=device) if message.flags & AllocateFlag.FIXED and device < len(session.rows):
                self._allocate_fixed(session, request, message)
            case m.Allocate():
                self._begin_allocation(session, request, message)
            case m.Freed(device) if device < len(session.rows):
                self._lifecycle.free(session, session.rows[device])
            case m.Context(device) if device < len(session.rows):
                self._begin(session, Kind.MEASUREMENT, request, partial(self._measure, session, request, message))
            case m.Query(device) if device < len(session.rows):
                session.connection.send(self._usage(session, session.rows[device]), request)
            case i.Exported(device=device) if device < len(session.rows) or not (message.size or request):
                self._note_exported(session, request, message)
            case i.Withdraw() | i.Listed() | i.Traced():
                self._receive(session, request, message)
            case _:
                if not (isinstance(message, ResidencyMessage) and self._elastic.receive(session, message)):
                    raise not_allowed(message, request)

    def opened(self, session: Session) -> None:
        """Prepare a session whose process is about to get its WELCOME."""
        self._inspection.tracer.opened(session)

    def _begin(
        self,
        session: Session,
        kind: Kind,
        request: int,
        start: Callable[[], None],
        withdrawal: Withdrawal | None = None,
    ) -> None:
        if not self._sessions.requests.begin(session, kind, start, withdrawal):
            raise ProtocolError(Failure.ORDER, f"more than {MAX_QUEUED} requests of one process wait", request)

    def _begin_allocation(self, session: Session, request: int, message: m.Allocate) -> None:
        withdrawal = request, partial(self._take_back, session, request, message)
        start = partial(self._allocate, session, request, message)
        self._begin(session, Kind.ALLOCATION, request, start, withdrawal)

    def _take_back(self, session: Session, request: int, message: m.Allocate) -> None:
        """Answer an allocation that was withdrawn before it began."""
        device = session.rows[message.device] if message.device < len(session.rows) else ""
        self._lifecycle.reject_as_interrupted(session, request, device, message.size, message.call)

    def _measure(self, session: Session, request: int, message: m.Context) -> None:
        self._tasks.start(self._measure_context(session, request, message))

    def _receive(self, session: Session, request: int, message: i.Withdraw | i.Listed | i.Traced) -> None:
        if isinstance(message, i.Withdraw):
            if not self._sessions.requests.withdraw(session, request):
                self._lifecycle.withdraw(session, request)
        else:
            self._inspection.receive(session, request, message)

    def _note_exported(self, session: Session, request: int, message: i.Exported) -> None:
        if self._outliving.note(session, message):
            self._answer_exported(session, request, message)
        else:
            self._begin(session, Kind.MEASUREMENT, request, partial(self._copy, session, request, message))

    def _copy(self, session: Session, request: int, message: i.Exported) -> None:
        self._tasks.start(self._copy_instance(session, request, message))

    async def _copy_instance(self, session: Session, request: int, message: i.Exported) -> None:
        """Take a copy of the instance by which a process tells what it exported; it goes on when that is done."""
        try:
            await self._outliving.copy(session, message)
        finally:
            self._sessions.requests.done(session, Kind.MEASUREMENT)
        self._answer_exported(session, request, message)

    def _answer_exported(self, session: Session, request: int, message: i.Exported) -> None:
        if request and session.number in self._sessions.by_number:
            session.connection.send(self._usage(session, session.rows[message.device]), request)

    def _allocate_fixed(self, session: Session, request: int, message: m.Allocate) -> None:
        """Let more of what the process is granted be memory that cannot leave; it never waits for that."""
        device = session.rows[message.device]
        if self._fixed.grow(session, device, message.size):
            session.connection.send(m.Accepted(message.size, 0), request)
        else:
            self._lifecycle.reject_as_limit(session, request, device, message.size, message.call)

    def _allocate(self, session: Session, request: int, message: m.Allocate) -> None:
        if message.flags & AllocateFlag.REFUSED and message.device < len(session.rows):
            device = session.rows[message.device]
            self._lifecycle.begin_look(session, request, device, message.size, message.call)
            self._tasks.start(self._judge_refusal(session, request, message))
        else:
            self._lifecycle.allocate(session, request, message.device, message.size, message.call)

    async def _judge_refusal(self, session: Session, request: int, message: m.Allocate) -> None:
        """Pause an allocation that the driver refused because of external memory; reject it for any other cause."""
        device = session.rows[message.device]
        try:
            may_wait = await self._judge.may_wait(device, message.size, session.container)
        finally:
            is_withdrawn = self._lifecycle.end_look(session, request)
        if session.number not in self._sessions.by_number:
            return  # it has ended; or it has another connection, and asks again there
        if is_withdrawn:
            self._sessions.requests.done(session, Kind.ALLOCATION)
        elif may_wait:
            self._lifecycle.allocate(session, request, message.device, message.size, message.call)
        else:
            self._lifecycle.reject_as_driver(session, request, device, message.size, message.call)
            self._sessions.requests.done(session, Kind.ALLOCATION)

    async def _measure_context(self, session: Session, request: int, message: m.Context) -> None:
        device = session.rows[message.device]
        try:
            size = await self._contexts.measure(device, session.pid, message.charged, message.used)
        finally:
            self._sessions.requests.done(session, Kind.MEASUREMENT)
        session.connection.send(m.ContextSize(size), request)

    def _usage(self, session: Session, device: str) -> m.Usage:
        account = self._machine.account(session.container, device)
        limit = account.limit if account is not None else 0
        used = self._sessions.used(session.container, device)
        return m.Usage(limit, used, self._machine.settling(device))


def not_allowed(message: m.Message, request: int) -> ProtocolError:
    """Return the error for a message that must not come at this point."""
    return ProtocolError(Failure.ORDER, f"{type(message).__name__} is not allowed here", request)
