"""What those who hold memory may release together: sums of subsets, for the proofs of backfill."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from math import inf
from typing import Final, Protocol

MOST_SUMS: Final = 1024  # of what holders may release in vain; with more of them nothing is proved
_MOST_SIZES: Final = 44  # n different sizes have at least n (n + 1) / 2 + 1 sums
# Sizes of holdings behind which nothing is proved where an allocation fits and waits for safety alone: every newcomer
# whose limits are free would be compared with all that are overdue, nearly always in vain (docs/decisions/0079).
_MOST_BESIDE_SAFETY: Final = 10


class Holders(Protocol):
    """Those who may release memory, by device."""

    @property
    def changes(self) -> Mapping[str, int]:
        """How often anything of what they release has changed."""
        ...

    def sizes(self, device: str) -> Mapping[int, int]:
        """Return of how many it can be each size above 0 that they release, or nothing."""
        ...

    def either(self, device: str) -> Collection[tuple[int, int]]:
        """Return the two sizes of each of the others, of which it can be the lesser, the larger or nothing."""
        ...


@dataclass(slots=True)
class Sums:
    """What some holders of a device hold together, as far as anybody asked.

    Attributes:
        changes: of the holdings of the device before.
        sums: in order, all that are less than `bound`, and the least of the others.
        too_many: with this bound, and so with each higher one, there are too many sums.
        sizes: of single holders, least first; totals: of the smallest so many; both empty until somebody asks.
    """

    changes: int
    sums: Sequence[int] = (0,)
    bound: float = 0
    too_many: float = inf
    sizes: Sequence[int] = ()
    totals: Sequence[int] = ()


class ReleaseSums:
    """What holders may release together of each device; remembered as long as nothing of them changes.

    Args:
        holders: those who release.
        most: sums with more of which nothing is said.
    """

    def __init__(self, holders: Holders, most: int = MOST_SUMS) -> None:
        self._holders = holders
        self._most = most
        self._known: dict[str, Sums] = {}  # by device

    def least_release(self, device: str, least: int) -> float:
        """Return the least that some holders together hold of the device, of at least `least` bytes.

        Infinite if all hold less, and less than all sizes if there are too many sums to say.
        """
        known = self._sums_of(device)
        if least >= known.too_many or (least <= 0 and len(self._holders.sizes(device)) > _MOST_BESIDE_SAFETY):
            return -inf
        if least > known.bound and not self._count_sums(device, known, least):
            return -inf
        place = bisect_left(known.sums, least)
        return known.sums[place] if place < len(known.sums) else inf

    def _count_sums(self, device: str, known: "Sums", least: int) -> bool:
        """Count the sums up to `least`, or to twice that: the next question mostly goes further."""
        sizes, either = self._holders.sizes(device), self._holders.either(device)
        for bound in (2 * least, least):
            if bound < known.too_many:
                sums = subset_sums(sizes, bound, either, self._most)
                if sums is not None:
                    known.sums, known.bound = sums, bound
                    return True
                known.too_many = bound
        return False

    def release_bound(self, device: str, least: int) -> float:
        """Return no less than `least_release`: what one holder, or some of the smallest, hold of at least that."""
        known = self._sums_of(device)
        if not known.sizes:
            holdings, either = self._holders.sizes(device), self._holders.either(device)
            known.sizes = sorted((*holdings, *chain(*either)))
            wholes = sorted((*((size, count) for size, count in holdings.items()), *((most, 1) for _, most in either)))
            known.totals = list(accumulate(size * count for size, count in wholes))
        bound = inf
        for sizes in (known.sizes, known.totals):
            place = bisect_left(sizes, least)
            if place < len(sizes):
                bound = min(bound, sizes[place])
        return bound if least > 0 else 0

    def _sums_of(self, device: str) -> Sums:
        changes = self._holders.changes[device]
        known = self._known.get(device)
        if known is None or known.changes != changes:
            known = self._known[device] = Sums(changes)
        return known


def subset_sums(
    sizes: Mapping[int, int], bound: int, either: Iterable[tuple[int, int]] = (), most: int = MOST_SUMS
) -> list[int] | None:
    """Return in order the sums of subsets of `sizes` that are less than `bound`, and the least of the others.

    Equal sizes are taken 1, 2, 4 ... at a time, and rare sizes first: those make the sums too many soonest.

    Args:
        sizes: how many there are of each.
        bound: sums that have reached it are not added to.
        either: further pairs of sizes, of each of which a subset has one at most.
        most: sums with more of which they are too many.

    Returns:
        None if the sums are too many.
    """
    least = min((size for size in sizes if size >= bound), default=inf)
    smaller = [(count, size) for size, count in sizes.items() if size < bound]
    if len(smaller) > _MOST_SIZES:
        return None
    sums = [0]  # in order
    single = ((size * times,) for count, size in sorted(smaller) for times in _binary_parts(count))
    for part in (*single, *either):
        longer = []
        for size in part:
            below = bisect_left(sums, bound - size)
            if below < len(sums):
                least = min(least, sums[below] + size)
            longer += [other + size for other in sums[:below]]
        sums += longer
        sums.sort()  # of a few parts in order
        sums = list(dict.fromkeys(sums))
        if len(sums) > most:
            return None
    return sums + ([int(least)] if least < inf else [])


def _binary_parts(count: int) -> Iterator[int]:
    """Yield numbers whose subsets add up to each number from 0 to `count`."""
    part = 1
    while count:
        yield min(part, count)
        count -= min(part, count)
        part *= 2
