"""Reservations of the card, where more of a device is promised than it has.

What cannot leave has to fit beside the largest elastic container, so that each of those can always be made to run: the
whole limits of rigid containers, whole devices of unified ones, the fixed shares of elastic ones, and the *run slot*,
the largest limit of an elastic container less its own fixed share. A container reserves when it is granted memory
first, on all its devices at once (docs/decisions/0048). Where a unified container is, nobody else is (0081).
"""

from convgpu.core.state import State


class CardReservations:
    """Decides whether a container that holds nothing may begin to, or a limit be raised."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._ledger = state.ledger
        self._elastic = state.residency.containers

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

    def _fits(self, container: str, device: str, limit: int, fixed: int | None = None) -> bool:
        """Return whether all reservations of a device fit if this container had one for `limit` bytes."""
        if not self._ledger.pool[device] and not self._has_unified(container, device):
            return True
        capacity = self._ledger.usable[device] - self._ledger.pool[device] - self._ledger.beyond[device]
        reserved, slot = self._reservation(container, device, limit, fixed)
        for name in self._ledger.holders:
            account = self._ledger.accounts[name].get(device)
            if account is not None and name != container:
                size, need = self._reservation(name, device, account.limit)
                reserved += size
                slot = max(slot, need)
        return reserved + slot <= capacity

    def _has_unified(self, container: str, device: str) -> bool:
        """Return whether this container has the device alone, or one that is there."""
        unified = (name for name in self._ledger.unified if name == container or name in self._ledger.holders)
        return any(device in self._ledger.accounts[name] for name in unified)

    def _reservation(self, container: str, device: str, limit: int, fixed: int | None = None) -> tuple[int, int]:
        """Return the bytes that a container reserves, and those that it needs in the run slot."""
        if container in self._ledger.unified:
            return self._ledger.usable[device] - self._ledger.pool[device] - self._ledger.beyond[device], 0
        residence = self._elastic.get(container)
        if residence is None:
            return limit, 0
        share = residence.fixed.get(device, 0) if fixed is None else fixed
        return min(share, limit), max(limit - share, 0)
