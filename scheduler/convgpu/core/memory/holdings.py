"""How many grants of each size there are on each device, for what holders may release together (backfill.py)."""

from collections import Counter
from collections.abc import Iterable


class Holdings:
    """Counts grants.

    Args:
        devices: all that there are.

    Attributes:
        sizes: by device, how many grants of each size above 0 there are.
        changes: by device, how often a grant or a charge has changed.
    """

    def __init__(self, devices: Iterable[str]) -> None:
        self.sizes: dict[str, Counter[int]] = {device: Counter() for device in devices}
        self.changes = dict.fromkeys(self.sizes, 0)

    def change(self, device: str, before: int, after: int) -> None:
        """Count a grant that changes from one size to another; equal ones: something else on the device changed."""
        self.changes[device] += 1
        if before == after:
            return
        sizes = self.sizes[device]
        if before:
            sizes[before] -= 1
            if not sizes[before]:
                del sizes[before]
        if after:
            sizes[after] += 1
