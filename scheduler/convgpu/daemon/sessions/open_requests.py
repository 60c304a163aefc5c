"""Bounds on the requests that are open at a time. Each costs work at every event; those that wait for it cost none.

A program has as many open requests as threads that stand still. What comes beyond the bounds begins in the order of
arrival, processes in turns, as earlier requests are answered (decision 70).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from convgpu.daemon.sessions.session import Session
from convgpu.daemon.transport.shares import Shares

MAX_QUEUED: Final = 1024  # of a session
Withdrawal = tuple[int, Callable[[], None]]
"""The frame that asked, and what to do if it is withdrawn before it begins."""


class Kind(Enum):
    """What a request keeps busy: the machine, or NVML."""

    ALLOCATION = 0
    MEASUREMENT = 1


class _Bound(NamedTuple):
    session: int
    container: int


BOUNDS: Final = {Kind.ALLOCATION: _Bound(64, 256), Kind.MEASUREMENT: _Bound(64, 128)}


class _Queued(NamedTuple):
    start: Callable[[], None]
    withdrawal: Withdrawal | None


@dataclass(slots=True)
class _Line:
    """The requests of one kind of one container.

    Attributes:
        open: how many, by the number of the session.
        queued: what begins later, by the number of the session, which are in turn.
        total: all that are open.
    """

    open: dict[int, int] = field(default_factory=dict)
    queued: dict[int, deque[_Queued]] = field(default_factory=dict)
    total: int = 0


class OpenRequests:
    """Begins requests of processes, now or when others of their container are done."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._lines: dict[tuple[str, Kind], _Line] = {}

    def begin(
        self, session: Session, kind: Kind, start: Callable[[], None], withdrawal: Withdrawal | None = None
    ) -> bool:
        """Start a request now or later; `done` must follow once. False when too many of the session wait already."""
        line = self._lines.setdefault((session.container, kind), _Line())
        number = session.number
        if number not in line.queued and self._has_room(line, kind, number):
            self._open(line, number)
            start()
            return True
        queue = line.queued.setdefault(number, deque())
        if len(queue) >= MAX_QUEUED:
            return False
        queue.append(_Queued(start, withdrawal))
        return True

    def withdraw(self, session: Session, frame: int) -> bool:
        """Drop an allocation of a session that has not begun, by the frame that asked; say whether there was one."""
        key = session.container, Kind.ALLOCATION
        line = self._lines.get(key)
        queue = line.queued.get(session.number) if line is not None else None
        if line is None or queue is None:
            return False
        for queued in queue:
            if queued.withdrawal is not None and queued.withdrawal[0] == frame:
                queue.remove(queued)
                if not queue:
                    del line.queued[session.number]
                queued.withdrawal[1]()
                self._go_on(key, line)
                return True
        return False

    def done(self, session: Session, kind: Kind) -> None:
        """End a request of a session; one that was forgotten meanwhile does not count."""
        key = session.container, kind
        line = self._lines.get(key)
        if line is None or not line.open.get(session.number):
            return
        line.total -= 1
        line.open[session.number] -= 1
        if not line.open[session.number]:
            del line.open[session.number]
        self._go_on(key, line)

    def forget(self, session: Session) -> None:
        """Drop all requests of a session that has ended, or was replaced by another one, which asks again."""
        for kind in Kind:
            key = session.container, kind
            line = self._lines.get(key)
            if line is not None:
                line.total -= line.open.pop(session.number, 0)
                line.queued.pop(session.number, None)
                self._go_on(key, line)

    def queued(self, session: Session) -> int:
        """Return how many requests of a session have not begun."""
        lines = (self._lines.get((session.container, kind)) for kind in Kind)
        return sum(len(line.queued.get(session.number, ())) for line in lines if line is not None)

    @staticmethod
    def _has_room(line: _Line, kind: Kind, number: int) -> bool:
        bound = BOUNDS[kind]
        return line.total < bound.container and line.open.get(number, 0) < bound.session

    @staticmethod
    def _open(line: _Line, number: int) -> None:
        line.total += 1
        line.open[number] = line.open.get(number, 0) + 1

    def _go_on(self, key: tuple[str, Kind], line: _Line) -> None:
        """Begin what waits, one in each turn of the container; forget a line that nobody stands in."""
        if line.queued:
            self._shares.of(key[0]).call_soon(lambda: self._begin_next(key), key)
        elif not line.total and self._lines.get(key) is line:  # what begins may end within
            del self._lines[key]

    def _begin_next(self, key: tuple[str, Kind]) -> None:
        line = self._lines.get(key)
        if line is None:
            return
        number = next((number for number in line.queued if self._has_room(line, key[1], number)), None)
        if number is None:
            return
        queue = line.queued.pop(number)
        start = queue.popleft().start
        if queue:
            line.queued[number] = queue  # behind the others
        self._open(line, number)
        start()
        self._go_on(key, line)
