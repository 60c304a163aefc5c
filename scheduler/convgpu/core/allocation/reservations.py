"""Reservations of the card, where more of a device is promised than it has.

What cannot leave has to fit beside the largest elastic container, so that each of those can always be made to run: the
whole limits of rigid containers, whole devices of unified ones, the fixed shares of elastic ones, and the *run slot*,
the largest limit of an elastic container less its own fixed share. A container reserves when it is granted memory
first, on all its devices at once (docs/decisions/0048). Where a unified container is, nobody else is (0081).

The pool comes when containers hold memory already that reserved nothing. It is not granted before what cannot leave
fits: two rigid containers that fit one after the other could each be granted of it what has no room beside the other.
"""

from bisect import bisect_left, insort

from convgpu.core.errors import InvariantBrokenError
from convgpu.core.state import State


class CardReservations:
    """Decides whether a container that holds nothing may begin to, or a limit be raised."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._ledger = state.ledger
        self._elastic = state.residency.containers
        self._promise = state.residency.promise
        # What those that hold memory reserve, by container and device: bytes, and those that it needs in the run slot.
        self._counted: dict[str, dict[str, tuple[int, int]]] = {}
        self._reserved = dict.fromkeys(state.ledger.capacity, 0)  # by device, the sums of the former
        self._slots: dict[str, list[int]] = {device: [] for device in state.ledger.capacity}  # the latter, in order

    def allow(self, container: str) -> bool:
        """Return whether what cannot leave of a container has room on its cards, for as long as it runs."""
        if container in self._ledger.holders:
            return True
        accounts = self._ledger.accounts[container]
        return all(self._fits(container, device, account.limit) for device, account in accounts.items())

    def allow_raise(self, container: str, device: str, limit: int) -> bool:
        """Return whether a limit may be raised."""
        return self._fits(container, device, limit)

    def allow_fixed(self, container: str, device: str, fixed: int) -> bool:
        """Return whether so many bytes of a container may be of a kind that cannot leave."""
        account = self._ledger.accounts.get(container, {}).get(device)
        return account is not None and fixed <= account.limit and self._fits(container, device, account.limit, fixed)

    def keep_promises(self) -> None:
        """Grant of the pools from now on where what cannot leave fits on the card.

        During recovery at once: what comes back may have been granted of them.
        """
        for device, promise in self._promise.items():
            if promise > self._ledger.pool[device] and (self._state.recovering or self._holds_what_stays(device)):
                self._ledger.change_pool(device, promise)

    def end_recovery(self) -> None:
        """Keep a pool back again of which nothing was granted, where what cannot leave does not fit on the card."""
        for device, pool in list(self._ledger.pool.items()):
            granted = self._ledger.usable[device] - self._ledger.free[device]
            if pool and granted <= self._state.card(device) and not self._holds_what_stays(device):
                self._ledger.change_pool(device, 0)

    def _holds_what_stays(self, device: str) -> bool:
        self._count_changed()
        return self._reserved[device] <= self._state.card(device)

    def _fits(self, container: str, device: str, limit: int, fixed: int | None = None) -> bool:
        """Return whether all reservations of a device fit if this container had one for `limit` bytes."""
        if not self._promise[device] and not self._has_unified(container, device):
            return True
        capacity = self._state.card(device)
        self._count_changed()
        reserved, slot = self._reservation(container, device, limit, fixed)
        reserved += self._reserved[device]
        for name in self._ledger.unified:
            if name != container and name in self._ledger.holders and device in self._ledger.accounts[name]:
                reserved += capacity
        largest = self._slots[device][-2:]  # the one before the largest counts where that is its own
        own = self._counted.get(container, {}).get(device)
        if own is not None:
            reserved -= own[0]
            largest = largest[:-1] if own[1] == largest[-1] else largest
        return reserved + max(slot, *largest[-1:], 0) <= capacity

    def _count_changed(self) -> None:
        """Count anew what containers reserve that began or ceased to hold memory, or whose limits or shares changed."""
        changed = self._state.unreserved
        for name in {**changed, **dict.fromkeys(name for name, _ in self._ledger.changed_limits)}:
            for device, (reserved, slot) in self._counted.pop(name, {}).items():
                self._reserved[device] -= reserved
                del self._slots[device][bisect_left(self._slots[device], slot)]
            if name in self._ledger.holders and name not in self._ledger.unified:
                self._counted[name] = {
                    device: self._reservation(name, device, account.limit)
                    for device, account in self._ledger.accounts[name].items()
                }
                for device, (reserved, slot) in self._counted[name].items():
                    self._reserved[device] += reserved
                    insort(self._slots[device], slot)
        changed.clear()

    def check(self) -> None:
        """Compare what is counted with what is so.

        Raises:
            InvariantBrokenError: it differs.
        """
        self._count_changed()
        accounts = self._ledger.accounts
        names = [name for name in self._ledger.holders if name not in self._ledger.unified]
        expected = {n: {d: self._reservation(n, d, a.limit) for d, a in accounts[n].items()} for n in names}
        if self._counted != expected:
            raise InvariantBrokenError(f"the card's reservations are {expected}, counted were {self._counted}")

    def _has_unified(self, container: str, device: str) -> bool:
        """Return whether this container has the device alone, or one that is there."""
        unified = (name for name in self._ledger.unified if name == container or name in self._ledger.holders)
        return any(device in self._ledger.accounts[name] for name in unified)

    def _reservation(self, container: str, device: str, limit: int, fixed: int | None = None) -> tuple[int, int]:
        """Return the bytes that a container reserves, and those that it needs in the run slot."""
        if container in self._ledger.unified:
            return self._state.card(device), 0
        residence = self._elastic.get(container)
        if residence is None:
            return limit, 0
        share = residence.fixed.get(device, 0) if fixed is None else fixed
        return min(share, limit), max(limit - share, 0)
