"""What one process was told to move, what the porter has moved of it, and what the process says; pure.

A process is believed as far as the porter has copied: it may be anybody's program.
"""

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class Order:
    """Bytes that have not moved of one order."""

    epoch: int
    left: int


@dataclass(slots=True)
class Transfers:
    """Bytes on their way, by device: of one process, between host (`out`) and device (`inwards`).

    Attributes:
        orders: what it was told to move and has not moved, by order: the epoch and the bytes. It carries them out one
            after the other.
        copied: what the porter has copied and the process has not answered for.
    """

    orders: defaultdict[str, deque[Order]] = field(default_factory=lambda: defaultdict(deque))
    copied: Counter[str] = field(default_factory=Counter)

    def ask(self, device: str, size: int, epoch: int = 0) -> None:
        """Note one more order."""
        self.orders[device].append(Order(epoch, size))

    def answer(self, device: str, size: int, *, ended: bool, epoch: int = 0) -> tuple[int, int]:
        """Return what has moved by both accounts, and at the end of an order what of it will not move any more.

        An order of an earlier epoch, which another scheduler gave, may end as well: that is not the end of ours, which
        the process may have begun since, so that what was copied of it still counts.
        """
        moved = min(size, self.copied[device])
        self.copied[device] -= moved
        orders = self.orders[device]
        if not orders:
            return moved, 0
        orders[0].left -= moved
        if not ended or epoch < orders[0].epoch:
            return moved, 0
        missing = max(orders.popleft().left, 0)
        self._forget_credit(device)
        return moved, missing

    def end_moved(self, device: str) -> None:
        """Forget orders of which everything has moved, for a process that says only of others that they ended."""
        orders = self.orders[device]
        while orders and orders[0].left <= 0:
            orders.popleft()
        self._forget_credit(device)

    def end_all(self, device: str) -> int:
        """End all orders, because what is left of them may be of memory that was freed; return what did not move."""
        left = max(sum(order.left for order in self.orders[device]), 0)
        self.orders[device].clear()
        self._forget_credit(device)
        return left

    def ordered(self) -> tuple[int, int]:
        """Return how many orders are open, and the bytes of them that have not moved."""
        orders = [order for way in self.orders.values() for order in way]
        return len(orders), sum(max(order.left, 0) for order in orders)

    def is_idle(self, device: str) -> bool:
        """Whether no order is left."""
        return not self.orders[device]

    def forget(self) -> None:
        """Begin anew: the process has said how it stands."""
        self.orders.clear()
        self.copied.clear()

    def _forget_credit(self, device: str) -> None:
        """After the last order: another porter copied anew what had no answer, so that more was copied than moved."""
        if self.is_idle(device):
            self.copied[device] = 0
