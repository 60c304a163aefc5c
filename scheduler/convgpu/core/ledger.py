"""The one place where limits, grants and leases are kept.

Of a device's capacity a part is *granted* to containers, and of a container's grant a part is *leased* to its
processes (sessions), which use it without asking. What a process really uses is between zero and its lease, so
the ledger's figures are always on the safe side: usage <= leased <= grant <= limit.

Facts can be stronger than rules. Memory that programs outside hold lowers the capacity; memory that a container holds
and no session leases is *charged* to it: taken from the device as if it were outside, and from the container's limit.
What a process of an earlier scheduler holds is granted whatever is free. So a device can be *overcommitted*, an account
above its limit, and the state not safe, by a *debt*. No decision of the scheduler makes any of the three more, and
all are gone when the facts are.
"""

from collections.abc import KeysView, Mapping
from dataclasses import dataclass, field

from convgpu.core import safety
from convgpu.core.errors import InvariantBrokenError
from convgpu.core.safety import Claim


@dataclass(slots=True)
class Account:
    """One container on one device; all figures in bytes. `target`: a limit that was asked for, not yet in force."""

    limit: int
    grant: int = 0
    leased: int = 0
    charged: int = 0
    target: int | None = None
    leases: dict[int, int] = field(default_factory=dict)

    @property
    def held(self) -> int:
        """In the hands of processes, by lease or without; what counts against the limit."""
        return self.leased + self.charged

    @property
    def idle(self) -> int:
        """Granted, and in nobody's hands."""
        return self.grant - self.leased


class Ledger:
    """Accounts of all containers on all devices.

    Args:
        capacity: bytes per device UUID that may be handed out.
    """

    def __init__(self, capacity: Mapping[str, int]) -> None:
        self.capacity = dict(capacity)
        self.accounts: dict[str, dict[str, Account]] = {}
        self.debt = dict.fromkeys(capacity, 0)
        # Since they were last looked at: containers whose account changed, and accounts whose limit did.
        self.touched: dict[str, None] = {}
        self.changed_limits: dict[tuple[str, str], None] = {}
        self.targets: dict[tuple[str, str], None] = {}  # accounts that have one
        self._most = dict(capacity)  # the highest capacity that each device had
        self._usable = dict(capacity)  # capacity, less what is charged
        self._free = dict(capacity)
        # Containers with a grant: few, however many wait, because each holds memory of a device.
        self._holders: dict[str, None] = {}
        self._claims: dict[str, Claim] = {}  # of the holders, as far as known
        self._in_the_end: dict[str, dict[int, dict[str, int]]] = {device: {} for device in capacity}
        self._ordered: list[Claim] | None = None  # all of them, in the order in which to try them
        self._suspect = False  # a fact was booked since the debt was reckoned

    @property
    def holders(self) -> list[str]:
        """Names of the containers that were granted anything."""
        return list(self._holders)

    @property
    def holding(self) -> KeysView[str]:
        """The same, to look up in."""
        return self._holders.keys()

    @property
    def free(self) -> Mapping[str, int]:
        """Bytes per device that nobody was granted or is charged; negative while it is overcommitted."""
        return self._free

    @property
    def usable(self) -> Mapping[str, int]:
        """Bytes per device that can be granted at all: the capacity, less what is charged."""
        return self._usable

    # -- containers --------------------------------------------------------------------------------------

    def open(self, container: str, limits: Mapping[str, int]) -> None:
        """Open the accounts of a container."""
        self.accounts[container] = {device: Account(limit) for device, limit in limits.items()}

    def close(self, container: str) -> None:
        """Forget a container, and with it its grants."""
        for device, account in self.accounts.pop(container, {}).items():
            self._free[device] += account.grant
            self._change_usable(device, account.charged)
            self.targets.pop((container, device), None)
            self.changed_limits.pop((container, device), None)
        self._holders.pop(container, None)
        self.touched.pop(container, None)
        self._forget_claim(container)

    def ask_limit(self, container: str, device: str, limit: int) -> None:
        """Ask for another limit; `apply_targets` brings it into force when it can be."""
        account = self.accounts[container][device]
        account.target = None if limit == account.limit else limit
        self.changed_limits[container, device] = None
        if account.target is None:
            self.targets.pop((container, device), None)
        else:
            self.targets[container, device] = None

    # -- facts -------------------------------------------------------------------------------------------

    def change_capacity(self, device: str, capacity: int) -> None:
        """Hand out so much of the device from now on; what is granted stays granted."""
        more = capacity - self.capacity[device]
        self.capacity[device] = capacity
        self._most[device] = max(capacity, self._most[device])
        self._change_usable(device, more)

    def charge(self, container: str, device: str, size: int) -> None:
        """Book what a container holds without a lease, even above its limit and if nothing is free."""
        account = self.accounts[container][device]
        more, account.charged = size - account.charged, size
        self._change_usable(device, -more)
        self._adjust(container, device)

    def adopt(self, container: str, device: str, session: int, size: int) -> None:
        """Lease what a session holds already, up to the limit: granted even if nothing is free."""
        account = self.accounts[container][device]
        size = max(min(size, account.limit - account.held), 0)
        self._suspect = True
        self.grant(container, device, max(size - account.idle, 0))
        self.lease(container, device, session, size)

    def _change_usable(self, device: str, more: int) -> None:
        self._usable[device] += more
        self._free[device] += more
        self._claims.clear()
        self._forget_order()
        self._suspect = True

    def _forget_claim(self, container: str) -> None:
        self._claims.pop(container, None)
        self._forget_order()

    def _forget_order(self) -> None:
        if self._ordered is None:  # nothing was found out since
            return
        self._ordered = None
        for known in self._in_the_end.values():
            known.clear()

    # -- grants and leases -------------------------------------------------------------------------------

    def grant(self, container: str, device: str, size: int) -> None:
        """Set `size` more bytes aside for a container; a negative size takes some back."""
        accounts = self.accounts[container]
        accounts[device].grant += size
        self._free[device] -= size
        self._forget_claim(container)
        if size > 0:
            self._holders[container] = None
        elif not any(account.grant for account in accounts.values()):
            self._holders.pop(container, None)

    def lease(self, container: str, device: str, session: int, size: int) -> None:
        """Hand `size` idle bytes to a session; a negative size takes leased ones back."""
        account = self.accounts[container][device]
        account.leases[session] = account.leases.get(session, 0) + size
        account.leased += size
        self._adjust(container, device)

    def end_lease(self, container: str, device: str, session: int) -> int:
        """Forget a session and return what was leased to it."""
        account = self.accounts[container][device]
        size = account.leases.pop(session, 0)
        account.leased -= size
        self._adjust(container, device)
        return size

    def move_lease(self, container: str, device: str, former: int, session: int, held: int) -> None:
        """Let a session go on with what of another's lease it still holds; the rest is idle."""
        account = self.accounts[container][device]
        lease = account.leases.pop(former, 0)
        account.leases[session] = min(held, lease)
        account.leased += account.leases[session] - lease
        self._adjust(container, device)

    def _adjust(self, container: str, device: str) -> None:
        """Take back what is granted above the limit and in nobody's hands any more."""
        account = self.accounts[container][device]
        above = min(account.grant + account.charged - account.limit, account.idle)
        if above > 0:
            self.grant(container, device, -above)
        self.touched[container] = None

    def take_idle(self, container: str, device: str) -> None:
        """Take back what of a grant is in nobody's hands.

        Never makes a safe state unsafe, except where it only covers an overcommit.
        """
        account = self.accounts[container][device]
        if account.idle:
            self._suspect = self._suspect or self._free[device] < 0
            self.grant(container, device, -account.idle)

    # -- what may be granted -----------------------------------------------------------------------------

    def missing(self, container: str, device: str) -> int:
        """What the container may still be granted: up to its limit, and to what can be granted at all."""
        account = self.accounts[container][device]
        return max(min(account.limit - account.charged, self._usable[device]) - account.grant, 0)

    def claim(self, container: str) -> Claim:
        """Return what the container holds and may still ask for."""
        accounts = self.accounts[container]
        missing = ((device, self.missing(container, device)) for device in accounts)
        return Claim(
            tuple((device, account.grant) for device, account in accounts.items() if account.grant),
            tuple((device, size) for device, size in missing if size),
        )

    def can_end(self, container: str) -> bool:
        """Could the container get its whole limits out of what is free right now?"""
        return self.claim(container).fits(self._free)

    def is_safe_to_grant(self, container: str, device: str, size: int) -> bool:
        """May it be granted `size` more bytes: are they free, within its limit, and the state safe with them?"""
        account = self.accounts[container][device]
        if size > self._free[device] or account.grant + account.charged + size > account.limit:
            return False
        account.grant += size
        after = self.claim(container)
        account.grant -= size
        free = self._with_debt()
        free[device] -= size
        if after.fits(free):
            return True
        if container in self._holders:
            return safety.can_end(after, free, self._others(container))
        return self._fits_in_the_end(after, device, size)

    def _fits_in_the_end(self, claim: Claim, device: str, size: int) -> bool:
        """Could a newcomer that was granted `size` bytes end, if need be after all others that can?

        What is free after them is kept until something changes: it is less for a greater size, so that a few answer
        for all that wait.
        """
        known = self._in_the_end[device]
        if any(not claim.fits(free) for less, free in known.items() if less <= size):
            return False
        if not any(claim.fits(free) for more, free in known.items() if more >= size):
            free = self._with_debt()
            free[device] -= size
            safety.end_those_that_can(free, self._claimed())
            known[size] = free
            return claim.fits(free)
        return True

    def is_safe(self) -> bool:
        """Is there an order in which every container can get its whole limit and end, debts apart (invariant 2)?"""
        return safety.is_safe(self._with_debt(), self._claimed())

    def reckon(self) -> None:
        """Find the debt anew: facts may have made it more, memory that came back less."""
        if not self._suspect and not any(self.debt.values()):
            return
        self._suspect = False
        taken = {device: max(most - self._usable[device], 0) for device, most in self._most.items()}
        kept = {device: min(size, taken[device]) for device, size in self.debt.items()}
        debt = safety.debt(self._free, self._claimed(), taken)
        self._forget_order()
        if sum(debt.values()) > sum(kept.values()):
            self.debt = kept
            if self.is_safe():
                return
        self.debt = debt

    def apply_targets(self) -> None:
        """Bring the limits that were asked for into force as far as they can be."""
        for container, device in list(self.targets):
            account = self.accounts[container][device]
            target, limit = account.target or account.limit, account.limit
            if target < limit:
                account.limit = min(limit, max(target, account.held))
            elif self._is_safe_to_raise(container, device, target):
                account.limit = target
            if account.limit == target:
                account.target = None
                del self.targets[container, device]
            if account.limit != limit:
                self.changed_limits[container, device] = None
                self._forget_claim(container)
                self._adjust(container, device)

    def _is_safe_to_raise(self, container: str, device: str, target: int) -> bool:
        if container not in self._holders:
            return True
        if self._free[device] < 0:
            return False  # claims say nothing there: nobody can ask for what is not there, however high the limit
        account, others = self.accounts[container][device], self._others(container)
        limit, account.limit = account.limit, target
        after = self.claim(container)
        account.limit = limit
        return safety.can_end(after, self._with_debt(), others)

    def _claimed(self) -> list[Claim]:
        """Return what the holders claim, in the order in which to try them."""
        if self._ordered is None:
            for container in self._holders.keys() - self._claims.keys():
                self._claims[container] = self.claim(container)
            self._ordered = safety.ordered(self._claims[container] for container in self._holders)
        return self._ordered

    def _others(self, container: str) -> list[Claim]:
        claims = self._claimed()
        own = self._claims.get(container)
        return [claim for claim in claims if claim is not own]

    def _with_debt(self) -> dict[str, int]:
        return {device: size + self.debt[device] for device, size in self._free.items()}

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
                free[device] -= account.grant + account.charged
                leases = account.leases.values()
                if min(leases, default=0) < 0 or sum(leases) != account.leased:
                    raise InvariantBrokenError(f"leases of {container} on {device}: {account}")
                above = max(account.grant + account.charged - account.limit, 0)
                if not 0 <= account.leased <= account.grant or (above and account.idle):
                    raise InvariantBrokenError(f"not 0 <= leased <= grant <= limit: {container} on {device}: {account}")
                if self._free[device] < 0 and account.idle:
                    raise InvariantBrokenError(f"idle grant on an overcommitted device: {container} on {device}")
        if free != self._free:
            raise InvariantBrokenError(f"grants and capacity: {free} free, {self._free} in the book")
        if not self.is_safe():
            raise InvariantBrokenError(f"the state is not safe: {self.accounts}")
