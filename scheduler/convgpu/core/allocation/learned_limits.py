"""When a container's peak counts as learned, and when it does not any more. Pure (docs/decisions/0107)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MARGIN: Final = 1.15
_NONE: Final[Mapping[str, int]] = {}


@dataclass(slots=True)
class _Followed:
    """`since`: when one of the peaks rose last; `learned`: what the ledger was told."""

    peaks: Mapping[str, int]
    since: float
    learned: Mapping[str, int]


class PeakFollower:
    """Follows the peaks of containers.

    Args:
        settling: seconds without a higher peak after which the limits are learned: peak times MARGIN.
    """

    def __init__(self, settling: float) -> None:
        self._settling = settling
        self._followed: dict[str, _Followed] = {}

    def update(self, container: str, peaks: Mapping[str, int], now: float) -> Mapping[str, int] | None:
        """Take the highest usage by device; return other limits that were learned: none any more, or None: no others.

        Every peak is at least what it was. With a peak above what was learned all is learned anew.
        """
        known = self._followed.get(container)
        if known is None or any(size > known.peaks.get(device, 0) for device, size in peaks.items()):
            learned = known.learned if known else _NONE
            exceeds = any(peaks.get(device, 0) > size for device, size in learned.items())
            self._followed[container] = _Followed(peaks, now, _NONE if exceeds else learned)
            return _NONE if exceeds else None
        if now - known.since < self._settling or not any(peaks.values()):
            return None
        learned = {device: int(size * MARGIN) for device, size in peaks.items()}
        if learned == known.learned:
            return None
        known.learned = learned
        return learned

    def forget(self, names: set[str]) -> None:
        """Forget all containers but these."""
        for name in self._followed.keys() - names:
            del self._followed[name]
