"""Safety (invariant 2) of grants and limits under one scenario: the Banker's algorithm over the ledger's accounts."""

from collections.abc import Mapping, Sequence
from typing import Final

from convgpu.core.memory import bankers
from convgpu.core.memory.account import Account
from convgpu.core.memory.bankers import Claim
from convgpu.core.memory.claim_table import ClaimTable, MakeClaimTable, PlainClaimTable
from convgpu.core.memory.device_groups import DeviceGroups

_MOST_CHANGED: Final = 64  # claims that an answer may have to note first


class SafetyCheck:
    """Decides whether every container could end after a grant, under one assumption of what the devices have.

    It never changes an account: what would be is computed as a claim with a difference.

    Args:
        scenario: name of the assumption, for errors.
        accounts: of all containers; the ledger's own.
        holders: the containers with a grant; the ledger's own.
        usable: bytes per device that can be granted at all.
        groups: of devices that containers have limits on together; the ledger's own.
        charges: whether unleased memory counts against the limits.

    Attributes:
        free: bytes per device that are usable and not granted; negative while the device is overcommitted.
        deficit: bytes per device that facts took and without which not every container could end.
    """

    def __init__(
        self,
        scenario: str,
        accounts: Mapping[str, Mapping[str, Account]],
        holders: Mapping[str, None],
        usable: Mapping[str, int],
        groups: DeviceGroups,
        *,
        charges: bool,
    ) -> None:
        self.scenario = scenario
        self.usable = dict(usable)
        self.free = dict(usable)
        self.deficit = dict.fromkeys(usable, 0)
        self._accounts = accounts
        self._holders = holders
        self._charges = charges
        self._available: Mapping[str, int] = self.free  # what is free, with the deficit lent
        self._claims: dict[str, Claim] = {}  # by container, as far as computed
        self._holder_claims: list[Claim] | None = None  # least need first
        self._groups = groups
        self._make_table: MakeClaimTable = PlainClaimTable
        self._table: ClaimTable = PlainClaimTable(usable)  # of holders, except for what changed since
        self._changed: dict[str, None] = {}
        # By device and container the size for which a grant was last found unsafe. A grant makes none of them safe.
        self._refused: dict[str, dict[str, int]] = {device: {} for device in usable}
        # Least limits that are unsafe. No further grant makes them safe: it could be taken back again.
        self._unsafe_limits: dict[tuple[str, str], int] = {}

    def use_tables(self, make_table: MakeClaimTable) -> None:
        """Keep claims in tables of another kind from now on."""
        self._make_table = make_table
        self.forget_all()

    # -- changes -----------------------------------------------------------------------------------------

    def change_usable(self, device: str, change: int) -> None:
        """Add bytes to what can be granted of a device; a negative size removes some."""
        if change:
            self.usable[device] += change
            self.free[device] += change
            self.forget_all()

    def change_free(self, container: str, device: str, change: int) -> None:
        """Add bytes to what is free because the container's grant shrank by them; a negative size: it grew."""
        if not change:
            return
        self.free[device] += change
        self._forget_claim(container)
        if change > 0:
            self._unsafe_limits.clear()
            for other in self._groups.connected(device):
                self._refused[other].clear()
        if self._available is not self.free:
            self._lend()

    def forget(self, container: str) -> None:
        """Forget what was computed from a container's limits: they changed."""
        self._unsafe_limits.clear()
        if container in self._holders:
            self._forget_claim(container)
            self._forget_refused()
        else:
            self._claims.pop(container, None)  # the table has nothing of it, or it is noted that it has changed
            for refused in self._refused.values():
                refused.pop(container, None)

    def forget_all(self) -> None:
        """Forget everything that was computed."""
        self._claims.clear()
        self._holder_claims = None
        self._table = self._make_table(self.usable)
        self._changed = dict.fromkeys(self._holders)
        self._forget_refused()
        self._unsafe_limits.clear()
        self._lend()

    def _forget_claim(self, container: str) -> None:
        self._claims.pop(container, None)
        self._holder_claims = None
        self._changed[container] = None

    def _forget_refused(self) -> None:
        for refused in self._refused.values():
            refused.clear()

    def _lend(self) -> None:
        """Count the deficit as free."""
        if any(self.deficit.values()):
            self._available = {device: size + self.deficit[device] for device, size in self.free.items()}
        else:
            self._available = self.free

    def update_deficit(self, taken: Mapping[str, int]) -> bool:
        """Compute the deficit anew, out of the bytes `taken` from devices as far as possible; return if it changed.

        It is raised only if the state is not safe without that.
        """
        deficit = bankers.deficit(self.free, self.holder_claims(), taken)
        before = self.deficit
        if deficit == before:
            return False
        if sum(deficit.values()) <= sum(self.deficit.values()) or not self.is_safe():
            self.deficit = deficit
            self._forget_refused()
            self._unsafe_limits.clear()
            self._lend()
        return self.deficit is not before

    def prepare(self) -> None:
        """Note the claims that changed first, so that no answer has to note many at once."""
        while len(self._changed) >= _MOST_CHANGED:
            self._note_claim(next(iter(self._changed)))

    # -- answers -----------------------------------------------------------------------------------------

    def need(self, container: str, device: str) -> int:
        """Return the bytes that the container may still be granted: up to its limit and to what is usable."""
        account = self._accounts[container][device]
        return self._need_at(account, device, account.limit)

    def is_safe(self) -> bool:
        """Return whether all containers can get their whole limits and end, with the deficit lent (invariant 2)."""
        return bankers.is_safe(self._available, self.holder_claims())

    def fits_free(self, container: str) -> bool:
        """Return whether what is free right now holds the container's whole limits."""
        return self._claim(container).fits(self.free)

    def is_grant_safe(self, container: str, device: str, size: int) -> bool:
        """Return whether the state would be safe after a grant of `size` bytes, which have to be free.

        A grant lowers the need and what is free by the same: if the need fits now, the container can end first.
        """
        refused = self._refused[device]
        if container in refused and refused[container] <= size:
            return False
        claim = self._claim(container)
        if claim.fits(self._available):
            return True
        self._update_table()
        is_safe = self._table.can_end(claim.need, device, size, self._available)
        if not is_safe:
            refused[container] = size
        return is_safe

    def refusals(self, device: str) -> Mapping[str, int]:
        """Return by container the sizes that were found unsafe on a device and still are, as all above."""
        return self._refused[device]

    def is_limit_safe(self, container: str, device: str, limit: int) -> bool:
        """Return whether the state would be safe if this limit of a holder were `limit` bytes."""
        if self.free[device] < 0:
            return False  # claims say nothing there: no need exceeds what is usable, however high the limit
        unsafe = self._unsafe_limits.get((container, device))
        if unsafe is not None and unsafe <= limit:
            return False
        claim = self.claim_with_limit(container, device, limit)
        is_safe = bankers.can_finish(claim, self._available, self._other_claims(container))
        if not is_safe:
            self._unsafe_limits[container, device] = limit
        return is_safe

    # -- claims ------------------------------------------------------------------------------------------

    @property
    def available(self) -> Mapping[str, int]:
        """Bytes per device that are free, with the deficit lent."""
        return self._available

    def claim(self, container: str) -> Claim:
        """Return what a container was granted and may still be granted."""
        return self._claim(container)

    def claim_with_limit(self, container: str, device: str, limit: int) -> Claim:
        """Return the claim of a container as it would be with another limit."""
        account = self._accounts[container][device]
        return self._claim(container).with_need(device, self._need_at(account, device, limit))

    def _need_at(self, account: Account, device: str, limit: int) -> int:
        if self._charges:
            limit -= account.charged
        return max(min(limit, self.usable[device]) - account.grant, 0)

    def _claim(self, container: str) -> Claim:
        claim = self._claims.get(container)
        if claim is None:
            accounts = self._accounts[container]
            needs = ((device, self._need_at(account, device, account.limit)) for device, account in accounts.items())
            claim = self._claims[container] = Claim(
                tuple((device, account.grant) for device, account in accounts.items() if account.grant),
                tuple((device, size) for device, size in needs if size),
            )
        return claim

    def holder_claims(self) -> Sequence[Claim]:
        """Return the claims of all holders, least need first."""
        if self._holder_claims is None:
            self._holder_claims = bankers.least_need_first(self._claim(container) for container in self._holders)
        return self._holder_claims

    def _other_claims(self, container: str) -> list[Claim]:
        own = self._claim(container)
        return [claim for claim in self.holder_claims() if claim is not own]

    def _update_table(self) -> None:
        for container in list(self._changed):
            self._note_claim(container)

    def _note_claim(self, container: str) -> None:
        self._table.put(container, self._claim(container) if container in self._holders else None)
        del self._changed[container]
