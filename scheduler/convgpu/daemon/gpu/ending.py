"""Processes that are ending, and the answers that wait for them: what they hold counts in their container's limit.

A process that dies closes its socket first, and then the driver's files: from there the driver frees its memory, for
36 us for each page that it had registered (docs/measurements.md). Its bytes are promised to the next one at once. Who
belongs to another container calls the driver when the card has room. But in its own container the next one could find
room on a card that is not full, and with it the container would be above its limit (decision 225).
"""

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from convgpu.core.machine import Machine


class Answerable(Protocol):
    """An allocation that was accepted."""

    @property
    def is_gone(self) -> bool:
        """Whether its process receives nothing any more."""

    @property
    def asked(self) -> tuple[int, int]:
        """Its session, and the frame that asked for it."""

    def accept(self) -> None:
        """Send the answer."""


class Place(NamedTuple):
    """A device of a container."""

    container: str
    device: str


class EndingProcesses:
    """Knows what ending processes hold, and keeps answers back that are above a limit with it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._held: defaultdict[Place, dict[int, int]] = defaultdict(dict)  # bytes by session
        self._pids: dict[int, int] = {}  # by session
        self._waiting: dict[Place, deque[tuple[int, Answerable]]] = {}  # with their bytes, first come first

    def begin(self, session: int, pid: int, container: str, used: Mapping[str, int]) -> None:
        """Count what the process of an ended session held, in bytes by device, until `end`."""
        self._pids[session] = pid
        for device, size in used.items():
            self._held[Place(container, device)][session] = size

    def end(self, session: int) -> None:
        """Count nothing more of a process that has ended, and send the answers that waited for that."""
        self._pids.pop(session, None)
        for place in [place for place, held in self._held.items() if session in held]:
            del self._held[place][session]
            if not self._held[place]:
                del self._held[place]
            self.send(place)

    def counted(self, pid: int, device: str) -> int:
        """Return the bytes of a device that are counted of an ending process."""
        sessions = {session for session, its in self._pids.items() if its == pid}
        rows = [held for place, held in self._held.items() if sessions and place.device == device]
        return sum(held.get(session, 0) for held in rows for session in sessions)

    def answer(self, place: Place, size: int, one: Answerable) -> None:
        """Send the answer of an allocation of so many bytes, which are leased already, as soon as there is room."""
        if place not in self._held:
            one.accept()
            return
        self._waiting.setdefault(place, deque()).append((size, one))
        self.send(place)

    def withdraw(self, container: str, asked: tuple[int, int]) -> tuple[str, int] | None:
        """Keep no answer of an allocation any more: return its device and bytes, None if it does not wait."""
        for place, waiting in self._waiting.items():
            for size, one in waiting if place.container == container else ():
                if one.asked == asked:
                    waiting.remove((size, one))
                    return place.device, size
        return None

    def send(self, place: Place) -> None:
        """Send the answers for which there is room: there may be more of it now."""
        waiting = deque((size, one) for size, one in self._waiting.pop(place, ()) if not one.is_gone)
        left = sum(size for size, _ in waiting)
        while waiting and self._has_room(place, left - waiting[0][0]):
            size, one = waiting.popleft()
            left -= size
            one.accept()
        if waiting:
            self._waiting[place] = waiting

    def _has_room(self, place: Place, unused: int) -> bool:
        """Say whether all that is leased but `unused` bytes is within the limit, beside what ending ones hold."""
        account = self._machine.account(*place)
        if account is None or place not in self._held:
            return True
        return account.held - unused + sum(self._held[place].values()) <= account.limit
