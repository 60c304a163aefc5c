"""The one place where limits, grants and leases are kept.

Of a device's capacity a part is *granted* to containers, and of a container's grant a part is *leased* to its
processes (sessions), which use it without asking. What a process really uses is between zero and its lease, so
the ledger's figures are always on the safe side: usage <= leased <= grant <= limit.

Facts can be stronger than rules. Memory that programs outside hold lowers the capacity; memory that a container holds
and no session leases is *charged* to it: taken from the device as if it were outside, and from the container's limit.
What a process of an earlier scheduler holds is granted whatever is free. So a device can be *overcommitted*, an account
above its limit, and the state not safe, by a *safety deficit*. No decision of the scheduler makes any of them more.

So that all are gone when the facts are, what is decided has to be safe in two outlooks: with what devices have now,
and with what they have when everything that was taken from them is back (docs/decisions/0020).
"""

from collections.abc import KeysView, Mapping

from convgpu.core.errors import InvariantBrokenError
from convgpu.core.memory.account import Account
from convgpu.core.memory.safety_check import SafetyCheck
from convgpu.core.memory.snapshot import DeviceView, LedgerSnapshot


class Ledger:
    """Accounts of all containers on all devices.

    Args:
        capacity: bytes per device UUID that may be handed out.
    """

    def __init__(self, capacity: Mapping[str, int]) -> None:
        self.capacity = dict(capacity)
        self.accounts: dict[str, dict[str, Account]] = {}
        # Since they were last looked at: containers whose account changed, and accounts whose limit did.
        self.touched: dict[str, None] = {}
        self.changed_limits: dict[tuple[str, str], None] = {}
        self.targets: dict[tuple[str, str], None] = {}  # accounts that have one
        # Containers with a grant: few, however many wait, because each holds memory of a device.
        self._holders: dict[str, None] = {}
        self._now = SafetyCheck(self.accounts, self._holders, capacity, charges=True)
        self._restored = SafetyCheck(
            self.accounts, self._holders, capacity, charges=False
        )  # with the most there ever was
        self._outlooks: tuple[SafetyCheck, ...] = (self._now,)  # without the other as long as nothing was taken
        self._suspect = False  # a fact was booked since the deficit was reckoned

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
        return self._now.free

    @property
    def usable(self) -> Mapping[str, int]:
        """Bytes per device that can be granted at all: the capacity, less what is charged."""
        return self._now.usable

    @property
    def deficit(self) -> Mapping[str, int]:
        """Bytes per device that facts took and without which not everybody could end."""
        return self._now.deficit

    @property
    def nominal_deficit(self) -> Mapping[str, int]:
        """The same if all were back that was taken from devices: none, unless somebody came back late."""
        return self._restored.deficit

    # -- views -------------------------------------------------------------------------------------------

    def view_device(self, device: str) -> DeviceView:
        """Return the figures of a device as they are now."""
        return DeviceView(
            self.capacity[device],
            self.usable[device],
            self.free[device],
            self.deficit[device],
            self.nominal_deficit[device],
        )

    def snapshot(self) -> LedgerSnapshot:
        """Return all accounts and devices as they are now; costs as much as there are accounts."""
        return LedgerSnapshot(
            {name: {device: a.view() for device, a in accounts.items()} for name, accounts in self.accounts.items()},
            {device: self.view_device(device) for device in self.capacity},
        )

    # -- containers --------------------------------------------------------------------------------------

    def open(self, container: str, limits: Mapping[str, int]) -> None:
        """Open the accounts of a container."""
        self.accounts[container] = {device: Account(limit) for device, limit in limits.items()}

    def close(self, container: str) -> None:
        """Forget a container, and with it its grants."""
        for device, account in self.accounts.pop(container, {}).items():
            for outlook in (self._now, self._restored):
                outlook.change_free(container, device, account.grant)
            self._change_usable(device, account.charged)
            self.targets.pop((container, device), None)
            self.changed_limits.pop((container, device), None)
        self._holders.pop(container, None)
        self.touched.pop(container, None)

    def ask_limit(self, container: str, device: str, limit: int) -> None:
        """Ask for another limit; `apply_targets` brings it into force when it can be."""
        account = self.accounts[container][device]
        account.target = None if limit == account.limit else limit
        self.changed_limits[container, device] = None
        self.touched[container] = None  # what waits may be beyond it
        if account.target is None:
            self.targets.pop((container, device), None)
        else:
            self.targets[container, device] = None

    # -- facts -------------------------------------------------------------------------------------------

    def change_capacity(self, device: str, capacity: int, nominal: int = 0) -> None:
        """Hand out so much of the device from now on; what is granted stays granted."""
        more = capacity - self.capacity[device]
        self.capacity[device] = capacity
        above = max(capacity, nominal) - self._restored.usable[device]
        if above > 0:
            self._restored.change_usable(device, above)
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
        self._now.change_usable(device, more)
        taken = self._now.usable != self._restored.usable
        self._outlooks = (self._now, self._restored) if taken else (self._now,)
        self._suspect = True

    # -- grants and leases -------------------------------------------------------------------------------

    def grant(self, container: str, device: str, size: int) -> None:
        """Set `size` more bytes aside for a container; a negative size takes some back."""
        accounts = self.accounts[container]
        accounts[device].grant += size
        self._now.change_free(container, device, -size)
        self._restored.change_free(container, device, -size)
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

    def move_lease(self, container: str, device: str, former: int, session: int, held: int) -> int:
        """Let a session go on with what of another's lease it still holds, and return it; the rest is idle."""
        account = self.accounts[container][device]
        lease = account.leases.pop(former, 0)
        account.leases[session] = min(held, lease)
        account.leased += account.leases[session] - lease
        self._adjust(container, device)
        return account.leases[session]

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
            self._suspect = self._suspect or self.free[device] < 0
            self.grant(container, device, -account.idle)

    # -- what may be granted -----------------------------------------------------------------------------

    def missing(self, container: str, device: str) -> int:
        """What the container may still be granted: up to its limit, and to what can be granted at all."""
        return self._now.missing(container, device)

    def can_end(self, container: str) -> bool:
        """Could the container get its whole limits out of what is free right now?"""
        return all(outlook.can_end_now(container) for outlook in self._outlooks)

    def is_safe_to_grant(self, container: str, device: str, size: int) -> bool:
        """May it be granted `size` more bytes: are they free, within its limit, and the state safe with them?"""
        account = self.accounts[container][device]
        if size > self.free[device] or account.grant + account.charged + size > account.limit:
            return False
        return all(outlook.can_end_with(container, device, size) for outlook in self._outlooks)

    def lacking(self, container: str, device: str) -> int:
        """Bytes that have to come back before the container could get its whole limit."""
        return max(outlook.missing(container, device) - outlook.free[device] for outlook in self._outlooks)

    def reckon(self) -> None:
        """Find the deficits anew: facts may have made them more, memory that came back less."""
        if not self._suspect and not any(self.deficit.values()) and not any(self.nominal_deficit.values()):
            return
        self._suspect = False
        most = self._restored.usable
        self._now.reckon({device: most[device] - usable for device, usable in self._now.usable.items()})
        self._restored.reckon(dict.fromkeys(most, 0))

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
                self._now.forget(container)
                self._restored.forget(container)
                self._adjust(container, device)

    def _is_safe_to_raise(self, container: str, device: str, target: int) -> bool:
        return container not in self._holders or all(
            outlook.can_end_at(container, device, target) for outlook in self._outlooks
        )

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
                if self.free[device] < 0 and account.idle:
                    raise InvariantBrokenError(f"idle grant on an overcommitted device: {container} on {device}")
        if free != self.free:
            raise InvariantBrokenError(f"grants and capacity: {free} free, {self.free} in the book")
        for outlook in self._outlooks:
            outlook.forget_all()  # so that what was kept is found out anew
        if not all(outlook.is_safe() for outlook in self._outlooks):
            raise InvariantBrokenError(f"the state is not safe: {self.accounts}")
