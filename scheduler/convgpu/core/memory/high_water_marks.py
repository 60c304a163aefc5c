"""The high-water mark of an account: the most that was leased at any moment since an allocation began to wait."""

from typing import Final

_MOST_MARKS: Final = 64  # a container that frees in more steps while others wait gets a mark that is too high


class HighWaterMarks:
    """Past marks, each lower than those before it, with the newest allocation that waited at the time.

    Allocations are given by their sequence numbers. A mark that is not higher than a later one is left out, because
    every wait that it counts for is one that the later one counts for.
    """

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: list[tuple[int, int]] = []

    def record(self, newest: int, leased: int) -> None:
        """Record `leased` bytes, which are about to become fewer; `newest`: the newest allocation that waits."""
        marks = self._marks
        while marks and marks[-1][1] <= leased:
            marks.pop()
        if marks and marks[-1][0] == newest:
            return
        if len(marks) == _MOST_MARKS:
            leased = marks.pop()[1]  # too high rather than too low: the age bound depends on it
        marks.append((newest, leased))

    def since(self, oldest: int) -> int:
        """Return the highest past mark since allocation `oldest` began to wait, in bytes; 0 without one.

        Forgets earlier marks: `oldest` is the oldest allocation that waits.
        """
        marks = self._marks
        outdated = next((place for place, (newest, _) in enumerate(marks) if newest >= oldest), len(marks))
        del marks[:outdated]
        return marks[0][1] if marks else 0
