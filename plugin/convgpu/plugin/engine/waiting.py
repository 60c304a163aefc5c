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
        begun: seconds of the clock since which the Engine has been silent about it, by whatever name.
        asks: the Engine; else it waits until fewer ask about that name.
        lost: another caller has got the place.
        connection: to the Engine.
    """

    name: str
    begun: float
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

    Args:
        patience: seconds after which an answer is late.
        places: for callers who wait.
    """

    def __init__(self, patience: float = _PATIENCE, places: int = PLACES) -> None:
        self._patience = patience
        self._most = places
        self._places: list[Place] = []
        self._silent: dict[str, _Silence] = {}
        self._changed = threading.Condition()

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
        with self._changed:
            place = self._take(name)
        try:
            yield place
        except Exception as error:
            if place.lost or isinstance(error, TimeoutError):
                raise _held(place) from error
            raise
        else:
            with self._changed:
                self._silent.pop(name, None)
        finally:
            with self._changed:
                self._leave(place)

    def _take(self, name: str) -> Place:
        now = time.monotonic()
        latest = now + self._patience
        place = Place(name, self._begun(name, now))
        while not (self._is_placed(place, now) and self._has_room(place)):
            in_the_way = self._asking(name) if place in self._places else self._places
            left = min(latest, self._patience + min(each.begun for each in in_the_way)) - now
            if place.lost or (place in self._places and left <= 0):
                self._leave(place)
                raise _held(place)
            self._changed.wait(max(left, _STEP))
            now = time.monotonic()
        place.asks = True
        self._note(name, now)
        return place

    def _is_placed(self, place: Place, now: float) -> bool:
        """Give a caller a place, if one is free or somebody's answer is late; tell whether it has had one."""
        if place.lost or place in self._places:
            return True
        if len(self._places) >= self._most:
            first = min(self._places, key=lambda each: (each.begun, each.asks))
            if now - first.begun < self._patience:
                return False
            self._places.remove(first)
            first.lose()
            self._changed.notify_all()
        self._places.append(place)
        return True

    def _has_room(self, place: Place) -> bool:
        return not place.lost and len(self._asking(place.name)) < _ABOUT_ONE

    def _asking(self, name: str) -> list[Place]:
        return [each for each in self._places if each.asks and _may_be_one(each.name, name)]

    def _begun(self, name: str, now: float) -> float:
        """Return since when the Engine has been silent about a name, by any name that may mean the same."""
        for other in [key for key, each in self._silent.items() if now - each.last > _MEMORY]:
            del self._silent[other]
        found = (each.begun for other, each in self._silent.items() if _may_be_one(other, name))
        return min(found, default=now)

    def _note(self, name: str, now: float) -> None:
        if len(self._silent) >= _MOST_NAMES:
            del self._silent[next(iter(self._silent))]
        self._silent.setdefault(name, _Silence(now, now)).last = now

    def _leave(self, place: Place) -> None:
        if place in self._places:
            self._places.remove(place)
        self._changed.notify_all()


def _held(place: Place) -> EngineHolds:
    return EngineHolds(place.name, time.monotonic() - place.begun)


def _may_be_one(one: str, other: str) -> bool:
    """Tell whether two names may mean one thing: a container's ID has many beginnings that name it, too."""
    if one == other:
        return True
    begins = one.startswith(other) or other.startswith(one)
    return begins and _ID.fullmatch(one) is not None and _ID.fullmatch(other) is not None
