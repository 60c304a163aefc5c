"""Safety (invariant 2) of grants and limits under one scenario: the Banker's algorithm over the ledger's accounts."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from convgpu.core.memory import bankers
from convgpu.core.memory.account import Account
from convgpu.core.memory.bankers import Claim, Sizes
from convgpu.core.memory.claim_table import ClaimTable
from convgpu.core.memory.margins import Margins

_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})
_MOST_CHANGED: Final = 64  # claims that are noted by one decision


class SafetyCheck:
    """Decides whether every container could end after a grant, under one assumption of what the devices have.

    It never changes an account: what would be is computed as a claim with a difference.

    Args:
        scenario: name of the assumption, for errors.
        accounts: of all containers; the ledger's own.
        holders: the containers with a grant; the ledger's own.
        usable: bytes per device that can be granted at all.
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
        self._table = ClaimTable(usable)  # of holders, except for what changed since
        self._changed: dict[str, None] = {}
        self._margins: dict[str, Margins] = {}  # by device, as far as computed
        # Least limits that are unsafe. No further grant makes them safe: it could be taken back again.
        self._unsafe_limits: dict[tuple[str, str], int] = {}

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
        concerned = self._accounts.get(container, (device,))
        for margins in self._margins.values():
            if not margins.devices.isdisjoint(concerned):
                margins.is_exact = False
                if change > 0:
                    margins.record_return(container)
        if change > 0:
            self._unsafe_limits.clear()
        if self._available is not self.free:
            self._lend()

    def forget(self, container: str) -> None:
        """Forget what was computed from a container's limits: they changed."""
        if container in self._holders or container in self._table.claims:
            self._forget_claim(container)
        else:
            self._claims.pop(container, None)  # the table has nothing of it
        self._unsafe_limits.clear()
        if container in self._holders:
            self._margins.clear()
        for margins in self._margins.values():
            margins.refused.pop(container, None)

    def forget_all(self) -> None:
        """Forget everything that was computed."""
        self._claims.clear()
        self._holder_claims = None
        self._table = ClaimTable(self.usable)
        self._changed = dict.fromkeys(self._holders)
        self._margins.clear()
        self._unsafe_limits.clear()
        self._lend()

    def _forget_claim(self, container: str) -> None:
        self._claims.pop(container, None)
        self._holder_claims = None
        self._changed[container] = None

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
            self._margins.clear()
            self._unsafe_limits.clear()
            self._lend()
        return self.deficit is not before

    def prepare(self) -> None:
        """Note some claims that changed, so that no answer has to note all of them at once."""
        if len(self._changed) >= _MOST_CHANGED:
            self._update_table()

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
        margins = self._margins.get(device)
        if margins is not None and margins.is_refused(container, size):
            return False
        claim = self._claim(container)
        return claim.fits(self._available) or self._can_end_after_others(container, claim, device, size)

    def refusals(self, device: str) -> Mapping[str, int]:
        """Return by container the sizes that were found unsafe on a device and still are, as all above."""
        margins = self._margins.get(device)
        return margins.refused if margins is not None else _NOTHING

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

    def _can_end_after_others(self, container: str, claim: Claim, device: str, size: int) -> bool:
        """Return whether the container could end after such a grant, if need be after all holders that can.

        Devices that no holder connects with this one miss nothing: a need of theirs is judged apart from it.
        """
        self._update_table()
        need = claim.need
        while need:
            regarded = self._judge(container, need, device, size)
            if not regarded:
                return False
            need = tuple(lacking for lacking in need if lacking[0] not in regarded)
            device, size = need[0][0] if need else "", 0
        return True

    def _judge(self, container: str, need: Sizes, device: str, size: int) -> frozenset[str]:
        """Return the devices on which the need fits while `size` bytes of the device are missing; none if not."""
        margins = self._margins.get(device)
        if margins is not None:
            verdict = margins.judge(container, need, size)
            if verdict is not None:
                return margins.devices if verdict else frozenset()
            if margins.still_fits(need, size, self._available):
                return frozenset(self.usable)
        margins = self._margins[device] = Margins(device, self._available, self._table)
        return margins.devices if margins.judge(container, need, size) else frozenset()

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
        for container in self._changed:
            before = self._table.claims.get(container)
            after = self._claim(container) if container in self._holders else None
            if before != after:
                slot = self._table.slots.get(container, -1)
                self._table.put(container, after)
                for margins in self._margins.values():
                    margins.record_change(container, slot, before)
        self._changed.clear()
