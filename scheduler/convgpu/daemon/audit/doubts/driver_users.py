"""Which processes have the driver open; it is looked at in a thread, and no longer than a moment at a time.

A look at one process takes up to 17 ms: it may have a thousand descriptors before the one that counts, and a container
may have thousands of processes. So not everybody is looked at each time, and who was not, is one of whom it cannot be
told.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from random import SystemRandom
from typing import Final

from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.system.open_files import FileIdentity, has_open
from convgpu.daemon.system.processes.daemon_threads import in_daemon_thread
from convgpu.daemon.system.procfs import processes

# Seconds for the processes of one look, and for those of containers.
_BUDGET: Final = 0.1
_BUDGET_OF_CONTAINERS: Final = 0.25
# Processes of the host, of more nobody asks whose they are (30 us each).
_MOST_PROCESSES: Final = 4096
_random: Final = SystemRandom()


class DriverUsers:
    """Remembers which processes were seen to have the driver open.

    Args:
        control: the driver's control node; None: there is none, and all that are listed use the driver.
    """

    def __init__(self, control: FileIdentity | None) -> None:
        self._control = control
        self._seen: dict[int, int] = {}  # starts by pid
        self._turns: dict[int, int] = {}  # the number of the last look at a process of which it cannot be told, by pid
        self._looks = 0
        self._looked: dict[int, tuple[int, bool | None]] = {}  # with the starts, what the last look found
        self._keeping: dict[str, bool] = {}  # volumes, at the last look

    async def look(self, starts: Mapping[int, int], volumes: AbstractSet[str], index: ProcessIndex) -> None:
        """Look at processes, and at all of some containers.

        Args:
            starts: of the processes, by pid; nobody else is remembered.
            volumes: of the containers.
            index: tells the containers' processes.
        """
        self._seen = {pid: start for pid, start in self._seen.items() if starts.get(pid) == start}
        self._turns = {pid: turn for pid, turn in self._turns.items() if pid in starts}
        self._looked, self._keeping = {}, {}
        control, fresh = self._control, [pid for pid in starts if pid not in self._seen]
        if control is None or not (fresh or volumes):
            return
        self._looks += 1
        fresh.sort(key=lambda pid: self._turns.get(pid, 0))
        found = await in_daemon_thread(lambda: _look(fresh, control, time.monotonic() + _BUDGET))
        self._turns |= dict.fromkeys(found, self._looks)
        self._seen |= {pid: starts[pid] for pid, has in found.items() if has}
        self._looked = {pid: (starts[pid], has) for pid, has in found.items()}
        if volumes:
            until = time.monotonic() + _BUDGET_OF_CONTAINERS
            self._keeping = await in_daemon_thread(lambda: _look_at_containers(volumes, index, control, until))

    def uses(self, pid: int, start: int) -> bool | None:
        """Say whether a process has the driver open, as far as can be told; None: there was no time to look."""
        if self.surely_uses(pid, start):
            return True
        looked, has = self._looked.get(pid, (0, None))
        return has is not False if looked == start else None

    def surely_uses(self, pid: int, start: int) -> bool:
        """Say whether a process was seen to have the driver open, once since it started."""
        return self._control is None or self._seen.get(pid) == start

    def keeps(self, volume: str) -> bool:
        """Say whether a process of a container has the driver open, as far as can be told."""
        return self._keeping.get(volume, True)


def _look(pids: Iterable[int], control: FileIdentity, until: float) -> dict[int, bool | None]:
    """Return who has it open, None: it cannot be told; of one at least, and of as many as there is time for."""
    found = {}
    for pid in pids:
        found[pid] = has_open(pid, control)
        if time.monotonic() > until:
            break
    return found


def _look_at_containers(
    volumes: AbstractSet[str], index: ProcessIndex, control: FileIdentity, until: float
) -> dict[str, bool]:
    """Return of which containers a process has it open, and of which none; others are missing: there was no time."""
    all_pids, pids = processes(), defaultdict[str, list[int]](list)
    if len(all_pids) > _MOST_PROCESSES:
        return {}
    for pid in all_pids:
        if time.monotonic() > until:
            return {}
        pids[index.volume_of(pid) or ""].append(pid)
    found = {}
    for volume in _random.sample(sorted(volumes), len(volumes)):
        told = _has_one(pids[volume], control, until)
        if told is not None:
            found[volume] = told
    return found


def _has_one(pids: Sequence[int], control: FileIdentity, until: float) -> bool | None:
    for pid in pids:
        if time.monotonic() > until:
            return None
        if has_open(pid, control) is not False:
            return True
    return False
