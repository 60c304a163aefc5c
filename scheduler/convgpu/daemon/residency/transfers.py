"""What one process was told to move, what the porter has moved of it, and what the process says; pure.

A process is believed as far as the porter has copied: it may be anybody's program.
"""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Transfers:
    """Bytes on their way, by device: of one process, between host (`out`) and device (`inwards`).

    Attributes:
        asked: what it was told to move and has not answered for.
        copied: what the porter has copied and the process has not answered for.
    """

    asked: Counter[str] = field(default_factory=Counter)
    copied: Counter[str] = field(default_factory=Counter)

    def answer(self, device: str, size: int, *, ended: bool) -> tuple[int, int]:
        """Return what has moved by both accounts, and at the end of an order what of it will not move any more."""
        moved = min(size, self.copied[device])
        self.copied[device] -= moved
        left = max(self.asked[device] - moved, 0)
        self.asked[device] = 0 if ended else left
        return moved, left if ended else 0

    def forget(self) -> None:
        """Begin anew: the process has another connection or another carrier."""
        self.asked.clear()
        self.copied.clear()
