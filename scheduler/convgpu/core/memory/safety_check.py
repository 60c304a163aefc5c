"""Safety (invariant 2) of grants and limits under one scenario: the Banker's algorithm over the ledger's accounts."""

from collections.abc import Mapping

from convgpu.core.memory import bankers
from convgpu.core.memory.account import Account
from convgpu.core.memory.bankers import Claim


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
        self._claims: dict[str, Claim] = {}  # by container, as far as computed
        self._holder_claims: list[Claim] | None = None  # least need first
        # By device and size of a grant: what is free after the grant when all holders that can have ended.
        self._free_in_the_end: dict[str, dict[int, dict[str, int]]] = {device: {} for device in usable}
        # Least grants that are unsafe. No further grant makes them safe: it could be taken back again.
        self._unsafe: dict[tuple[str, str], int] = {}

    # -- changes -----------------------------------------------------------------------------------------

    def change_usable(self, device: str, change: int) -> None:
        """Add bytes to what can be granted of a device; a negative size removes some."""
        self.usable[device] += change
        self.free[device] += change
        self.forget_all()

    def change_free(self, container: str, device: str, change: int) -> None:
        """Add bytes to what is free because the container's grant shrank by them; a negative size: it grew."""
        self.free[device] += change
        self._claims.pop(container, None)
        self._forget_order()
        if change >= 0:
            self._unsafe.clear()

    def forget(self, container: str) -> None:
        """Forget what was computed from a container's limits: they changed."""
        self._claims.pop(container, None)
        self._forget_order()
        self._unsafe.clear()

    def forget_all(self) -> None:
        """Forget everything that was computed."""
        self._claims.clear()
        self._forget_order()
        self._unsafe.clear()

    def _forget_order(self) -> None:
        if self._holder_claims is None:  # nothing was computed since
            return
        self._holder_claims = None
        for known in self._free_in_the_end.values():
            known.clear()

    def update_deficit(self, taken: Mapping[str, int]) -> None:
        """Compute the deficit anew, out of the bytes `taken` from devices as far as possible.

        It is raised only if the state is not safe without that.
        """
        deficit = bankers.deficit(self.free, self._claims_of_holders(), taken)
        self._forget_order()
        self._unsafe.clear()
        if sum(deficit.values()) <= sum(self.deficit.values()) or not self.is_safe():
            self.deficit = deficit

    # -- answers -----------------------------------------------------------------------------------------

    def need(self, container: str, device: str) -> int:
        """Return the bytes that the container may still be granted: up to its limit and to what is usable."""
        account = self._accounts[container][device]
        return self._need_at(account, device, account.limit)

    def is_safe(self) -> bool:
        """Return whether all containers can get their whole limits and end, with the deficit lent (invariant 2)."""
        return bankers.is_safe(self._free_and_deficit(), self._claims_of_holders())

    def fits_free(self, container: str) -> bool:
        """Return whether what is free right now holds the container's whole limits."""
        return self._claim(container).fits(self.free)

    def is_grant_safe(self, container: str, device: str, size: int) -> bool:
        """Return whether the state would be safe after a grant of `size` bytes, which have to be free."""
        unsafe = self._unsafe.get((container, device))
        if unsafe is not None and unsafe <= size:
            return False
        if self._can_end_after_grant(container, device, size):
            return True
        self._unsafe[container, device] = size
        return False

    def is_limit_safe(self, container: str, device: str, limit: int) -> bool:
        """Return whether the state would be safe if this limit of a holder were `limit` bytes."""
        if self.free[device] < 0:
            return False  # claims say nothing there: no need exceeds what is usable, however high the limit
        account = self._accounts[container][device]
        claim = self._claim(container).with_need(device, self._need_at(account, device, limit))
        return bankers.can_finish(claim, self._free_and_deficit(), self._other_claims(container))

    def _can_end_after_grant(self, container: str, device: str, size: int) -> bool:
        claim = self._claim(container).with_grant(device, size)
        free = self._free_and_deficit()
        free[device] -= size
        if claim.fits(free):
            return True
        if container in self._holders:
            return bankers.can_finish(claim, free, self._other_claims(container))
        return self._fits_in_the_end(claim, device, size)

    def _fits_in_the_end(self, claim: Claim, device: str, size: int) -> bool:
        """Return whether a newcomer that was granted `size` bytes could end, if need be after all holders that can.

        What is free in the end shrinks as the size grows, and is remembered until something changes: so a few
        computations answer for all newcomers that wait.
        """
        known = self._free_in_the_end[device]
        if any(not claim.fits(free) for smaller, free in known.items() if smaller <= size):
            return False
        if any(claim.fits(free) for larger, free in known.items() if larger >= size):
            return True
        free = self._free_and_deficit()
        free[device] -= size
        bankers.finish_feasible(free, self._claims_of_holders())
        known[size] = free
        return claim.fits(free)

    # -- claims ------------------------------------------------------------------------------------------

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

    def _claims_of_holders(self) -> list[Claim]:
        if self._holder_claims is None:
            self._holder_claims = bankers.least_need_first(self._claim(container) for container in self._holders)
        return self._holder_claims

    def _other_claims(self, container: str) -> list[Claim]:
        own = self._claim(container)
        return [claim for claim in self._claims_of_holders() if claim is not own]

    def _free_and_deficit(self) -> dict[str, int]:
        return {device: size + self.deficit[device] for device, size in self.free.items()}
