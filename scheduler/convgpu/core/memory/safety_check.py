"""Who can end with so much on each device: the Banker's algorithm over the accounts of the ledger, and its deficit."""

from collections.abc import Mapping

from convgpu.core.memory import bankers as safety
from convgpu.core.memory.account import Account
from convgpu.core.memory.bankers import Claim


class SafetyCheck:
    """Judges whether everybody can end, with what devices have now or with what they will have again.

    Args:
        accounts: of all containers; the ledger's own.
        holders: the containers with a grant; the ledger's own.
        usable: bytes per device that can be granted at all.
        charges: does what is charged count against the limits?

    Attributes:
        free: bytes per device that nobody was granted; negative while it is overcommitted.
        deficit: bytes per device that facts took and without which not everybody could end.
    """

    def __init__(
        self,
        accounts: Mapping[str, Mapping[str, Account]],
        holders: Mapping[str, None],
        usable: Mapping[str, int],
        *,
        charges: bool,
    ) -> None:
        self.usable = dict(usable)
        self.free = dict(usable)
        self.deficit = dict.fromkeys(usable, 0)
        self._accounts = accounts
        self._holders = holders
        self._charges = charges
        self._claims: dict[str, Claim] = {}  # of the holders, as far as known
        self._in_the_end: dict[str, dict[int, dict[str, int]]] = {device: {} for device in usable}
        self._ordered: list[Claim] | None = None  # all of them, in the order in which to try them
        # Least grants that were refused. A grant to anybody makes none of them safe: it could be taken back again.
        self._refused: dict[tuple[str, str], int] = {}

    def change_usable(self, device: str, more: int) -> None:
        """The device has more, or less."""
        self.usable[device] += more
        self.free[device] += more
        self.forget_all()

    def change_free(self, container: str, device: str, more: int) -> None:
        """The container's grant became less by so much, or more."""
        self.free[device] += more
        self._claims.pop(container, None)
        self._forget_order()
        if more >= 0:
            self._refused.clear()

    def forget(self, container: str) -> None:
        """Its limits changed."""
        self._claims.pop(container, None)
        self._forget_order()
        self._refused.clear()

    def forget_all(self) -> None:
        """Every claim may be another."""
        self._claims.clear()
        self._forget_order()
        self._refused.clear()

    def _forget_order(self) -> None:
        if self._ordered is None:  # nothing was found out since
            return
        self._ordered = None
        for known in self._in_the_end.values():
            known.clear()

    def missing(self, container: str, device: str) -> int:
        """What the container may still be granted: up to its limit, and to what can be granted at all."""
        account = self._accounts[container][device]
        limit = account.limit - account.charged if self._charges else account.limit
        return max(min(limit, self.usable[device]) - account.grant, 0)

    def claim(self, container: str) -> Claim:
        """Return what the container holds and may still ask for."""
        accounts = self._accounts[container]
        missing = ((device, self.missing(container, device)) for device in accounts)
        return Claim(
            tuple((device, account.grant) for device, account in accounts.items() if account.grant),
            tuple((device, size) for device, size in missing if size),
        )

    def can_end_now(self, container: str) -> bool:
        """Could the container get its whole limits out of what is free right now?"""
        return self.claim(container).fits(self.free)

    def can_end_with(self, container: str, device: str, size: int) -> bool:
        """Could everybody end, if the container were granted `size` more bytes? They have to be free."""
        refused = self._refused.get((container, device))
        if refused is not None and refused <= size:
            return False
        if self._try_to_end_with(container, device, size):
            return True
        self._refused[container, device] = size
        return False

    def _try_to_end_with(self, container: str, device: str, size: int) -> bool:
        account = self._accounts[container][device]
        account.grant += size
        after = self.claim(container)
        account.grant -= size
        free = self._with_deficit()
        free[device] -= size
        if after.fits(free):
            return True
        if container in self._holders:
            return safety.can_end(after, free, self._others(container))
        return self._fits_in_the_end(after, device, size)

    def can_end_at(self, container: str, device: str, limit: int) -> bool:
        """Could everybody end, if this limit of a holder were another?"""
        if self.free[device] < 0:
            return False  # claims say nothing there: nobody can ask for what is not there, however high the limit
        account, others = self._accounts[container][device], self._others(container)
        former, account.limit = account.limit, limit
        after = self.claim(container)
        account.limit = former
        return safety.can_end(after, self._with_deficit(), others)

    def _fits_in_the_end(self, claim: Claim, device: str, size: int) -> bool:
        """Could a newcomer that was granted `size` bytes end, if need be after all others that can?

        What is free after them is kept until something changes: it is less for a greater size, so that a few answer
        for all that wait.
        """
        known = self._in_the_end[device]
        if any(not claim.fits(free) for less, free in known.items() if less <= size):
            return False
        if not any(claim.fits(free) for more, free in known.items() if more >= size):
            free = self._with_deficit()
            free[device] -= size
            safety.end_those_that_can(free, self._claimed())
            known[size] = free
            return claim.fits(free)
        return True

    def is_safe(self) -> bool:
        """Is there an order in which every container can get its whole limit and end, deficits apart (invariant 2)?"""
        return safety.is_safe(self._with_deficit(), self._claimed())

    def reckon(self, taken: Mapping[str, int]) -> None:
        """Find the deficit anew, out of what was `taken` from devices as far as possible; more only if it has to be."""
        deficit = safety.deficit(self.free, self._claimed(), taken)
        self._forget_order()
        self._refused.clear()
        if sum(deficit.values()) <= sum(self.deficit.values()) or not self.is_safe():
            self.deficit = deficit

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

    def _with_deficit(self) -> dict[str, int]:
        return {device: size + self.deficit[device] for device, size in self.free.items()}
