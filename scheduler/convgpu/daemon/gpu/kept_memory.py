"""Memory of processes that ended just now, which their children keep: it counts in their container's limit at once.

A child that was forked has the driver's descriptors as well, and the memory lives as long as one of them. But the lease
of who ended goes back with its connection, and the audit charges what is there some seconds later. What another process
of the container was granted in between stood above the limit beside it, and the container was ended (decision 234).

So whoever asks for what such memory may be in the way of, waits until the driver was asked who has what. And nothing is
leased ahead beside it that would be above the limit: that could be taken without a question.
"""

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.daemon.gpu.ending import Place
from convgpu.daemon.gpu.nvml import DeviceError, Devices
from convgpu.daemon.gpu.nvml_executor import NvmlExecutor
from convgpu.daemon.system.procfs import is_alive, is_exiting

log = logging.getLogger(__name__)

# Seconds after which the audit has charged it, or so many audits.
_AUDITS: Final = 3
_LONGEST: Final = 10.0
# A process is listed until it has ended, and for half a millisecond more (docs/measurements.md). Who was seen to
# have ended before that, and is listed, is kept. It is looked so often, after so many seconds.
_LISTED: Final = 0.001
_LOOKS: Final = 4
_STEP: Final = 0.01
# Processes of a container on a device; of more those that had least are left to the audit.
_MOST: Final = 512


@dataclass(slots=True)
class _Ended:
    """A process that has ended.

    Attributes:
        size: bytes that it used, and then those that are kept of it.
        begun: seconds on the clock of the event loop, when its session ended.
        ended: likewise, when it was seen to have ended.
        is_kept: the driver listed it after that.
    """

    size: int
    begun: float
    ended: float = math.inf
    is_kept: bool = False


class KeptMemory:
    """Knows what processes held that ended just now, and asks the driver which of it is kept.

    Args:
        left: returns with how many bytes of a device a container is charged because its ended processes left them.
        dispatch: tells the machine what may be kept and is not charged, whenever that changes.
        audit: seconds between audits.
    """

    def __init__(
        self,
        machine: Machine,
        executor: NvmlExecutor,
        left: Callable[[str, str], int],
        dispatch: Callable[[e.MayBeKept], None],
        audit: float = 0.0,
    ) -> None:
        self._machine = machine
        self._executor = executor
        self._left = left
        self._dispatch = dispatch
        self._longest = max(_LONGEST, _AUDITS * audit)
        self._ended: defaultdict[Place, dict[int, _Ended]] = defaultdict(dict)  # by pid, the oldest first
        self._told: dict[Place, int] = {}
        self._before: dict[Place, int] = {}  # of what the audit has charged, what is of others
        self._timers: set[Place] = set()  # of which old ones will be forgotten

    def begin(self, pid: int, container: str, used: Mapping[str, int]) -> None:
        """Take what the process of an ended session used, in bytes by device, but what stays charged anyway."""
        now = asyncio.get_running_loop().time()
        for device, size in used.items():
            place = Place(container, device)
            if pid and size:
                if place not in self._ended:
                    self._before[place] = self._found(place)
                rows = self._ended[place]
                before = rows.pop(pid, None)  # of whom it may be kept as well
                self._executor.note_ended(device, pid)
                rows[pid] = _Ended(size + (before.size if before else 0), now)
                self._tell(place)
                self._set_timer(place)

    def most(self, container: str, device: str) -> int:
        """Return how many bytes may be kept, beside those that the audit has charged."""
        return self._uncharged(Place(container, device), lambda _: True)

    def certain(self, container: str, device: str) -> int:
        """Return how many bytes are kept as of the last look, beside those that the audit has charged."""
        return self._uncharged(Place(container, device), lambda one: one.is_kept)

    def _uncharged(self, place: Place, counts: Callable[[_Ended], bool]) -> int:
        kept = sum(one.size for one in self._ended.get(place, {}).values() if counts(one))
        if not kept:
            return 0
        return max(kept - max(self._found(place) - self._before[place], 0), 0)

    def _found(self, place: Place) -> int:
        """Return what the audit has charged."""
        return max(self._machine.charged(*place) - self._left(*place), 0)

    async def look(self, container: str, device: str) -> None:
        """Find out what is kept of a container's processes on a device. If nobody tells, nothing is for certain."""
        place, clock = Place(container, device), asyncio.get_running_loop().time
        for number in range(_LOOKS if place in self._ended else 0):
            await asyncio.sleep(_STEP if number else 0)
            asked = clock()
            try:
                listed = await self._executor.ask(device, _held)
            except DeviceError as error:
                log.warning("what ended processes of %s keep is left to the audit: %s", container, error)
                return
            if self._follow(place, listed, asked, clock()):
                return

    def _follow(self, place: Place, listed: Mapping[int, int], asked: float, now: float) -> bool:
        """Follow what the driver listed when it was asked; say whether all is known."""
        is_known = True
        for pid, one in list(self._ended.get(place, {}).items()):
            if asked < one.begun:  # it may have taken memory since
                is_known = False
                continue
            one.size = min(one.size, listed.get(pid, 0))
            if not one.size or is_alive(pid):  # the driver has freed it; or another process has the pid by now
                del self._ended[place][pid]
            else:
                if not is_exiting(pid):  # for longer than we look it counts in its own way (decision 225)
                    one.ended = min(one.ended, now)
                one.is_kept = one.is_kept or asked > one.ended + _LISTED
                is_known &= one.is_kept
        self._tell(place)
        return is_known or place not in self._ended

    def tell_again(self) -> None:
        """Tell what may be kept and is not charged; after each audit, which may have charged it."""
        for place in list(self._ended):
            self._tell(place)

    def _tell(self, place: Place) -> None:
        if place in self._before:
            self._before[place] = min(self._before[place], self._found(place))
        self._forget_old(place, asyncio.get_running_loop().time())
        size = self.most(*place)
        if size != self._told.pop(place, 0):
            self._dispatch(e.MayBeKept(*place, size))
        if size:
            self._told[place] = size

    def _set_timer(self, place: Place) -> None:
        """Have it told when the oldest of a place is the audit's."""
        if place in self._ended and place not in self._timers:
            oldest = next(iter(self._ended[place].values()))
            self._timers.add(place)
            asyncio.get_running_loop().call_at(oldest.begun + self._longest, self._leave_old, place)

    def _leave_old(self, place: Place) -> None:
        self._timers.discard(place)
        self._tell(place)
        self._set_timer(place)

    def _forget_old(self, place: Place, now: float) -> None:
        rows = self._ended.get(place, {})
        old = [pid for pid, one in rows.items() if one.begun + self._longest <= now]
        small = sorted(rows.keys() - old, key=lambda pid: rows[pid].size)[: max(len(rows) - len(old) - _MOST, 0)]
        for pid in (*old, *small):
            charged = max(self._found(place) - self._before[place], 0)
            self._before[place] += min(rows.pop(pid).size, charged)  # it is the audit's
        if not rows:
            self._ended.pop(place, None)
            self._before.pop(place, None)


def _held(devices: Devices, uuid: str) -> Mapping[int, int]:
    return devices.used_by(uuid)
