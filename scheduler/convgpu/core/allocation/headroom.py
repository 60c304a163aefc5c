"""Headroom: the parts of leases that processes do not use, which are in their shared pages and not in the ledger.

A process takes from its headroom without asking, so the scheduler knows only an upper bound of its usage, the lease.
TakeHeadroom takes slots back and yields exact figures. A process whose slot is armed (NotifyOnFree) reports what it
frees. Arming before taking pairs with the order of the hook, which gives back first and reads `armed` afterwards
(docs/model): so no freed memory can stay unseen in a slot (invariant 3).
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from convgpu.core import events as e
from convgpu.core.events import SlotKey
from convgpu.core.state import State
from convgpu.core.step import StepBuilder

_FIRST_BATCH: Final = 16  # slots that are taken first because headroom is likely; each next batch is twice as large


class Headroom:
    """Decides which slots are taken back and which are armed.

    Args:
        state: of the machine.
        step: receives what has to be done.
    """

    def __init__(self, state: State, step: StepBuilder) -> None:
        self._state = state
        self._ledger = state.ledger
        self._step = step
        self._are_all_armed = False  # every slot with a lease is armed, because an allocation waits
        self._batch = _FIRST_BATCH

    # -- taking ------------------------------------------------------------------------------------------

    def take_nearest(self, container: str, device: str) -> None:
        """Take what a container's own processes hold, and a first batch of the slots where headroom is likely.

        While all slots are armed, the others hold nothing but what was freed and has just been reported.
        """
        self._batch = _FIRST_BATCH
        self._take(self._slots([container]) + self._next_batch(device))

    def take_likely(self) -> bool:
        """Take a next batch of the slots where headroom is likely; return whether any are left."""
        for device in self._state.leased_ahead:
            if self._state.is_needed(device) and (slots := self._next_batch(device)):
                self._take(slots)
                return True
        return False

    def take_all_armed(self) -> bool:
        """Arm all slots and take them back, once; return whether that was still to be done.

        Memory may be freed between an earlier batch and the arming, so even slots that were just taken are taken.
        """
        if self._are_all_armed:
            return False
        self._are_all_armed = True
        slots = self._slots(self._ledger.holders)
        self._arm(slots)
        self._take(slots)
        return True

    def take_stopped(self) -> bool:
        """Take what processes lease and do not use whose containers were just stopped; return whether there was any."""
        inexact = [name for name in self._state.residency.inexact if name in self._ledger.accounts]
        self._state.residency.inexact.clear()
        if self._are_all_armed or not inexact:
            return False
        self.arm(inexact)
        self.take_from(inexact)
        return True

    def take_from(self, containers: Iterable[str]) -> None:
        """Take all that processes of these containers lease and do not use."""
        self._take(self._slots(containers))

    def take_freed(self, event: e.MemoryFreed) -> None:
        """Take what a process has freed; its report disarmed the slot, so that is armed again first."""
        slot = (event.session, event.device)
        if slot in self._state.armed:
            self._step.add(e.NotifyOnFree(*slot, armed=True))
            self._take([slot])

    def record_taken(self, event: e.HeadroomTaken) -> None:
        """Make the bytes that were taken idle."""
        for slot, size in event.taken:
            self.make_idle(slot, size)

    def make_idle(self, slot: SlotKey, size: int) -> None:
        """Make bytes of a lease idle. A slot can lie; it never counts for more than was leased."""
        session, device = slot
        name = self._state.sessions[session]
        leased = self._ledger.accounts[name][device].leases.get(session, 0)
        if size and leased:
            self._ledger.lease(name, device, session, -min(size, leased))

    def add(self, session: int, device: str, size: int) -> None:
        """Give a process headroom: lease to it `size` bytes ahead of its next allocation."""
        self._ledger.lease(self._state.sessions[session], device, session, size)
        self._step.add(e.Lease(session, device, size))
        self._state.leased_ahead[device].pop(session, None)
        self._state.leased_ahead[device][session] = None

    def _take(self, slots: Iterable[SlotKey]) -> None:
        distinct = dict.fromkeys(slots)  # of a slot taken twice, the second answer would hide the first
        for session, device in distinct:
            self._state.leased_ahead[device].pop(session, None)
        self._step.need(e.TakeHeadroom(tuple(distinct)))

    def _next_batch(self, device: str) -> list[SlotKey]:
        if self._are_all_armed:
            return []
        slots = [(session, device) for session in islice(self._state.leased_ahead[device], self._batch)]
        self._batch *= 2
        return slots

    def _slots(self, containers: Iterable[str]) -> list[SlotKey]:
        return [
            (session, device)
            for name in containers
            for device, account in self._ledger.accounts[name].items()
            if account.leased
            for session, lease in account.leases.items()
            if lease
        ]

    # -- arming ------------------------------------------------------------------------------------------

    def arm(self, containers: Iterable[str]) -> None:
        """Have processes of these containers report what they free, where an allocation or a lower limit waits."""
        self._arm(slot for slot in self._slots(containers) if self._should_be_armed(slot))

    def _arm(self, slots: Iterable[SlotKey]) -> None:
        armed = self._state.armed
        for session, device in slots:
            if (session, device) not in armed:
                armed[session, device] = None
                self._step.add(e.NotifyOnFree(session, device, armed=True))

    def disarm(self) -> None:
        """Have no reports of frees any more, except for lower limits: no allocation waits."""
        self._are_all_armed = False
        for slot in list(self._state.armed):
            if not self._should_be_armed(slot):
                del self._state.armed[slot]
                self._step.add(e.NotifyOnFree(*slot, armed=False))

    def disarm_all(self) -> None:
        """Let headroom be given ahead again, if nobody waits any more: it is taken back when the next one does."""
        if self._are_all_armed and not self._state.is_scarce:
            self.disarm()

    def _should_be_armed(self, slot: SlotKey) -> bool:
        session, device = slot
        name = self._state.sessions[session]
        account = self._ledger.accounts[name][device]
        is_lowered = account.target is not None and account.target < account.limit
        waits = self._waits_for_own(name, device)
        return self._are_all_armed or is_lowered or waits or self._state.residency.is_away(name)

    def _waits_for_own(self, name: str, device: str) -> bool:
        """Return whether what a container waits for can come of its own grant only: its device is drained."""
        if device not in self._state.drained:
            return False
        return any(pending.device == device for pending in self._state.containers[name].pending.values())
