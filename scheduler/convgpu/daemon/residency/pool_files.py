"""The files of the host pool, which outlive porter and scheduler: whose copies are in them, and their end."""

import fcntl
import mmap
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from convgpu.daemon.system.procfs import lives_since

UNIT_SIZE: Final = 2 << 20
_INDEX_OFFSET: Final = 4096
_UNIT: Final = struct.Struct("=IIQQ16sII")  # `struct unit` of porter/src/pool/units.h: state, pid, started ...
_FULL: Final = 2


class PoolState(Enum):
    """Who needs the files of a pool."""

    IN_USE = "in use"  # a porter runs
    HAS_COPIES = "has copies"  # of processes that live
    GONE = "gone"  # nobody: they are removed


@dataclass(frozen=True, slots=True)
class PoolFiles:
    """The data file of a pool, and the index beside it.

    Attributes:
        path: of the data file.
    """

    path: Path

    @property
    def index(self) -> Path:
        """The file that says of each unit of the pool whose copy it has."""
        return self.path.with_name(f"{self.path.name}.index")

    def owners(self) -> Iterator[tuple[int, int]]:
        """Yield pid and start time of the process whose copy a unit has, for each unit of a complete copy.

        Raises:
            OSError: the files cannot be read.
        """
        for state, pid, started, *_ in _UNIT.iter_unpack(self._entries()):
            if state == _FULL:
                yield pid, started

    def _entries(self) -> bytes:
        """Return the entries of the index, as many as the pool has units; none where there is no pool."""
        try:
            units = self.path.stat().st_size // UNIT_SIZE
            with self.index.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as index:
                entries = index[_INDEX_OFFSET : _INDEX_OFFSET + units * _UNIT.size]
        except (FileNotFoundError, ValueError):  # there is none, or an empty one
            return b""
        return entries[: len(entries) // _UNIT.size * _UNIT.size]

    def copies_of(self, pid: int, started: int) -> dict[bytes, int]:
        """Return the bytes of complete copies of one process, by binary UUID of the device.

        Raises:
            OSError: the files cannot be read.
        """
        copies: Counter[bytes] = Counter()
        for state, owner, since, _piece, device, _part, _parts in _UNIT.iter_unpack(self._entries()):
            if (owner, since, state) == (pid, started, _FULL):
                copies[device] += UNIT_SIZE
        return copies

    def hold_copies(self) -> bool:
        """Tell whether a process that lives has memory in the pool."""
        return any(lives_since(pid, started) for pid, started in dict.fromkeys(self.owners()))

    def give_back(self) -> PoolState:
        """Give the host its memory back unless somebody needs it, and say who does.

        The lock is a porter's while it runs: that of a killed scheduler may still begin, or complete its first copy.
        It is held while the files are removed, so a porter that waits for it finds that they are gone, and makes
        others (`own` in porter/src/pool/units.c).
        """
        try:
            with self.path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self.hold_copies():
                    return PoolState.HAS_COPIES
                self._remove()
        except FileNotFoundError:  # there is none, or half of one
            self._remove()
        except OSError:  # it is locked; or nobody can tell, for want of descriptors: what may be needed stays
            return PoolState.IN_USE
        return PoolState.GONE

    def _remove(self) -> None:
        for file in (self.path, self.index):
            file.unlink(missing_ok=True)
        with suppress(OSError):  # never made, or somebody else's files are in it
            self.path.parent.rmdir()
