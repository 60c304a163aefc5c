"""What a process exported, and what of it somebody has: of each descriptor an epoll instance of its own knows that.

What there is no room for is never left out: it would be memory that nobody is charged with. It is put together by the
numbers of the descriptors, or counts as open until the end (docs/decisions/0207).
"""

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from convgpu.daemon.system.processes.epoll_entries import has_entry
from convgpu.protocol.inspection.messages import EXPECTED, Exported

# Of a process: names, descriptors of all of them, and instances. One that makes more has its own closed.
_MOST_NAMES: Final = 4096
_MOST_ENTRIES: Final = 16_384
_MOST_EXPECTED: Final = 1024  # calls of its threads at one time
# Of all processes of a container; one more takes some 550 bytes here.
_MOST_OF_A_CONTAINER: Final = 65_536
_DOUBTS: Final = 3
MOST_INSTANCES: Final = 8
# In place of a copy of an instance. UNKNOWN: there is none, or not yet, and nothing that it knows is charged. OPEN: all
# that it knows counts as open, as long as a device has memory that no process has.
UNKNOWN: Final = -1
OPEN: Final = -2

Instance = tuple[int, int]  # the process's descriptor, and its generation
_ANY: Final[Instance] = (-1, 0)  # whose copy is OPEN
_DEVICES: Final = 64


@dataclass(slots=True)
class _Row:
    """Memory of a device, in bytes, and the entries of its descriptors."""

    device: str
    size: int
    entries: set[tuple[Instance, int]] = field(default_factory=set)


@dataclass(slots=True, weakref_slot=True)
class Room:
    """How many entries the processes of one container have, of all that they may have together."""

    entries: int = 0

    @property
    def is_full(self) -> bool:
        """Whether what comes is put together, and counts as open."""
        return self.entries >= _MOST_OF_A_CONTAINER


@dataclass(slots=True)
class _Rows:
    """Rows by name, and the bytes of all of them by device."""

    by_name: dict[int, _Row] = field(default_factory=dict)
    total: Counter[str] = field(default_factory=Counter)

    def grow(self, name: int, device: str, size: int) -> _Row:
        """Add so many bytes to a row, which is made if there is none."""
        row = self.by_name.setdefault(name, _Row(device, 0))
        row.size += size
        self.total[row.device] += size
        return row

    def drop(self, name: int) -> int:
        """Forget a row, if there is one; return how many entries it had."""
        row = self.by_name.pop(name, None)
        if row is None:
            return 0
        self.total[row.device] -= row.size
        return len(row.entries)


@dataclass(slots=True)
class Exports:
    """What a process exported, by the name that it gave it.

    Attributes:
        copies: of its instances: descriptors of ours, UNKNOWN or OPEN.
        copying: its instances of which a copy is being taken.
        most: bytes by device that may be charged: what the process used.
        charged: likewise, that are charged since its end.
        removed: likewise, that nobody is charged with since its volume was removed.
        earlier: bytes by device that it told an earlier scheduler of, and not this one yet: they count as open.
        room: shared with the other processes of the container.
        pid: of the process, since its end; 0: an earlier scheduler knew it.
    """

    container: str
    room: Room = field(default_factory=Room)
    copies: dict[Instance, int] = field(default_factory=dict)
    copying: dict[Instance, asyncio.Event] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    charged: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)
    earlier: Mapping[str, int] = field(default_factory=dict)
    pid: int = 0
    is_closed: bool = False
    is_logged: bool = False
    _rows: _Rows = field(default_factory=_Rows)
    _expected: _Rows = field(default_factory=_Rows)  # which the driver may have made by now
    _doubts: Counter[str] = field(default_factory=Counter)
    _entries: int = 0
    _looking: threading.Lock = field(default_factory=threading.Lock)  # for who forgets what is closed

    @property
    def looked_at_with(self) -> str:
        """The container whose looks find what of it is closed; nothing: those of all that were removed."""
        return "" if any(self.removed.values()) else self.container

    def note(self, told: Exported, device: str) -> Instance | None:
        """Note what the process tells of a descriptor; return the instance of which there is to be a copy, if any."""
        if told.instance == EXPECTED:
            self._expect(told, device)
            return None
        instance, number = (told.instance, told.generation), told.number
        if instance not in self.copies and len(self.copies) >= MOST_INSTANCES:
            instance, number = _ANY, 0
            self.copies[_ANY] = OPEN
        before = self._rows.total[device]
        row = self._row(told, device)
        self._expect_less(device, self._rows.total[device] - before)
        if (instance, number) not in row.entries and (_ANY, 0) not in row.entries:
            row.entries.add((instance, number))
            self._count(1)
        return instance

    def _count(self, entries: int) -> None:
        self._entries += entries
        self.room.entries += entries

    def _expect_less(self, device: str, size: int) -> None:
        """Take what is told as what an earlier scheduler was told of."""
        if device in self.earlier:
            self.earlier = {**self.earlier, device: max(self.earlier[device] - size, 0)}

    def _expect(self, told: Exported, device: str) -> None:
        is_full = len(self._expected.by_name) >= _MOST_EXPECTED or self.room.is_full
        name = -1 - told.device if is_full else told.name
        self._count(name not in self._expected.by_name)
        self._expected.grow(name, device, told.size)

    def _row(self, told: Exported, device: str) -> _Row:
        """Return the row of a name; where there are too many, that of all on a device with the same number."""
        known, is_full = self._rows.by_name, self._entries >= _MOST_ENTRIES or self.room.is_full
        if not is_full and (told.name in known or len(known) < _MOST_NAMES):
            before = known[told.name].size if told.name in known else 0
            return self._rows.grow(told.name, device, max(told.size - before, 0))
        name = -1 - told.number * _DEVICES - told.device
        if name not in known and (len(known) >= 2 * _MOST_NAMES or self.room.is_full):
            name = -1 - told.device  # no descriptor has the number 0 there: it counts as open
            self.copies[_ANY] = OPEN
            row = self._rows.grow(name, device, 0)
            self._count((_ANY, 0) not in row.entries)
            row.entries.add((_ANY, 0))
        return self._rows.grow(name, device, told.size)

    def forget(self, name: int) -> None:
        """Forget what has that name: the process says that it is closed."""
        self._count(-(name in self._expected.by_name))
        self._expected.drop(name)
        self._count(-self._rows.drop(name))

    def doubt(self, device: str) -> bool:
        """Forget what may be there on a device or not, once that was doubted often enough; say whether there was any.

        That is what the driver was about to make, and what an earlier scheduler was told of; the next look forgets what
        counts as open. What is seen first after the end of the process may be of the time before it, and the next with
        it.
        """
        self._doubts[device] += 1
        if self._doubts[device] < _DOUBTS:
            return False
        gone = [name for name, row in self._expected.by_name.items() if row.device == device]
        for name in gone:
            self._expected.drop(name)
        self._count(-len(gone))
        earlier = dict(self.earlier)
        size, self.earlier = earlier.pop(device, 0), earlier
        return bool(gone) or size > 0

    def forget_expected(self) -> None:
        """Forget what the driver was about to make."""
        self._count(-len(self._expected.by_name))
        self._expected = _Rows()

    def forget_earlier(self) -> None:
        """Take it that the process has told of all."""
        self.earlier = {}

    def leave_room(self) -> None:
        """Give the others of the container the room that this process had."""
        self._count(-self._entries)

    def forget_closed(self, seconds: float) -> None:
        """Forget what nobody has any more, for so many seconds.

        Two looks may come to it at once, when its container is removed meanwhile: the other one leaves it out.
        """
        if not self._looking.acquire(blocking=False):
            return
        try:
            self._forget_closed(time.monotonic() + seconds)
        finally:
            self._looking.release()

    def _forget_closed(self, end: float) -> None:
        rows = self._rows.by_name
        for name, row in list(rows.items()):
            if time.monotonic() > end:
                return
            if self._is_open(row, end):
                rows[name] = rows.pop(name)  # the others come first the next time
            else:
                self._rows.drop(name)

    def _is_open(self, row: _Row, end: float) -> bool:
        """Say whether somebody has it, or there was no time to find out."""
        for instance, number in row.entries:
            copy = self.copies.get(instance, UNKNOWN)
            if time.monotonic() > end or (copy >= 0 and has_entry(copy, number)):
                return True
            if copy == OPEN and self._doubts[row.device] < _DOUBTS:
                return True
        return False

    def sizes(self) -> Counter[str]:
        """Return what somebody has, but no more than may be charged."""
        found = self.told()
        return Counter({device: min(size, self.most.get(device, 0)) for device, size in found.items()})

    def told(self) -> Counter[str]:
        """Return what the process told of, and did not say to be closed, in bytes by device."""
        return self._rows.total + self._expected.total + Counter(self.earlier)

    def uncertain(self, device: str) -> int:
        """Return the bytes of a device of which nobody can tell whether they are there, and not by what it did."""
        return self._expected.total[device] + self.earlier.get(device, 0)

    def close(self) -> None:
        """Close the copies; as they may have millions of entries, that may take seconds."""
        for copy in self.copies.values():
            if copy >= 0:
                os.close(copy)
