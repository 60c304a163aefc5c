"""Births: whose child each process is that began lately, so that a dead one can be known by its relatives; pure.

A process may begin, take memory and end before anybody looks at it. Its children and its parent are in its container:
a child begins in its parent's cgroup, and no container moves a process out of its own.
"""

import math
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from typing import Final

# The Engine's ids of the containers in which a process runs, the outermost first; empty: on the host.
Place = tuple[str, ...]

# Births that are known of processes that have ended; each is some 200 bytes.
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
        ended: seconds on the same clock by which it had ended; infinite while that is not known.
        forgotten: likewise, by which all who had the pid earlier and are not known any more had ended.
    """

    parent: int
    at: float
    place: Place | None = None
    of_children: Place | None = None
    before: "_Birth | None" = None
    ended: float = math.inf
    forgotten: float = -math.inf


class Births:
    """The births of processes. None may be missing: after a loss nothing is known until `clear`, and all who live."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._births: dict[int, _Birth] = {}
        self._living: set[int] = set()  # who is not known to have ended
        self._told = -math.inf  # all births before are known, but for those before the next one
        self._missing = -math.inf  # who has no row had ended by then, or lives
        self._is_lost = False

    def clear(self, at: float) -> None:
        """Forget all, at a moment on the kernel's monotonic clock; who lives is told next."""
        self._births.clear()
        self._living.clear()
        self._told, self._missing, self._is_lost = -math.inf, at, False

    def lose(self) -> None:
        """Take that births are missing."""
        self._is_lost = True

    def add(self, pid: int, parent: int, at: float) -> bool:
        """Take a birth; return whether its place is known by that of its parent. On the host nobody's is."""
        above = self._births.get(parent)
        before = self._births.pop(pid, None)
        if before is not None:
            if before.before is not None:
                before.forgotten, before.before = before.before.ended, None
            before.ended = min(before.ended, at)
        place = above.place if above is not None else None
        forgotten = self._missing if before is None else -math.inf
        self._births[pid] = _Birth(parent, at, place or None, before=before, forgotten=forgotten)
        self._living.add(pid)
        return bool(place)

    def end(self, living: AbstractSet[int], begun: float, at: float) -> None:
        """Take who lives: all others have ended. Of those, the ones that ended first are forgotten if they are many.

        Args:
            living: pids that were seen between `begun` and `at`.
            begun: seconds on the kernel's monotonic clock; nothing is said of who began later.
            at: likewise; all births before were told.
        """
        self._told = at
        for pid in self._living - living:
            if self._births[pid].at <= begun:
                one = self._births[pid] = self._births.pop(pid)  # the last row
                one.ended = at
                self._living.remove(pid)
        more = max(len(self._births) - len(self._living) - self._most, 0)
        for pid in list(islice((pid for pid in self._births if pid not in self._living), more)):
            self._missing = max(self._missing, self._births.pop(pid).ended)

    def place(self, pid: int, place: Place) -> None:
        """Take where a process was seen."""
        one = self._births.get(pid)
        if one is None:
            return
        one.place = place
        above = self._births.get(one.parent)
        if place and above is not None and not above.place:
            above.of_children = place if above.of_children in {None, place} else ()

    def place_of(
        self, pid: int, since: float, until: float, living_children: Callable[[int], Iterable[Place]]
    ) -> Place:
        """Return where an ended process ran; empty if that was the host, or is not known for certain.

        Args:
            pid: that it had. It may have ended, and somebody else too who had the pid after it.
            since: the memory in question was not there before.
            until: and it was there then. Until births are told up to that moment nothing is certain.
            living_children: returns where the children of a process run now, those in containers.
        """
        one = self._births.get(pid)
        if one is None or self._is_lost or self._told < until:
            return ()
        if (one.before or one).forgotten > since:
            return ()  # who is not known any more may be meant
        may_be = [each for each in (one, one.before) if each is not None and each.at <= until and each.ended > since]
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
