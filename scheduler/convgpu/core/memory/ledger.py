"""The one place where limits, grants and leases are recorded.

Of a device's capacity a part is *granted* to containers, and of a container's grant a part is *leased* to its
processes (sessions), which use it without asking. What a process really uses lies between zero and its lease, so the
ledger's figures are always on the safe side: usage <= leased <= grant <= limit (invariant 1).

Facts can break rules. External memory lowers the capacity. Unleased memory of a container is *charged* to it: taken
from the device as if it were external, and from the container's limit. What a process of an earlier scheduler holds
is granted whatever is free. So a device can be *overcommitted*, an account above its limit, and the state unsafe by a
*safety deficit*. No decision of the scheduler makes any of the three worse.

For all three to end with the facts that caused them, each decision has to be safe in two scenarios: with the capacity
of now, and with the nominal one, when everything that was taken from the devices is back (docs/decisions/0020).
"""

from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence
from typing import Final

from convgpu.core.errors import InvariantBrokenError
from convgpu.core.memory.account import Account
from convgpu.core.memory.claimants import Claimants
from convgpu.core.memory.device_groups import Changes, DeviceGroups
from convgpu.core.memory.holdings import Holdings
from convgpu.core.memory.safety_check import SafetyCheck
from convgpu.core.memory.sums import check_sums

CURRENT: Final = 0  # number of the scenario with the capacity that devices have now
Needs = dict[tuple[int, str], int]  # bytes by scenario and device; scenarios that equal another are left out


class Ledger:
    """Accounts of all containers on all devices.

    Args:
        capacity: bytes per device UUID that may be handed out.

    Attributes:
        capacity: bytes per device that may be handed out now.
        accounts: by container and device.
        changed_containers: containers whose accounts changed since the allocator last took their idle grants.
        changed_limits: accounts whose limit or target changed since that was last reported.
        targets: the accounts that have a target.
        claimants: containers that are not judged by themselves: those let past overdue allocations, and gangs.
        pool: bytes per device of host memory that may be granted beside the capacity (residency).
        unified: containers of which the driver holds on the host what a device does not.
        beyond: bytes per device that such a container was granted and the device does not have.
        leased: bytes per device that are leased to processes.
        lease_changes: containers whose leases changed since the last decision about residency.
        allows_raise: whether a container may have a higher limit on a device, beside what safety says.
        report_holder: called when a container begins to hold memory (True) and when it ceases to.
        holdings: how many grants of each size there are.
        newest_waiting: sequence of the newest allocation that waits, or ever waited; tags high-water marks.
        changes: on devices, of what decides about grants.
        groups: of devices that containers have limits on together.
        scenarios: of what the devices have; each grant has to be safe in all of them.
    """

    def __init__(self, capacity: Mapping[str, int]) -> None:
        self.capacity = dict(capacity)
        self.accounts: dict[str, dict[str, Account]] = {}
        self.changed_containers: dict[str, None] = {}
        self.changed_limits: dict[tuple[str, str], None] = {}
        self.targets: dict[tuple[str, str], None] = {}
        self.pool = dict.fromkeys(capacity, 0)
        self.unified: dict[str, None] = {}
        self.beyond = dict.fromkeys(capacity, 0)
        self.leased = dict.fromkeys(capacity, 0)
        self.lease_changes: dict[str, None] = {}
        self.allows_raise: Callable[[str, str, int], bool] = lambda _container, _device, _limit: True
        self.report_holder: Callable[[str, bool], None] = lambda _container, _holds: None
        self.newest_waiting = 0
        self.changes = Changes()
        self.groups = DeviceGroups()
        self.holdings = Holdings(capacity)
        self._holders: dict[str, None] = {}  # few, however many wait, because each holds memory of a device
        self.claimants = Claimants(self._holders, lambda name: self.changes.release(self.accounts.get(name, ())))
        of_all = self.accounts, self._holders, capacity, self.groups
        self._current = SafetyCheck("current capacity", *of_all, charges=True)
        # The most that each device ever had; charges come back as well.
        self._nominal = SafetyCheck("nominal capacity", *of_all, charges=False)
        self.scenarios = (self._current, self._nominal)
        self._distinct: tuple[SafetyCheck, ...] = (self._current,)  # scenarios without those that equal another
        self._is_deficit_stale = False  # a fact was recorded since the deficits were computed

    @property
    def holders(self) -> KeysView[str]:
        """Names of the containers that were granted anything; live."""
        return self._holders.keys()

    @property
    def free(self) -> Mapping[str, int]:
        """Bytes per device that are usable and not granted; negative while the device is overcommitted."""
        return self._current.free

    @property
    def usable(self) -> Mapping[str, int]:
        """Bytes per device that can be granted at all: the capacity, less what is charged."""
        return self._current.usable

    @property
    def overcommitted(self) -> list[str]:
        """Devices of which more is granted and charged than there is."""
        return [device for device, free in self.free.items() if free < 0]

    @property
    def deficit(self) -> Mapping[str, int]:
        """Bytes per device that facts took and without which not every container could end."""
        return self._current.deficit

    @property
    def nominal_deficit(self) -> Mapping[str, int]:
        """The deficit that would be left at nominal capacity: 0, unless a process reconnected late."""
        return self._nominal.deficit

    # -- containers --------------------------------------------------------------------------------------

    def open(self, container: str, limits: Mapping[str, int]) -> None:
        """Open the accounts of a container, in place of those that it has."""
        for check in self.scenarios:
            check.forget(container)
        self.groups.remove(frozenset(self.accounts.get(container, ())))
        self.accounts[container] = {device: Account(limit) for device, limit in limits.items()}
        self.groups.add(frozenset(limits))

    def close(self, container: str) -> None:
        """Forget a container, and with it its grants."""
        self.groups.remove(frozenset(self.accounts.get(container, ())))
        for device, account in self.accounts.pop(container, {}).items():
            if account.grant or account.charged:
                self.changes.release((device,))
            self.holdings.change(device, account.grant, 0)
            for check in self.scenarios:
                check.change_free(container, device, account.grant)
            self._follow_unified(device)
            if account.charged:
                self._change_usable(device, account.charged)
            self.targets.pop((container, device), None)
            self.changed_limits.pop((container, device), None)
        if self._holders.pop(container, False) is None:
            self.report_holder(container, False)
        self.unified.pop(container, None)
        self.claimants.remove(container)
        self.changed_containers.pop(container, None)

    def ask_limit(self, container: str, device: str, limit: int) -> None:
        """Set a target; `apply_targets` brings it into force when that is possible."""
        account = self.accounts[container][device]
        account.target = None if limit == account.limit else limit
        self.changed_limits[container, device] = None
        self.changed_containers[container] = None  # what waits may exceed it
        if account.target is None:
            self.targets.pop((container, device), None)
        else:
            self.targets[container, device] = None

    # -- facts -------------------------------------------------------------------------------------------

    def change_capacity(self, device: str, capacity: int, nominal: int = 0) -> None:
        """Hand out at most `capacity` bytes of the device from now on; what is granted stays granted.

        `nominal`: the capacity without external memory, as far as that is known.
        """
        change, self.capacity[device] = capacity - self.capacity[device], capacity
        above = max(capacity, nominal) + self.pool[device] + self.beyond[device] - self._nominal.usable[device]
        if above > 0:
            self._nominal.change_usable(device, above)
        self._change_usable(device, change)

    def change_pool(self, device: str, size: int) -> None:
        """Grant from now on `size` bytes of the device beside its capacity, because as much can leave it."""
        self._hold_beside(self.pool, device, size)

    def _follow_unified(self, device: str) -> None:
        """Have a device, if it has anything, hold beside that what of a unified container's grant is more."""
        if self.unified:
            held = (self.accounts.get(name, {}).get(device) for name in self._holders if name in self.unified)
            card = self.usable[device] - self.pool[device] - self.beyond[device]
            most = max((account.grant for account in held if account is not None), default=0)
            self._hold_beside(self.beyond, device, max(most - card, 0) if card > 0 else 0)

    def _hold_beside(self, sizes: dict[str, int], device: str, size: int) -> None:
        change, sizes[device] = size - sizes[device], size
        if change:
            self._nominal.change_usable(device, change)
            self._change_usable(device, change)

    def charge(self, container: str, device: str, size: int) -> None:
        """Charge unleased memory to a container, even above its limit and if nothing is free."""
        account = self.accounts[container][device]
        change, account.charged = size - account.charged, size
        self.holdings.change(device, account.grant, account.grant)
        self._change_usable(device, -change)
        self._adjust(container, device)

    def adopt(self, container: str, device: str, session: int, size: int) -> None:
        """Lease to a session what it holds already, up to the limit: granted even if nothing is free."""
        account = self.accounts[container][device]
        size = max(min(size, account.limit - account.held), 0)
        if size:
            self._is_deficit_stale = True
            self.claimants.forget_backfilled()
        more = max(size - account.idle, 0)
        if size and container in self.unified:  # it had been granted all that it may have
            more = account.limit - account.charged - account.grant
        self.grant(container, device, more)
        self.lease(container, device, session, size)

    def _change_usable(self, device: str, change: int) -> None:
        self.changes.release((device,))
        if change < 0:
            self.claimants.forget_backfilled()
        self._current.change_usable(device, change)
        self._distinct = self.scenarios if self._current.usable != self._nominal.usable else (self._current,)
        self._is_deficit_stale = True
        self._follow_unified(device)

    # -- grants and leases -------------------------------------------------------------------------------

    def grant(self, container: str, device: str, size: int) -> None:
        """Set `size` more bytes aside for a container; a negative size takes some back."""
        if not size:
            return
        accounts = self.accounts[container]
        before = accounts[device].grant
        accounts[device].grant = before + size
        self.changes.take(device, size)
        self.holdings.change(device, before, before + size)
        for check in self.scenarios:
            check.change_free(container, device, -size)
        if size > 0:
            if container not in self._holders:
                self._holders[container] = None
                self.report_holder(container, True)
        elif not any(account.grant for account in accounts.values()):
            del self._holders[container]
            self.report_holder(container, False)
        self._follow_unified(device)
        for check in self._distinct:
            check.prepare()

    def lease(self, container: str, device: str, session: int, size: int) -> None:
        """Lease `size` idle bytes to a session; a negative size takes leased bytes back."""
        account = self.accounts[container][device]
        if size < 0:
            account.record_high_water_mark(self.newest_waiting)
        account.leases[session] = account.leases.get(session, 0) + size
        self._count_leased(container, device, size)
        if size:  # of the many that connect before anybody waits, none is looked at again then
            self._adjust(container, device)

    def end_lease(self, container: str, device: str, session: int) -> int:
        """Remove a session and return how many bytes were leased to it."""
        account = self.accounts[container][device]
        account.record_high_water_mark(self.newest_waiting)
        size = account.leases.pop(session, 0)
        self._count_leased(container, device, -size)
        self._adjust(container, device)
        return size

    def move_lease(self, container: str, device: str, replaced: int, session: int, held: int) -> int:
        """Give what a replaced session still holds of its lease to its successor, and return that; the rest is idle."""
        account = self.accounts[container][device]
        account.record_high_water_mark(self.newest_waiting)
        lease = account.leases.pop(replaced, 0)
        account.leases[session] = min(held, lease)
        self._count_leased(container, device, account.leases[session] - lease)
        self._adjust(container, device)
        return account.leases[session]

    def _count_leased(self, container: str, device: str, change: int) -> None:
        self.accounts[container][device].leased += change
        self.leased[device] += change
        if change:
            self.changes.take(device, change)
        self.lease_changes[container] = None

    def _adjust(self, container: str, device: str) -> None:
        """Take back what is idle and granted above the limit."""
        account = self.accounts[container][device]
        above = min(account.grant + account.charged - account.limit, account.idle)
        if above > 0:
            self.grant(container, device, -above)
        self.changed_containers[container] = None

    def take_idle(self, container: str, device: str, reserved: int = 0) -> None:
        """Take back what of a grant is idle and more than what is reserved.

        It makes no safe state unsafe, except where it only reduces an overcommit.
        """
        account = self.accounts[container][device]
        size = min(account.idle, account.grant - reserved)
        if size > 0:
            self._is_deficit_stale |= self.free[device] < 0
            self.grant(container, device, -size)

    # -- what may be granted -----------------------------------------------------------------------------

    def need(self, container: str, device: str) -> int:
        """Return the bytes that the container may still be granted: up to its limit and to what is usable."""
        return self._current.need(container, device)

    def fits_free(self, container: str) -> bool:
        """Return whether what is free right now holds the container's whole limits."""
        return all(check.fits_free(container) for check in self._distinct)

    @property
    def has_waiting_raise(self) -> bool:
        """Whether a higher limit was asked for that is not in force."""
        return any((a.target or 0) > a.limit for a in (self.accounts[name][device] for name, device in self.targets))

    def is_safe_to_grant(self, container: str, device: str, size: int) -> bool:
        """Return whether `size` more bytes are free, within the container's limit, and leave the state safe."""
        account = self.accounts[container][device]
        if size > self.free[device] or account.grant + account.charged + size > account.limit:
            return False
        return all(
            check.is_grant_safe(container, device, size)
            and self.claimants.is_grant_safe(check, container, device, size)
            for check in self._distinct
        )

    def refusals(self, device: str) -> list[Mapping[str, int]]:
        """Return by container the sizes that were found unsafe on a device and still are, as all above."""
        return [refused for check in self._distinct if (refused := check.refusals(device))]

    def can_all_end_beside(self, newcomers: Sequence[str]) -> bool:
        """Return whether all holders can end even if the newcomers take their whole limits and never end."""
        return all(self.claimants.can_all_end_beside(check, newcomers) for check in self._distinct)

    def needs(self, names: Iterable[str]) -> Needs:
        """Return what containers may still be granted together: up to their limits and to what is usable; if any."""
        sizes: Needs = {}
        for name in names:
            for number, check in enumerate(self._distinct):
                for device, size in check.claim(name).need:
                    sizes[number, device] = sizes.get((number, device), 0) + size
        return sizes

    def room_when_all_ended(self) -> Needs:
        """Return what will be free when all holders have ended but those that are set apart."""
        rooms = (self.claimants.room_when_all_ended(check) for check in self._distinct)
        return {(number, device): size for number, room in enumerate(rooms) for device, size in room.items()}

    # -- targets and deficits ----------------------------------------------------------------------------

    def shortage(self, container: str, device: str) -> int:
        """Return the bytes that have to come back before the container could get its whole limit."""
        return max(check.need(container, device) - check.free[device] for check in self._distinct)

    def update_deficits(self) -> None:
        """Compute the deficits anew: facts may have raised them, memory that came back lowered them."""
        if not self._is_deficit_stale and not any(self.deficit.values()) and not any(self.nominal_deficit.values()):
            return
        self._is_deficit_stale = False
        nominal = self._nominal.usable
        taken = {device: nominal[device] - usable for device, usable in self.usable.items()}
        is_changed = self._current.update_deficit(taken)
        if self._nominal.update_deficit(dict.fromkeys(nominal, 0)) or is_changed:
            self.changes.release(nominal)

    def apply_targets(self, left: Callable[[str, str], int]) -> None:
        """Bring the targets into force as far as memory in use, what ended processes `left`, and safety allow."""
        for container, device in list(self.targets):
            account = self.accounts[container][device]
            target, limit = account.target or account.limit, account.limit
            if target < limit:
                account.limit = min(limit, max(target, account.held + left(container, device)))
            elif self._is_safe_to_raise(container, device, target):
                account.limit = target
            if account.limit == target:
                account.target = None
                del self.targets[container, device]
            if account.limit != limit:
                self.changes.release((device,))
                self.changed_limits[container, device] = None
                for check in self.scenarios:
                    check.forget(container)
                self._adjust(container, device)

    def _is_safe_to_raise(self, container: str, device: str, target: int) -> bool:
        if self.claimants.is_apart(container) or not self.allows_raise(container, device, target):
            return False
        return container not in self._holders or all(
            check.is_limit_safe(container, device, target)
            and self.claimants.is_limit_safe(check, container, device, target)
            for check in self._distinct
        )

    def check_invariants(self) -> None:
        """Recompute everything from the leases up.

        Raises:
            InvariantBrokenError: invariant 1 or 2 does not hold, or a figure is not the sum of its parts.
        """
        all_of = {device: size + self.pool[device] + self.beyond[device] for device, size in self.capacity.items()}
        check_sums(self.accounts, self._holders, all_of, self.free)
        for check in self._distinct:
            check.forget_all()  # so that nothing remembered is believed
            if not check.is_safe():
                raise InvariantBrokenError(f"the state is not safe with {check.scenario}: {self.accounts}")
