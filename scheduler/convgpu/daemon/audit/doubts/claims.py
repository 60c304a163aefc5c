"""What searches found of dead processes that nobody saw (`unseen`), claimed from what is nobody's in a sample."""

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Final

from convgpu.core.audit.attribution import ALL, Kept, MemorySample, Owner, beyond, claim, uncounted
from convgpu.core.audit.listed import Listing
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.doubts.unseen import UnseenMemory

# Seconds in which three searches for memory of dead ones begin.
_SEARCHES: Final = 1.5


class Claims:
    """Claims memory for containers of whose dead processes a search found it; sizes are in bytes.

    Args:
        unseen: searches; None: nobody does.
        runs: says of a volume's name and a device whether it has a limit there and a process, or a mount.
    """

    def __init__(self, unseen: UnseenMemory | None, runs: Callable[[str, str], bool]) -> None:
        self.unseen = unseen
        self._runs = runs
        self._nobodys: dict[str, int] = {}  # listed for dead ones of nobody, and what was claimed, by device
        self._unseens: dict[str, int] = {}  # of dead ones, and listed for nobody, likewise
        self._unlisted: dict[str, int] = {}  # in use, and listed for nobody, likewise
        self._own: dict[str, int] = {}  # what the driver takes for itself, likewise
        self._dead_lately: defaultdict[str, deque[tuple[float, Counter[str]]]] = defaultdict(deque)  # likewise, when

    def follow(self, index: Callable[[], ProcessIndex]) -> None:
        """Have it searched for what is nobody's."""
        if self.unseen is not None:
            devices = self._nobodys.keys() | self._unlisted.keys()
            nobodys = {each: self._nobodys.get(each, 0) + self._unlisted.get(each, 0) for each in devices}
            self.unseen.follow(nobodys, index())

    def see_unlisted(self, device: str, size: int, own: int) -> None:
        """Take how many bytes of a device are in use for certain, and the driver lists nobody with them.

        Args:
            device: UUID.
            size: but for the driver's own.
            own: what the driver takes for itself.
        """
        self._unlisted[device], self._own[device] = size, own

    def unseen_on(self, device: str) -> int:
        """Return the bytes of a device that are of dead ones for certain, and listed for nobody: nobody maps them."""
        return self._unseens.get(device, 0)

    async def confirm(self, device: str) -> Mapping[Owner, int]:
        """Return what the dead hold of a device whom searches found, and who was asked about once more just now."""
        return await self.unseen.confirm(device) if self.unseen is not None else {}

    def found_since(self, volume: str, device: str, since: float) -> int | None:
        """Return what `UnseenMemory.found_since` does."""
        return self.unseen.found_since(volume, device, since) if self.unseen is not None else 0

    def await_found(self, volume: str, device: str, since: float) -> int | None:
        """Return the same; if none has told yet, the next search comes soon."""
        told = self.found_since(volume, device, since)
        if told is None and self.unseen is not None:
            self.unseen.hurry()
        return told

    def add(
        self,
        sample: MemorySample,
        listing: Listing,
        managed: Callable[[], int],
        confirmed: Mapping[Owner, int] | None = None,
    ) -> Listing:
        """Return what a sample lists, with the claims.

        Args:
            sample: of a device.
            listing: of it.
            managed: what our ledger accounts for, and the driver lists for nobody.
            confirmed: counts in place of what was found; it was asked about once more, for somebody's allocation, and
                changes nothing for others: the last search does.
        """
        device, kept = sample.device, listing.kept
        nobodys = sum(one.size for one in kept if not one.owner.is_known)
        if self.unseen is None or device not in self._own:
            self._nobodys[device], self._unseens[device] = nobodys, 0
            return listing
        found = self.unseen.found(device) if confirmed is None else confirmed
        found = {owner: size for owner, size in found.items() if size and self._runs(owner.volume or "", device)}
        found = beyond(kept, found, self._listed_lately(device))
        listed = [*listing.held.values(), *(one.size for one in kept)]
        known = sum(listed) + uncounted(listed) + self._own[device] + managed()
        claimed = claim(kept, found, max(sample.used - known, 0))
        if confirmed is None:
            self._unseens[device] = max(sum(size for size in found.values() if size < ALL) - nobodys, 0)
            # Without the claims it would be nobody's still: so it is searched for.
            self._nobodys[device] = nobodys + sum(one.size for one in claimed) - sum(one.size for one in kept)
        return replace(listing, kept=claimed)

    def note(self, device: str, kept: Sequence[Kept]) -> None:
        """Note what is listed of dead ones in a look of the audit, and in no other: anybody may ask for those."""
        sizes = Counter[str]()
        for one in kept:
            if one.owner.volume is not None and not one.is_left:
                sizes[one.owner.volume] += one.size
        rows, now = self._dead_lately[device], time.monotonic()
        rows.append((now, sizes))
        while rows[0][0] < now - _SEARCHES:
            rows.popleft()

    def _listed_lately(self, device: str) -> Mapping[str, int]:
        """Return the most that was listed for dead ones of each volume since the searches began whose findings count.

        What is freed is not listed at once, and found until the next search: it would be claimed from what is nobody's
        of others.
        """
        since = time.monotonic() - _SEARCHES
        return reduce(or_, (each for at, each in self._dead_lately[device] if at >= since), Counter[str]())

    def told(self, device: str, kept: Sequence[Kept]) -> tuple[Counter[str], Counter[str]]:
        """Return what containers hold of a device only because a search found it, and what is listed of their dead.

        But for those who disturb the searches: nothing will tell what they have.
        """
        claims, listed = Counter[str](), Counter[str]()
        found = self.unseen.found(device) if self.unseen is not None else {}
        for one in kept:
            if one.owner.volume is not None and not one.is_left and (one.pid or found.get(one.owner, 0) < ALL):
                (listed if one.pid else claims)[one.owner.volume] += one.size
        return claims, listed
