"""On which devices allocations that wait have to be tried again: only where something has changed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from convgpu.core.allocation.admission import required
from convgpu.core.allocation.fairness import MayPass, eligible, is_eligible
from convgpu.core.allocation.hold_back import HoldBack
from convgpu.core.allocation.turns import is_overdue
from convgpu.core.memory.queue import PendingAllocation
from convgpu.core.state import State
from convgpu.policies.memory.base import WaitingAllocation


class Retries:
    """Remembers that all who wait were tried in vain, and where that may be different now.

    It may be different on devices on which memory, a limit or a rule has changed or an allocation has ended to wait,
    and on those that containers with several devices connect with them: neither safety, nor turns, nor backfill depend
    on others. Time alone serves nobody: it makes allocations overdue, in the order of their turns, and each holds more
    of the others back. Nor does an allocation that begins to wait let others be served, unless it is overdue at once:
    then others may be held back behind it in place of one that holds back more. Gangs wait for each other on any
    devices, and where memory can leave, or a container has a device alone, room is reserved: there all are tried.

    A grant takes memory, so nearly all whom it leaves waiting had to be among those tried with it (`candidates`).

    Args:
        state: of the machine.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._is_concluded = False  # all who wait were tried in vain, where no exception applies
        self._round: _Round | None = None  # the last, if one was chosen in it and this event is handled still

    @property
    def are_due(self) -> bool:
        """Whether anything has changed since then: if not, nobody has to be tried, nor memory to be taken back."""
        state, ledger = self._state, self._state.ledger
        return not self._is_concluded or bool(
            ledger.changes.devices
            or state.arrived
            or ledger.changed_containers
            or ledger.targets
            or self._are_all_concerned
        )

    @property
    def _are_all_concerned(self) -> bool:
        return bool(self._state.gangs) or self._state.residency.is_active or bool(self._state.ledger.unified)

    def devices(self) -> Sequence[str]:
        """Return the devices on which something that waits may be served, in the order of the host."""
        ledger = self._state.ledger
        if self._are_all_concerned:
            return list(ledger.capacity)
        touched = ledger.changes.devices | {pending.device: None for pending in self._arrived()}
        if not touched:
            return ()
        found = frozenset[str]().union(*(ledger.groups.connected(device) for device in touched))
        return [device for device in ledger.capacity if device in found]

    def _arrived(self) -> list[PendingAllocation]:
        return [pending for pending in self._state.arrived.values() if self._may_serve(pending)]

    def _may_serve(self, pending: PendingAllocation) -> bool:
        """Return whether an allocation that has just begun to wait fits, or lets others be served."""
        return self._is_overdue_at_once(pending) or self._fits(pending)

    def _is_overdue_at_once(self, pending: PendingAllocation) -> bool:
        return is_overdue(self._state, pending.view, pending.view.since)

    def _fits(self, pending: PendingAllocation) -> bool:
        free = self._state.ledger.free
        return all(size <= free[device] for device, size in required(self._state, pending.view).items())

    def candidates(self, devices: Sequence[str], held_back: HoldBack, may_pass: MayPass) -> list[WaitingAllocation]:
        """Return those that may be served of all that wait for these devices.

        After a grant, where nothing was released, and nobody else is held back, these are: those tried with the one
        that got it, all on its devices (backfill may prove more there), and what else its container waits for.
        Where nothing has changed but allocations have begun to wait, these alone.

        Args:
            devices: as `devices` says.
            held_back: those that are held back now.
            may_pass: as `eligible` takes it.
        """
        state, changes = self._state, self._state.ledger.changes
        arrived = self._arrived()
        if self._are_all_concerned or any(self._is_overdue_at_once(pending) for pending in arrived):
            return eligible(state, devices, held_back, may_pass)
        if self._round is not None and self._round.is_narrow(held_back, changes.releases):
            left = self._round.left(state, changes.latest)
            return left + eligible(state, list(changes.latest), held_back, may_pass)
        if changes.devices:
            return eligible(state, devices, held_back, may_pass)
        return [pending.view for pending in arrived if is_eligible(state, pending, held_back, may_pass)]

    def begin(self) -> None:
        """Begin to handle an event."""
        self._round = None

    def choose(self, held_back: HoldBack, tried: Sequence[WaitingAllocation], chosen: WaitingAllocation) -> None:
        """Remember with whom one was tried that will be served now."""
        changes = self._state.ledger.changes
        changes.latest.clear()
        self._round = _Round(held_back, tried, chosen, changes.releases)

    def conclude(self) -> None:
        """Remember that nothing that waits now can be served."""
        self._state.ledger.changes.clear()
        self._state.arrived.clear()
        self._is_concluded = not self._are_all_concerned
        self._round = None


@dataclass(frozen=True, slots=True)
class _Round:
    """Allocations that were tried together, and one of them that was chosen.

    Attributes:
        held_back: those that were held back.
        tried: all of them.
        chosen: that one.
        releases: as in `Changes`, when it was chosen.
    """

    held_back: HoldBack
    tried: Sequence[WaitingAllocation]
    chosen: WaitingAllocation
    releases: int

    def is_narrow(self, held_back: HoldBack, releases: int) -> bool:
        """Return whether since then nothing has changed but that the chosen one waits no more, and was granted memory.

        What an overdue allocation of its container claims has changed as well.
        """
        overdue = (*held_back.requesting.values(), *held_back.limited.values())
        is_only_change = releases == self.releases + 1 and held_back == self.held_back
        return is_only_change and all(w.container != self.chosen.container for w in overdue)

    def left(self, state: State, devices: Collection[str]) -> list[WaitingAllocation]:
        """Return those that wait for other devices still, and what else the container of the chosen one waits for."""
        queue, free = state.queue, state.ledger.free
        left = {w.sequence: w for w in self.tried if w.sequence in queue and w.device not in devices}
        for pending in state.containers[self.chosen.container].pending.values():
            fits = pending.size <= free[pending.device] or pending.sequence in state.reserved
            if fits and pending.device not in devices and pending.device not in state.drained:
                left[pending.sequence] = pending.view
        return list(left.values())
