"""The handshake: a process says HELLO, and gets a new session or continues its previous one."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from convgpu.core.machine import Machine
from convgpu.core.volume_options import OptionError
from convgpu.daemon.containers.registry import ContainerRegistry
from convgpu.daemon.gpu.context_sizes import ContextSizes
from convgpu.daemon.hook_api.obstacles import describe_absence, describe_obstacles
from convgpu.daemon.hook_api.session_factory import SessionFactory
from convgpu.daemon.sessions.lifecycle import SessionLifecycle
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.storage.rows import PreviousSession
from convgpu.daemon.storage.sessions import SessionTable
from convgpu.daemon.system.procfs import KernelFacts, is_alive
from convgpu.daemon.transport.connection import Absent, Connection
from convgpu.daemon.transport.shared_page import PAGE_SIZE
from convgpu.protocol import messages as m
from convgpu.protocol.stream import ProtocolError
from convgpu.protocol.uuids import uuid_bytes, uuid_text
from convgpu.protocol.wire import Failure

log = logging.getLogger(__name__)

MAX_SESSIONS: Final = 1024
# Seconds for which a process waits until its container may have another place, and between two looks at that.
_LEAVING: Final = 1.0
_STEP: Final = 0.01


class Counted(NamedTuple):
    """The driver's count on one device, in bytes: for a process, and what is in use and counted for nobody."""

    owned: int
    unowned: int


@dataclass(frozen=True, slots=True)
class PendingHello:
    """A HELLO without an answer yet.

    Attributes:
        container: name of the volume on whose socket the connection was made.
        connection: to answer on.
        request: id of the frame to answer.
        message: as the process sent it.
        facts: what the kernel tells of the process.
    """

    container: str
    connection: Connection
    request: int
    message: m.Hello
    facts: KernelFacts

    @property
    def pid(self) -> int:
        """The process's pid; 0 when it is not visible here."""
        return self.connection.pid

    @property
    def started(self) -> int:
        """When the process did, in clock ticks since boot; 0 if it has ended, or the kernel was kept from telling."""
        return self.facts.started

    @property
    def held(self) -> dict[str, int]:
        """What the process claims to hold, in bytes per device."""
        return {uuid_text(device): size for device, size in self.message.held if size}

    @property
    def visible(self) -> tuple[str, ...]:
        """The devices that the process sees; empty when it does not say."""
        return tuple(uuid_text(device) for device, _ in self.message.held)


class Handshake:
    """Admits processes.

    Args:
        containers: declare the limits that a HELLO brings.
        machine: knows devices and limits; only read here.
        sessions: all that are connected.
        lifecycle: opens the sessions.
        contexts: knows the driver's count of each process, and the sizes of contexts.
        factory: makes the sessions.
        table: where the next scheduler finds the sessions.
    """

    def __init__(
        self,
        containers: ContainerRegistry,
        machine: Machine,
        sessions: SessionRegistry,
        lifecycle: SessionLifecycle,
        contexts: ContextSizes,
        factory: SessionFactory,
        table: SessionTable,
    ) -> None:
        self._containers = containers
        self._machine = machine
        self._sessions = sessions
        self._lifecycle = lifecycle
        self._contexts = contexts
        self._factory = factory
        self._table = table
        # By session and device: bytes that were believed and that the driver counts for nobody.
        self._unowned: dict[tuple[int, str], int] = {}

    def needs_count(self, hello: PendingHello) -> bool:
        """Say whether the claim of a process has to be compared with the driver's count before it is admitted.

        Not when this scheduler knows what it leased to the process. A process that is not visible here cannot be
        counted: during recovery it is believed, later not.

        Raises:
            ProtocolError: the container has too many processes.
        """
        container = hello.container
        previous = self._sessions.find(container, hello.pid, hello.started)
        if previous is not None:
            return bool(hello.held) and isinstance(previous.connection, Absent)
        if len(self._sessions.of(container)) >= MAX_SESSIONS:
            text = f"more than {MAX_SESSIONS} processes of this container use ConvGPU: end some"
            raise ProtocolError(Failure.ORDER, text, hello.request)
        return bool(hello.held) and (bool(hello.pid) or not self._machine.recovering)

    async def count(self, hello: PendingHello) -> dict[str, Counted]:
        """Return the driver's count for a process on each device that it claims.

        A process that may have a past, during recovery or because its session was adopted, may also hold what the
        driver counts for nobody. An unknown count is then the claim itself; else 0.
        """
        known = hello.held.keys() & self._machine.devices
        counted = self._with_copies(hello, await self._contexts.held_on_each(known, hello.pid))
        if not self._machine.recovering and self._sessions.find(hello.container, hello.pid, hello.started) is None:
            return {uuid: Counted(size or 0, 0) for uuid, size in counted.items()}
        unowned = {uuid: await self._contexts.unowned(uuid) for uuid in counted}
        return {
            uuid: Counted(hello.held[uuid] if size is None else size, unowned[uuid]) for uuid, size in counted.items()
        }

    def _with_copies(self, hello: PendingHello, counted: dict[str, int | None]) -> dict[str, int | None]:
        """Add what of a process lies on the host, where no driver counts it.

        It is asked after the driver, so that what moves just then counts once at least.
        """
        if not self._factory.fixed.may_leave(hello.container):
            return counted
        copies = self._factory.fixed.copies_of(hello.container, hello.pid, hello.started)
        if copies is None:
            return dict.fromkeys(counted)
        return {uuid: None if size is None else size + copies.get(uuid, 0) for uuid, size in counted.items()}

    def is_leaving(self, hello: PendingHello) -> bool:
        """Say whether its container may have another place in a moment: nothing but its ended processes was there."""
        return self._lifecycle.is_leaving(hello.container)

    async def leave(self, hello: PendingHello) -> None:
        """Wait until it is known whether they left anything; not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVING):
                while self.is_leaving(hello):
                    await asyncio.sleep(_STEP)

    def make_session(self, hello: PendingHello) -> Session:
        """Declare the container's limits, and return a session that is saved for the next scheduler but not open.

        Raises:
            OptionError: the container has no limit, or one that cannot be, or no GPU can be had.
            OSError: no descriptors or no memory are left, or the limits cannot be written.
        """
        self._containers.declare(hello.container, hello.message.memory)
        self._place(hello)
        identity = PreviousSession(hello.pid, hello.started, hello.container, hello.message.program)
        process = hello.connection.open_process()
        session = self._factory.make(hello.connection, process, identity, hello.facts, hello.message.pid)
        self._save(identity)
        return session

    def _place(self, hello: PendingHello) -> None:
        """Have GPUs chosen if that is due.

        Raises:
            OptionError: none can be chosen now, or the process sees none of its container's.
        """
        name, visible = hello.container, hello.visible
        self._lifecycle.place(name, visible, hello.held)
        if self._machine.choice(name) is not None and self._machine.placement(name) is None:
            raise OptionError(describe_obstacles(self._machine.propose(name, visible), self._containers.devices))
        limited = tuple(self._machine.accounts(name))
        if visible and not hello.held and not set(visible) & set(limited):
            raise OptionError(describe_absence(limited, visible, self._containers.devices))

    def _save(self, identity: PreviousSession) -> None:
        """Save a process for the next scheduler before it can hold memory."""
        if not identity.pid or (not identity.started and is_alive(identity.pid)):
            self._table.mark_incomplete()
        if identity.started:
            self._table.add(identity)

    def find_previous(self, session: Session) -> Session | None:
        """Return the session that the same process has had until now."""
        return self._sessions.find(session.container, session.pid, session.started)

    def open(
        self, session: Session, previous: Session | None, hello: PendingHello, counted: Mapping[str, Counted] | None
    ) -> m.Welcome:
        """Open a session, or let it continue its previous one, and return the answer to the HELLO.

        Args:
            session: of the process; not open.
            previous: session of the same process.
            hello: to answer.
            counted: the driver's count per device, None when the claim is believed.
        """
        welcome = m.Welcome(PAGE_SIZE, self._rows(session))
        held = hello.held if counted is None else self._bound_claim(session, hello.held, counted)
        if previous is None and not hello.message.held:
            self._factory.fixed.open(session)
        if previous is not None:
            self._lifecycle.reconnect(session, previous, held)
        else:
            self._lifecycle.open(session, held)
        return welcome

    def _rows(self, session: Session) -> tuple[m.DeviceRow, ...]:
        accounts = self._machine.accounts(session.container)
        limits = ((uuid, accounts[uuid].limit) for uuid in session.rows)
        return tuple(m.DeviceRow(uuid_bytes(uuid), limit, self._contexts.size(uuid, limit)) for uuid, limit in limits)

    def _bound_claim(
        self, session: Session, claim: Mapping[str, int], counted: Mapping[str, Counted]
    ) -> dict[str, int]:
        """Return the part of a process's claim that the driver's count confirms, in bytes per device.

        Without this check any process could claim memory and so overtake waiting allocations. What the driver counts
        for nobody is believed to belong to one process only.
        """
        believed = {uuid: min(size, self._bound(uuid, counted.get(uuid))) for uuid, size in claim.items()}
        for uuid, size in believed.items():
            if size < claim[uuid]:
                log.warning(
                    "pid %d says it holds %d bytes of %s; the driver says %d", session.pid, claim[uuid], uuid, size
                )
            if uuid in counted and size > counted[uuid].owned:
                self._unowned[session.number, uuid] = size - counted[uuid].owned
        return believed

    def _bound(self, uuid: str, counted: Counted | None) -> int:
        if counted is None:
            return 0
        sessions = self._sessions.by_number
        self._unowned = {key: size for key, size in self._unowned.items() if key[0] in sessions}
        taken = sum(size for (_, device), size in self._unowned.items() if device == uuid)
        return counted.owned + max(counted.unowned - taken, 0)
