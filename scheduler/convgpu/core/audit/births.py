"""Births: whose child each process is that began lately, so that a dead one can be known by its relatives; pure.

A process may begin, take memory and end before anybody looks at it. Its children and its parent are in its container:
a child begins in its parent's cgroup, and no container moves a process out of its own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

# The Engine's ids of the containers in which a process runs, the outermost first; empty: on the host.
Place = tuple[str, ...]

# Births that are known; a container's programs have a row each, of some 200 bytes.
_MOST: Final = 65_536
# Steps up: a runtime, a wrapper of it or two, and the shim that all programs of one container descend from.
_STEPS: Final = 6


@dataclass(slots=True)
class _Birth:
    """The birth of a process.

    Attributes:
        parent: the pid of its parent.
        at: seconds on the kernel's monotonic clock.
        place: where it runs, as far as was seen; None while nobody knows.
        of_children: where its children run that were seen, if its own place is not known; None: none, or several.
        before: who had the pid before, without anybody before that.
    """

    parent: int
    at: float
    place: Place | None = None
    of_children: Place | None = None
    before: "_Birth | None" = None


class Births:
    """The births of processes. No birth may be missing: after a loss, `clear`, and tell of all who live."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._births: dict[int, _Birth] = {}

    def clear(self) -> None:
        """Forget all."""
        self._births.clear()

    def add(self, pid: int, parent: int, at: float) -> bool:
        """Take a birth; return whether its place is known by that of its parent. On the host nobody's is."""
        above = self._births.get(parent)
        before = self._births.pop(pid, None)
        if before is not None:
            before.before = None
        place = above.place if above is not None else None
        self._births[pid] = _Birth(parent, at, place or None, before=before)
        if len(self._births) > self._most:
            del self._births[next(iter(self._births))]
        return bool(place)

    def place(self, pid: int, place: Place) -> None:
        """Take where a process was seen."""
        one = self._births.get(pid)
        if one is None:
            return
        one.place = place
        above = self._births.get(one.parent)
        if place and above is not None and not above.place:
            above.of_children = place if above.of_children in {None, place} else ()

    def place_of(self, pid: int, since: float, living_children: Callable[[int], Iterable[Place]]) -> Place:
        """Return where an ended process ran; empty if that was the host, or is not known for certain.

        Args:
            pid: that it had. It may have ended, and somebody else too who had the pid after it.
            since: the memory in question was not there before.
            living_children: returns where the children of a process run now, those in containers.
        """
        one = self._births.get(pid)
        if one is None:
            return ()
        may_be = [one] if one.at <= since or one.before is None else [one, one.before]
        places = {self._place(each, living_children) for each in may_be}
        return places.pop() if len(places) == 1 else ()

    def _place(self, one: _Birth, living_children: Callable[[int], Iterable[Place]]) -> Place:
        if one.place:
            return one.place
        # Seen on the host proves nothing: a runtime makes a program there and puts it into its container afterwards.
        if one.of_children is not None:
            return one.of_children
        for _ in range(_STEPS):
            parent = one.parent
            above = self._births.get(parent)
            while above is not None and above.at > one.at:
                above = above.before
            if above is None or parent <= 1:  # the children of the first process came to it from anywhere
                return ()
            if above.place:
                return above.place
            if places := set(living_children(parent)):
                return places.pop() if len(places) == 1 else ()
            one = above
        return ()
