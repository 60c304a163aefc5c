"""The one place where limits, grants and leases are kept.

Of a device's capacity a part is *granted* to containers, and of a container's grant a part is *leased* to its
processes (sessions), which use it without asking. What a process really uses is between zero and its lease, so
the ledger's figures are always on the safe side: usage <= leased <= grant <= limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from convgpu.core.errors import InvariantBrokenError
from convgpu.core.safety import Claim, is_safe


@dataclass(slots=True)
class Account:
    """One container on one device; all figures in bytes."""

    limit: int
    grant: int = 0
    leased: int = 0
    leases: dict[int, int] = field(default_factory=dict)

    @property
    def unleased(self) -> int:
        """Granted, and not in the hands of a process."""
        return self.grant - self.leased

    @property
    def missing(self) -> int:
        """What the container may still be granted."""
        return self.limit - self.grant

    def lease(self, session: int, size: int) -> None:
        """Hand `size` unleased bytes to a session; a negative size takes leased ones back."""
        self.leases[session] = self.leases.get(session, 0) + size
        self.leased += size

    def end_lease(self, session: int) -> int:
        """Forget a session and return what was leased to it."""
        size = self.leases.pop(session, 0)
        self.leased -= size
        return size


class Ledger:
    """Accounts of all containers on all devices.

    Args:
        capacity: bytes per device UUID that may be handed out.
    """

    def __init__(self, capacity: Mapping[str, int]) -> None:
        self.capacity = dict(capacity)
        self.accounts: dict[str, dict[str, Account]] = {}
        self._free = dict(capacity)
        # Containers with a grant: few, however many wait, because each holds memory of a device.
        self._holders: dict[str, None] = {}

    @property
    def holders(self) -> list[str]:
        """Names of the containers that were granted anything."""
        return list(self._holders)

    @property
    def free(self) -> Mapping[str, int]:
        """Bytes per device that are granted to nobody. Negative only while adopted usage overcommits it."""
        return self._free

    def open(self, container: str, limits: Mapping[str, int]) -> None:
        """Open the accounts of a container. No limit may be above its device's capacity."""
        for device, limit in limits.items():
            if not 0 < limit <= self.capacity[device]:
                raise InvariantBrokenError(f"limit {limit} of {container} is not within {device}'s capacity")
        self.accounts[container] = {device: Account(limit) for device, limit in limits.items()}

    def close(self, container: str) -> None:
        """Forget a container, and with it its grants."""
        for device, account in self.accounts.pop(container, {}).items():
            self._free[device] += account.grant
        self._holders.pop(container, None)

    def grant(self, container: str, device: str, size: int) -> None:
        """Set `size` more bytes aside for a container; a negative size takes some back."""
        accounts = self.accounts[container]
        accounts[device].grant += size
        self._free[device] -= size
        if size > 0:
            self._holders[container] = None
        elif not any(account.grant for account in accounts.values()):
            self._holders.pop(container, None)

    def revoke_unleased(self, container: str) -> None:
        """Take back what of its grants is in no process's hands. Never makes a safe state unsafe."""
        for device, account in self.accounts[container].items():
            if account.unleased:
                self.grant(container, device, -account.unleased)

    def claim(self, container: str) -> Claim:
        """Return what the container holds and may still ask for."""
        accounts = self.accounts[container]
        return Claim(
            {device: account.grant for device, account in accounts.items()},
            {device: account.missing for device, account in accounts.items()},
        )

    def can_end(self, container: str) -> bool:
        """Could the container get its whole limits out of what is free right now?"""
        return self.claim(container).fits(self._free)

    def is_safe_to_grant(self, container: str, device: str, size: int) -> bool:
        """Would the state be safe after granting `size` more bytes (invariant 2)? It is safe before."""
        if size > self._free[device]:
            return False
        if self.can_end(container):
            return True  # it could end first, and what it gives back is at least what it was given
        self.grant(container, device, size)
        safe = self.is_safe()
        self.grant(container, device, -size)
        return safe

    def is_safe(self) -> bool:
        """Is there an order in which every container can get its whole limit and end?"""
        return is_safe(self._free, (self.claim(container) for container in self._holders))

    def check_invariants(self) -> None:
        """Recompute everything from the leases up.

        Raises:
            InvariantBrokenError: an invariant of design section 3 does not hold.
        """
        free = dict(self.capacity)
        holders = {name for name, accounts in self.accounts.items() if any(a.grant for a in accounts.values())}
        if holders != self._holders.keys():
            raise InvariantBrokenError(f"holders: {holders}, in the book {self._holders}")
        for container, accounts in self.accounts.items():
            for device, account in accounts.items():
                free[device] -= account.grant
                leases = account.leases.values()
                if min(leases, default=0) < 0 or sum(leases) != account.leased:
                    raise InvariantBrokenError(f"leases of {container} on {device}: {account}")
                if not 0 <= account.leased <= account.grant <= account.limit:
                    raise InvariantBrokenError(f"not 0 <= leased <= grant <= limit: {container} on {device}: {account}")
        if free != self._free or min(free.values(), default=0) < 0:
            raise InvariantBrokenError(f"grants and capacity: {free} free, {self._free} in the book")
        if not self.is_safe():
            raise InvariantBrokenError(f"the state is not safe: {self.accounts}")
