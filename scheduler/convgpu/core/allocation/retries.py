"""On which devices allocations that wait have to be tried again: only where something has changed."""

from collections.abc import Sequence

from convgpu.core.allocation.admission import required
from convgpu.core.allocation.turns import is_overdue
from convgpu.core.memory.queue import PendingAllocation
from convgpu.core.state import State


class Retries:
    """Remembers that all who wait were tried in vain, and where that may be different now.

    It may be different on devices on which memory, a limit or a rule has changed or an allocation has ended to wait,
    and on those that containers with several devices connect with them: neither safety, nor turns, nor backfill depend
    on others. Time alone serves nobody: it makes allocations overdue, in the order of their turns, and each holds more
    of the others back. Nor does an allocation that begins to wait let others be served, unless it is overdue at once:
    then others may be held back behind it in place of one that holds back more. Gangs wait for each other on any
    devices, and where memory can leave, or a container has a device alone, room is reserved: there all are tried.

    Args:
        state: of the machine.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def devices(self) -> Sequence[str]:
        """Return the devices on which something that waits may be served, in the order of the host."""
        state, ledger = self._state, self._state.ledger
        if state.gangs or state.residency.is_active or ledger.unified:
            return list(ledger.capacity)
        touched = ledger.touched | {p.device: None for p in state.arrived.values() if self._may_serve(p)}
        if not touched:
            return ()
        found = frozenset[str]().union(*(ledger.groups.connected(device) for device in touched))
        return [device for device in ledger.capacity if device in found]

    def _may_serve(self, pending: PendingAllocation) -> bool:
        """Return whether an allocation that has just begun to wait fits, or lets others be served."""
        state = self._state
        if is_overdue(state, pending.view, pending.view.since):
            return True
        free = state.ledger.free
        return all(size <= free[device] for device, size in required(state, pending.view).items())

    def settle(self) -> None:
        """Remember that nothing that waits now can be served."""
        self._state.ledger.touched.clear()
        self._state.arrived.clear()
