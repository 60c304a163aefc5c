"""Bounds how many callers wait for the Engine's answers: each of them holds a thread that judges.

The Engine answers nothing about a container whose lock it holds: for as long as who reads a copy of it takes, or for
ever, where it opened a FIFO in the place of the container's /etc/passwd. What so hangs costs nobody else a thread.
"""

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from convgpu.authz.ports import EngineHolds

# Callers who wait, of the threads that judge (`PluginWorker`): the others are for calls that ask about nothing.
PLACES: Final = 256
_ABOUT_ONE: Final = 8
_PATIENCE: Final = 1.0
_STEP: Final = 0.01
# What was not answered is remembered for so many seconds, and so many names: callers come one after the other, too.
_MEMORY: Final = 60.0
_MOST_NAMES: Final = 1024
_ID: Final = re.compile("container [0-9a-f]+")


@dataclass(slots=True)
class _Silence:
    """Seconds of the clock at which a name was first and last asked about without an answer since."""

    begun: float
    last: float


@dataclass(slots=True, eq=False)
class Place:
    """The place of one caller who waits for an answer.

    Attributes:
        name: that is asked about.
        group: of names that may mean the same.
        begun: seconds of the clock since which the Engine has been silent about it, by whatever name.
        asks: the Engine; else it waits until fewer ask about that name.
        lost: another caller has got the place.
        turn: wakes it, as it may go on.
        connection: to the Engine.
    """

    name: str
    group: str
    begun: float
    turn: threading.Condition
    asks: bool = False
    lost: bool = False
    connection: socket.socket | None = None

    def keep(self, connection: socket.socket) -> None:
        """Note the connection on which the answer will come: its end is the end of the wait."""
        self.connection = connection
        if self.lost:
            self._hang_up()

    def lose(self) -> None:
        """End the wait."""
        self.lost = True
        self._hang_up()

    def _hang_up(self) -> None:
        if self.connection is not None:
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)


class Waiting:
    """The questions that the Engine has not answered yet; may be shared between threads.

    Who waits is woken one at a time, in the order in which they came: 200 who woke at each answer kept the interpreter
    from everybody, and some of them never came to their turn.

    Args:
        patience: seconds after which an answer is late.
        places: for callers who wait.
    """

    def __init__(self, patience: float = _PATIENCE, places: int = PLACES) -> None:
        self._patience = patience
        self._most = places
        self._places: dict[Place, None] = {}
        self._unplaced: dict[Place, None] = {}
        self._asking: dict[str, dict[Place, None]] = {}  # by group; of those who have a place
        self._queues: dict[str, dict[Place, None]] = {}  # by group; who does not ask yet
        self._silent: dict[str, _Silence] = {}
        self._lock = threading.Lock()

    @contextmanager
    def about(self, name: str) -> Iterator[Place]:
        """Ask about a name in this context, when there is room.

        Whoever finds all places taken gets that of the caller whose answer is late for longest.

        Args:
            name: `container NAME`, or of another kind.

        Raises:
            EngineHolds: as many as may ask about this name wait for late answers; or this one's answer is late, and
                another caller has got the place, or the question timed out (`TimeoutError`).
        """
        with self._lock:
            place = self._take(name)
        try:
            yield place
        except Exception as error:
            if place.lost or isinstance(error, TimeoutError):
                raise _held(place) from error
            raise
        else:
            with self._lock:
                self._silent.pop(name, None)
        finally:
            with self._lock:
                self._leave(place)

    def _take(self, name: str) -> Place:
        now = time.monotonic()
        place = Place(name, _group(name), self._begun(name, now), threading.Condition(self._lock))
        queue = self._queues.setdefault(place.group, {})
        queue[place] = None
        try:
            self._wait(place, now)
        except EngineHolds:
            self._leave(place)
            raise
        finally:
            del queue[place]
            if not queue:
                del self._queues[place.group]
            self._unplaced.pop(place, None)
            self._wake_next(place.group)
        now = time.monotonic()
        place.begun = self._begun(name, now)  # it waited for others, and not for the Engine
        place.asks = True
        self._asking.setdefault(place.group, {})[place] = None
        self._note(name, now)
        return place

    def _wait(self, place: Place, now: float) -> None:
        latest = now + self._patience
        while not (self._is_placed(place, now) and self._has_room(place)):
            in_the_way = self._asking_about(place.name) if place in self._places else self._places
            left = min(latest, self._patience + min((each.begun for each in in_the_way), default=now)) - now
            if place.lost or (place in self._places and left <= 0):
                raise _held(place)
            place.turn.wait(max(left, _STEP))
            now = time.monotonic()

    def _is_placed(self, place: Place, now: float) -> bool:
        """Give a caller a place, if one is free or somebody's answer is late; tell whether it has had one."""
        if place.lost or place in self._places:
            return True
        if len(self._places) >= self._most:
            first = min(self._places, key=lambda each: (each.begun, each.asks))
            if now - first.begun < self._patience:
                self._unplaced[place] = None
                return False
            self._leave(first)
            first.lose()
            first.turn.notify()
        self._places[place] = None
        return True

    def _has_room(self, place: Place) -> bool:
        """Tell whether a caller may ask: whoever came earlier about that name has asked."""
        if place.lost or len(self._asking_about(place.name)) >= _ABOUT_ONE:
            return False
        waiting = (each for each in self._queues[place.group] if each in self._places)
        return next((each for each in waiting if _may_be_one(each.name, place.name)), place) is place

    def _asking_about(self, name: str) -> list[Place]:
        return [each for each in self._asking.get(_group(name), ()) if _may_be_one(each.name, name)]

    def _begun(self, name: str, now: float) -> float:
        """Return since when the Engine has been silent about a name, by any name that may mean the same."""
        while self._silent and now - (first := next(iter(self._silent.items())))[1].last > _MEMORY:
            del self._silent[first[0]]
        if not _ID.fullmatch(name):
            return self._silent[name].begun if name in self._silent else now
        found = (each.begun for other, each in self._silent.items() if _may_be_one(other, name))
        return min(found, default=now)

    def _note(self, name: str, now: float) -> None:
        begun = self._silent.pop(name, _Silence(now, now)).begun
        if len(self._silent) >= _MOST_NAMES:
            del self._silent[next(iter(self._silent))]
        self._silent[name] = _Silence(begun, now)  # the last one that was asked about is last

    def _leave(self, place: Place) -> None:
        self._places.pop(place, None)
        if place in self._asking.get(place.group, ()):
            del self._asking[place.group][place]
            if not self._asking[place.group]:
                del self._asking[place.group]
        self._wake_next(place.group)

    def _wake_next(self, group: str) -> None:
        """Wake who may go on, as somebody has left or begun: the first in a group, and the first without a place."""
        for each in self._queues.get(group, ()):
            if each in self._places:
                each.turn.notify()
                if not _ID.fullmatch(each.name):
                    break
        if len(self._places) < self._most and self._unplaced:
            next(iter(self._unplaced)).turn.notify()


def _held(place: Place) -> EngineHolds:
    return EngineHolds(place.name, time.monotonic() - place.begun)


def _group(name: str) -> str:
    """Return what all names have in common that may mean one thing: of IDs their beginning."""
    return name[: len("container ") + 1] if _ID.fullmatch(name) else name


def _may_be_one(one: str, other: str) -> bool:
    """Tell whether two names may mean one thing: a container's ID has many beginnings that name it, too."""
    if one == other:
        return True
    begins = one.startswith(other) or other.startswith(one)
    return begins and _ID.fullmatch(one) is not None and _ID.fullmatch(other) is not None
