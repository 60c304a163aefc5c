"""The lifecycle of a process as events: it connects, allocates, frees, reconnects and ends."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from convgpu.core import events as e
from convgpu.core.placement import PlacementRequested
from convgpu.daemon.gpu.ending import EndingProcesses, Place
from convgpu.daemon.gpu.kept_memory import KeptMemory
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.sessions.open_requests import Kind
from convgpu.daemon.sessions.outliving import OutlivingMemory
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import PendingAllocation, Session
from convgpu.daemon.storage.history import History
from convgpu.daemon.storage.rows import PreviousSession
from convgpu.daemon.storage.sessions import SessionTable
from convgpu.daemon.system.background_tasks import BackgroundTasks
from convgpu.daemon.system.procfs import has_ended, is_exiting
from convgpu.daemon.transport.connection import Absent
from convgpu.daemon.transport.shares import Shares
from convgpu.protocol.event_kinds import EventKind, RejectReason
from convgpu.protocol.messages import Rejected
from convgpu.protocol.wire import Reason

log = logging.getLogger(__name__)

_CONTEXT_CALLS: Final = frozenset({"cuDevicePrimaryCtxRetain", "cuCtxCreate"})  # as the hook names them
# Seconds before each look at what is in the way of an allocation. What a process has that has just ended may be listed
# for half a millisecond more (docs/measurements.md).
_PAUSES: Final = (0.0, 0.01)
# Seconds for all of that: what is read of processes may never return.
_LONGEST: Final = 30.0


class SettlingWatcher(Protocol):
    """Watches the settling memory of ended processes."""

    def watch(self, number: int, process: int | None, used: Mapping[str, int], *, ending: int) -> None:
        """Watch the memory that session `number` used, in bytes per device. Takes over the pidfd `process`.

        `ending`: its pid, if it is certain that it ends; else 0.
        """


@dataclass(frozen=True, slots=True)
class EndedMemory:
    """Follows what processes used after their end: what the driver is about to free, and what others keep."""

    settling: SettlingWatcher
    outliving: OutlivingMemory
    ending: EndingProcesses
    kept: KeptMemory

    def watch(self, session: Session, used: Mapping[str, int], beside: Mapping[str, int]) -> None:
        """Watch what the process of a session used, in bytes by device, until the driver has freed it.

        `beside`: of that, what stays charged when the process has ended, or lies on the host.
        """
        process = session.process
        held = {device: max(size - beside[device], 0) for device, size in used.items()}
        self.kept.begin(session.pid, session.container, held)
        is_ending = process is not None and is_exiting(session.pid) and not has_ended(process)
        if is_ending:
            self.ending.begin(session.number, session.pid, session.container, held)
        self.settling.watch(session.number, process, used, ending=session.pid if is_ending else 0)


class SessionLifecycle:
    """Turns the actions of processes into events, and keeps the registry up to date.

    Args:
        ended: follows what a process used after its end.
        table: forgets the processes that ended.
        wall_clock: Unix seconds.
        shares: of the event loop.

    Attributes:
        recount: has the audit take back what containers are charged with on a device and is there no more.
    """

    def __init__(
        self,
        driver: MachineDriver,
        registry: SessionRegistry,
        history: History,
        ended: EndedMemory,
        table: SessionTable,
        wall_clock: Callable[[], float],
        shares: Shares,
    ) -> None:
        self._driver = driver
        self._registry = registry
        self._history = history
        self._ended = ended
        self._tasks = BackgroundTasks()
        # By session and frame: who rejects it if it is withdrawn; None: it was.
        self._looked_at: dict[tuple[int, int], Callable[[], None] | None] = {}
        self._settling: dict[int, tuple[str, Sequence[str]]] = {}  # by session that ended: container and devices
        self._looking: dict[Place, bool] = {}  # at what may be kept; and whether to look once more
        self._table = table
        self._wall_clock = wall_clock
        self._shares = shares
        self.recount: Callable[[str], Awaitable[None]] = _count_nothing

    @property
    def outliving(self) -> OutlivingMemory:
        """What processes exported, and left."""
        return self._ended.outliving

    @property
    def ending(self) -> EndingProcesses:
        """Processes that are ending."""
        return self._ended.ending

    def next_number(self) -> int:
        """Return a number for a session that was never given before."""
        return self._driver.next_number()

    def place(self, container: str, visible: Sequence[str], held: Mapping[str, int]) -> None:
        """Have devices chosen for a container before its first session, if the scheduler is to choose them.

        Args:
            container: name of the volume.
            visible: the devices that its process has; empty when it does not say.
            held: what its process uses, in bytes per device.
        """
        if self._driver.machine.choice(container) is not None:
            self._driver.dispatch(PlacementRequested(container, tuple(visible), tuple(held)))

    def open(self, session: Session, held: Mapping[str, int]) -> None:
        """Add a session; `held`: its usage so far, in bytes per device."""
        self._history.add(EventKind.STARTED, session.container, session.cause, pid=session.pid, program=session.program)
        self._registry.add(session)
        self._driver.dispatch(e.SessionStarted(session.number, session.container, held))
        self.outliving.begin(session, held)

    def reconnect(self, session: Session, previous: Session, held: dict[str, int]) -> None:
        """Replace the session `previous` of the same process; `held`: its usage, in bytes per device."""
        used = {uuid: self._registry.used_by(previous, uuid) for uuid in previous.rows}
        self._registry.remove(previous)
        if previous.process is not None:
            os.close(previous.process)
        self._registry.add(session)
        late = isinstance(previous.connection, Absent)
        kept = self.outliving.reconnect(session, previous, used, held)
        self._driver.dispatch(e.SessionReconnected(session.number, previous.number, held, late, kept))

    def allocate(self, session: Session, frame: int, row: int, size: int, call: str) -> None:
        """Request `size` bytes; the answer has the id of the frame."""
        device = session.rows[row] if row < len(session.rows) else ""
        beside = self._driver.machine.charged(session.container, device)
        beside += self._ended.kept.most(session.container, device)
        pending = PendingAllocation(session, frame, device, size, call, self._wall_clock())
        if self._is_in_the_way(session.container, device, size, beside):
            self.begin_look(session, frame, device, size, call)
            self._tasks.start(self._look_and_ask(pending))
        else:
            self._ask(pending)

    def _is_in_the_way(self, container: str, device: str, size: int, beside: int) -> bool:
        """Say whether an allocation is above the limit with what is there beside the processes' use, and not without.

        Without headroom, which is taken back for it.
        """
        account = self._driver.machine.account(container, device) if beside else None
        if account is None:
            return False
        wanted = self._registry.used(container, device) + size
        return wanted <= account.limit < wanted + beside

    def _beside(self, container: str, device: str) -> int:
        """Return what a container has of a device for certain beside what its processes use, as of the last look."""
        return self._driver.machine.charged(container, device) + self._ended.kept.certain(container, device)

    async def _look_and_ask(self, pending: PendingAllocation) -> None:
        """Ask for memory when it was looked whether what is in the way is there still; refuse what is beside that."""
        container = pending.session.container
        await self._look_twice(container, pending.device, pending.size)
        if pending.session.number in self._registry.by_number:  # else its share may be closed, and be made anew
            self._shares.of(container).call_soon(lambda: self._ask_or_refuse(pending))
        else:
            self.end_look(pending.session, pending.frame)

    def _ask_or_refuse(self, pending: PendingAllocation) -> None:
        session, frame, device, size = pending.session, pending.frame, pending.device, pending.size
        is_withdrawn = self.end_look(session, frame)
        if session.number not in self._registry.by_number:
            return
        charged = self._driver.machine.charged(session.container, device)
        kept = self._ended.kept.certain(session.container, device)
        is_refused = not is_withdrawn and self._is_in_the_way(session.container, device, size + charged, kept)
        if is_refused:
            self.reject_as_limit(session, frame, device, size, pending.call)
        if is_refused or is_withdrawn:
            self._registry.requests.done(session, Kind.ALLOCATION)
        else:
            self._ask(pending, is_looked_at=True)

    def look(self, request: int) -> None:
        """Look at what is in the way of an allocation that waits, and tell the machine when it was looked."""
        self._tasks.start(self._look_and_tell(request, self._registry.pending[request]))

    async def _look_and_tell(self, request: int, pending: PendingAllocation) -> None:
        await self._look_twice(pending.session.container, pending.device, pending.size)
        number = pending.session.number  # the machine knows whether it waits still
        event = e.AllocationLookedAt(number, request)
        if number in self._registry.by_number:
            self._shares.of(pending.session.container).call_soon(lambda: self._driver.dispatch(event))

    def hold(self, pending: PendingAllocation, size: int, send: Callable[[], None]) -> bool:
        """Hold the answer of an allocation back, if what may be kept is in its way: it waited while a process ended.

        Its bytes are leased already. When it was looked, it is sent, or the allocation is rejected.
        """
        container, device = pending.session.container, pending.device
        charged = self._driver.machine.charged(container, device)
        if not self._is_in_the_way(container, device, charged, self._ended.kept.most(container, device)):
            return False
        self.begin_look(pending.session, pending.frame, device, size, pending.call)
        self._tasks.start(self._look_and_answer(pending, size, send))
        return True

    async def _look_and_answer(self, pending: PendingAllocation, size: int, send: Callable[[], None]) -> None:
        session, frame, device = pending.session, pending.frame, pending.device
        await self._look_twice(session.container, device, 0)
        is_withdrawn = self.end_look(session, frame)
        if session.number not in self._registry.by_number:
            return
        is_refused = self._is_in_the_way(session.container, device, 0, self._beside(session.container, device))
        if not (is_refused or is_withdrawn):
            send()
            return
        self._driver.dispatch(e.AllocationReturned(session.number, device, size))
        if not is_withdrawn:
            self.reject_as_limit(session, frame, device, size, pending.call)
        self._registry.requests.done(session, Kind.ALLOCATION)
        self.ending.send(Place(session.container, device))

    async def _look_twice(self, container: str, device: str, size: int) -> None:
        """Look whether what is in the way of so many bytes more is there, and once more if it is."""
        try:
            async with asyncio.timeout(_LONGEST):
                for pause in _PAUSES:
                    await asyncio.sleep(pause)
                    await self._look(container, device)
                    if not self._is_in_the_way(container, device, size, self._beside(container, device)):
                        break
        except Exception:  # the process waits for an answer, with no time limit
            log.exception("what %s has beside its processes cannot be looked at", container)

    async def _look(self, container: str, device: str) -> None:
        """Look at all that a container has of a device beside what its processes use."""
        if self.outliving.left_on(container, device):
            await self.outliving.look(container)
        if self._driver.machine.charged(container, device) > self.outliving.left_on(container, device):
            await self.recount(device)
        await self._ended.kept.look(container, device)

    def tell_what_may_be_kept(self) -> None:
        """Tell the machine what may be kept and is not charged yet, after each audit."""
        self._ended.kept.tell_again()

    def begin_look(self, session: Session, frame: int, device: str, size: int, call: str) -> None:
        """Note an allocation for which something is looked at before the machine is asked; `end_look` must follow."""
        reject = partial(self._reject, session, frame, device, size, call, RejectReason.INTERRUPTED)
        self._looked_at[session.number, frame] = reject

    def end_look(self, session: Session, frame: int) -> bool:
        """Forget it; say whether it was withdrawn meanwhile, and so has its answer."""
        key = session.number, frame
        return key in self._looked_at and self._looked_at.pop(key) is None  # not in: the frame was sent twice

    def _ask(self, pending: PendingAllocation, *, is_looked_at: bool = False) -> None:
        number, request = pending.session.number, self._driver.next_number()
        self._registry.pending[request] = pending
        asked = e.AllocationRequested(
            number, request, pending.device, pending.size, pending.call in _CONTEXT_CALLS, is_looked_at
        )
        self._driver.dispatch(asked)

    def withdraw(self, session: Session, frame: int) -> None:
        """Reject the allocation that a frame of the session asked for, if it waits, or its answer does."""
        if (reject := self._looked_at.get((session.number, frame))) is not None:
            self._looked_at[session.number, frame] = None
            reject()
            return
        for request, pending in self._registry.pending.items():
            if pending.session is session and pending.frame == frame:
                self._driver.dispatch(e.AllocationWithdrawn(session.number, request))
                return
        ending = self._ended.ending
        if (kept := ending.withdraw(session.container, (session.number, frame))) is not None:
            device, size = kept
            self._driver.dispatch(e.AllocationReturned(session.number, device, size))
            self._reject(session, frame, device, size, "", RejectReason.INTERRUPTED)
            self._registry.requests.done(session, Kind.ALLOCATION)
            ending.send(Place(session.container, device))

    def reject_as_driver(self, session: Session, frame: int, device: str, size: int, call: str) -> None:
        """Reject an allocation that the driver refused: waiting would not help. The machine is not involved."""
        self._reject(session, frame, device, size, call, RejectReason.DRIVER)

    def reject_as_limit(self, session: Session, frame: int, device: str, size: int, call: str) -> None:
        """Reject more memory than its container may have beside what the machine does not know of.

        That is memory that cannot leave the device, or that its ended processes left to their children just now.
        """
        self._reject(session, frame, device, size, call, RejectReason.LIMIT)

    def reject_as_interrupted(self, session: Session, frame: int, device: str, size: int, call: str) -> None:
        """Reject an allocation that was withdrawn before it began. The machine is not involved."""
        self._reject(session, frame, device, size, call, RejectReason.INTERRUPTED)

    def _reject(self, session: Session, frame: int, device: str, size: int, call: str, reason: RejectReason) -> None:
        account = self._driver.machine.account(session.container, device)
        limit = account.limit if account is not None else 0
        used = self._registry.counted(session.container, device) + self._ended.kept.certain(session.container, device)
        session.connection.send(Rejected(Reason[reason.name], limit, used), frame)
        fields = {"uuid": device, "size": size, "pid": session.pid, "program": session.program, "call": call or None}
        self._history.add(EventKind.REJECTED, session.container, session.cause, reason=reason, **fields)

    def free(self, session: Session, device: str) -> None:
        """Note that a process freed memory; several frees that wait for their container's turn are one event."""
        number = session.number
        self._shares.of(session.container).call_soon(lambda: self._dispatch_freed(number, device), (number, device))

    def _dispatch_freed(self, number: int, device: str) -> None:
        if number in self._registry.by_number:
            self._driver.dispatch(e.MemoryFreed(number, device))

    def end(self, session: Session) -> None:
        """End the session of a process that has ended."""
        if session.number in self._registry.by_number:
            self._driver.dispatch_deferred(lambda: self._end(session))

    def _end(self, session: Session) -> e.SessionEnded:
        for uuid in session.rows:
            self._registry.note_peak(session.container, uuid)
        self._registry.remove(session)
        self._registry.publish_end(session.container)
        if session.started:
            self._table.drop(PreviousSession(session.pid, session.started, session.container, session.program))
        headroom = session.take_all_headroom()
        leases = {uuid: self._registry.lease(session, uuid) for uuid in session.rows}
        used = {uuid: lease - headroom[uuid] for uuid, lease in leases.items() if lease > headroom[uuid]}
        kept = self.outliving.leave(session, used)
        if used:
            out = {uuid: self._driver.machine.on_host(session.number, uuid)[0] for uuid in used}
            self._ended.watch(session, used, {uuid: kept.get(uuid, 0) + size for uuid, size in out.items()})
            self._settling[session.number] = session.container, tuple(used)
        elif session.process is not None:
            os.close(session.process)
        return e.SessionEnded(session.number, headroom, kept)

    def settle(self, number: int) -> None:
        """Note that the driver has freed what the process of an ended session had; look whether a child keeps it."""
        self._driver.dispatch(e.SettlingEnded(number))
        container, devices = self._settling.pop(number, ("", ()))
        for device in devices:
            if (place := Place(container, device)) not in self._looking:
                self._tasks.start(self._look_at_kept(place))
            self._looking[place] = True

    async def _look_at_kept(self, place: Place) -> None:
        try:
            while self._looking.get(place):
                self._looking[place] = False
                await self._ended.kept.look(*place)
        finally:
            del self._looking[place]

    def is_leaving(self, container: str) -> bool:
        """Say whether a container may have another place in a moment, when it is known what ended processes left."""
        kept = self._ended.kept
        is_known = any(kept.certain(container, device) for device in self._driver.machine.accounts(container))
        return not is_known and self._driver.machine.is_leaving(container)


async def _count_nothing(_device: str) -> None:
    pass
