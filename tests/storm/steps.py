"""The steps of a move, by name, and a kill that is planned for one of them: the test's end of saboteur.c."""

import mmap
import struct
from collections import Counter
from pathlib import Path
from typing import Final

_HEAD: Final = struct.Struct("=IIiiII52s")  # armed, killed, skip, victim, listed, lists, step
_ROW: Final = struct.Struct("=52sI")  # name, times
_SEEN: Final = 256
SIZE: Final = _HEAD.size + _ROW.size * _SEEN
ITSELF: Final = 0  # as victim: whoever reaches the step


class Plan:
    """A file that all processes of a test map.

    Args:
        path: where it is made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(SIZE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), SIZE)

    def _field(self, number: int) -> int:
        return int(struct.unpack_from("=i", self._memory, 4 * number)[0])

    def _set(self, number: int, value: int) -> None:
        struct.pack_into("=i", self._memory, 4 * number, value)

    def arm(self, step: str, skip: int = 0, victim: int = ITSELF) -> None:
        """Kill the victim (a pid) when a process reaches the step, after it was reached `skip` times."""
        self.disarm()
        struct.pack_into("52s", self._memory, 24, step.encode())
        self._set(1, 0)
        self._set(2, skip)
        self._set(3, victim)
        self._set(0, 1)

    def disarm(self) -> None:
        self._set(0, 0)

    @property
    def killed(self) -> int:
        """Return the pid of who was killed, 0 while nobody was."""
        return self._field(1)

    def begin_list(self) -> None:
        """List the steps that are reached from now on."""
        self._set(4, 0)
        self._memory[_HEAD.size :] = bytes(SIZE - _HEAD.size)
        self._set(5, 1)

    def listed(self) -> Counter[str]:
        """Return how often each step was reached since then."""
        times = Counter[str]()
        rows = min(self._field(4), _SEEN) * _ROW.size
        for name, count in _ROW.iter_unpack(self._memory[_HEAD.size :][:rows]):
            times[name.rstrip(b"\0").decode()] += count
        return times

    def end_list(self) -> list[str]:
        """Return the steps that were reached, sorted."""
        self._set(5, 0)
        return sorted(self.listed())

    def close(self) -> None:
        self._memory.close()
