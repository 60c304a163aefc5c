"""How fast memory moves, by what the porter says of each piece; pure."""

from collections import Counter


class TransferRates:
    """Sums of bytes and of the time that they took, by device and direction, until they are taken."""

    def __init__(self) -> None:
        self._bytes: Counter[tuple[str, bool]] = Counter()
        self._nanoseconds: Counter[tuple[str, bool]] = Counter()

    def add(self, device: str, size: int, nanoseconds: int, *, inwards: bool) -> None:
        """Count a piece that was copied."""
        self._bytes[device, inwards] += size
        self._nanoseconds[device, inwards] += nanoseconds

    def take(self, device: str, *, inwards: bool) -> float:
        """Return bytes per second since the last call; 0 if nothing was copied."""
        size, time = self._bytes.pop((device, inwards), 0), self._nanoseconds.pop((device, inwards), 0)
        return size * 1e9 / time if time > 0 else 0.0
