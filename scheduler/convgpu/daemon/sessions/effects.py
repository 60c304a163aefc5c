"""Carries out the effects of the machine: answers to processes, pages, limits in force, history."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from convgpu.core import events as e
from convgpu.core.events import SlotKey
from convgpu.core.machine import Machine
from convgpu.core.placement import Displaced, Placed, Placement
from convgpu.core.residency.events import ResidencyEffect
from convgpu.daemon.gpu.ending import EndingProcesses, Place
from convgpu.daemon.sessions.open_requests import Kind, OpenRequests
from convgpu.daemon.sessions.pause_notices import PauseNotices
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import PendingAllocation
from convgpu.daemon.storage.history import History
from convgpu.daemon.storage.volumes import VolumeTable
from convgpu.protocol.event_kinds import EventKind, RejectReason
from convgpu.protocol.messages import Accepted, Rejected
from convgpu.protocol.wire import Reason

_REASON: Final = {
    RejectReason.LIMIT: Reason.LIMIT,
    RejectReason.DEADLINE: Reason.DEADLINE,
    RejectReason.GANG: Reason.DEADLINE,
    RejectReason.DEVICE: Reason.DEVICE,
    RejectReason.DISPLACED: Reason.DISPLACED,
    RejectReason.INTERRUPTED: Reason.INTERRUPTED,
}


# Says whether the answer of an allocation of so many bytes is held back. Then it is sent later, by what is called for
# that, or the allocation is rejected.
Hold = Callable[[PendingAllocation, int, Callable[[], None]], bool]


@dataclass(frozen=True, slots=True)
class _Answer:
    pending: PendingAllocation
    message: Accepted
    requests: OpenRequests
    hold: Hold

    @property
    def is_gone(self) -> bool:
        return self.pending.session.connection.closed

    @property
    def asked(self) -> tuple[int, int]:
        return self.pending.session.number, self.pending.frame

    def accept(self) -> None:
        if not self.hold(self.pending, self.message.size, self._send):
            self._send()

    def _send(self) -> None:
        self.pending.session.connection.send(self.message, self.pending.frame)
        self.requests.done(self.pending.session, Kind.ALLOCATION)


class EffectPerformer:
    """Performs the effects of the machine on the processes in the registry (machine_driver.Performer).

    Args:
        ending: keeps answers back while what an ending process holds is in their way.

    Attributes:
        move: carries out effects about memory that leaves.
        hold: keeps an answer back while it is looked at what is in its way.
        look: looks at what is in the way of a request, and tells the machine.
        notices: explains long pauses to the processes that wait.
    """

    def __init__(
        self,
        machine: Machine,
        registry: SessionRegistry,
        history: History,
        volumes: VolumeTable,
        notices: PauseNotices,
        ending: EndingProcesses,
    ) -> None:
        self._machine = machine
        self._registry = registry
        self._history = history
        self._volumes = volumes
        self._ending = ending
        self.notices = notices
        self.move: Callable[[ResidencyEffect], None] = _refuse_move
        self.hold: Hold = lambda *_: False
        self.look: Callable[[int], None] = lambda _: None

    def perform(self, effect: e.Effect) -> None:
        """Carry out one effect."""
        match effect:
            case e.Accept(_, request, size, settling):
                pending = self._registry.pending[request]
                answer = _Answer(pending, Accepted(size, settling), self._registry.requests, self.hold)
                self._ending.answer(Place(pending.session.container, pending.device), size, answer)
            case e.Reject(_, request, reason):
                self._reject(self._registry.pending[request], reason)
            case e.LookAt(_, request):
                self.look(request)
            case e.Lease(number, device, size):
                session = self._registry.by_number[number]
                session.page.lease(session.rows.index(device), size)
            case e.NotifyOnFree(number, device, armed):
                session = self._registry.by_number[number]
                session.page.arm(session.rows.index(device), armed=armed)
            case e.LimitInForce(container, device, limit, target):
                self._registry.publish_limits(container)
                self._volumes.set_limit_in_force(container, device, limit, target)
                self._ending.send(Place(container, device))
            case e.HistoryEntry():
                self._record(effect)
            case Placed(container, placement):
                self._place(container, placement)
            case Displaced(container, device, obstacle):
                cause = f"displace:{container}"
                self._history.add(EventKind.DISPLACED, container, cause, uuid=device, reason=obstacle)
            case _:
                self.move(effect)

    def _place(self, container: str, placement: Placement | None) -> None:
        self._volumes.set_placement(container, placement)
        if placement is None:
            return
        limits = {row.device: row.limit for row in placement.compared if row.device in placement.devices}
        self._history.add(
            EventKind.PLACED, container, f"place:{container}", limits=limits, reason=placement.policy or None
        )

    def take_headroom(self, slots: Sequence[SlotKey]) -> tuple[tuple[SlotKey, int], ...]:
        """Empty these headroom slots, and return each with what it held, in bytes."""
        return tuple((slot, self._registry.by_number[slot[0]].take_headroom(slot[1])) for slot in slots)

    def _reject(self, pending: PendingAllocation, reason: RejectReason) -> None:
        container = pending.session.container
        account = self._machine.account(container, pending.device)
        limit, used = account.limit if account else 0, self._registry.counted(container, pending.device)
        pending.session.connection.send(Rejected(_REASON[reason], limit, used), pending.frame)
        self._registry.requests.done(pending.session, Kind.ALLOCATION)

    def _record(self, entry: e.HistoryEntry) -> None:
        """Write the history; the last entry of a request removes it from the pending allocations."""
        pending = self._registry.pending.get(entry.request)
        session = pending.session if pending else self._registry.session_of_record(entry.session)
        waited = None if entry.waited is None else round(entry.waited, 3)
        fields: dict[str, object] = {
            "uuid": entry.device or None,
            "size": entry.size or None,
            "pid": session.pid if session else None,
            "program": session.program if session else None,
            "call": pending.call if pending else None,
            "reason": entry.reason,
            "waited": waited,
        }
        if entry.kind is EventKind.PAUSED and pending:
            fields |= self.notices.begin(entry.request, pending, entry.size)
        self._history.add(entry.kind, entry.container, e.cause_of(entry.session, entry.request), **fields)
        if pending and entry.kind is not EventKind.PAUSED:
            del self._registry.pending[entry.request]
        if entry.kind is EventKind.RETURNED:
            self._ending.send(Place(entry.container, entry.device))


def _refuse_move(effect: ResidencyEffect) -> None:
    raise TypeError(f"no process of this scheduler can be moved: {effect}")
