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
from convgpu.core.memory.account import AccountView
from convgpu.daemon.gpu.ending import Place
from convgpu.daemon.gpu.nvml import DeviceError, Devices
from convgpu.daemon.gpu.nvml_executor import NvmlExecutor
from convgpu.daemon.system.procfs import is_alive, is_exiting

log = logging.getLogger(__name__)

# Seconds after which the audit has charged it.
_LONGEST: Final = 10.0
# A process is listed until it has ended, and for half a millisecond more (docs/measurements.md). Who was seen to
# have ended before that, and is listed, is kept. It is looked so often, after so many seconds.
_LISTED: Final = 0.001
_LOOKS: Final = 4
_STEP: Final = 0.01
# Processes of a container on a device; of more the oldest are left to the audit.
_MOST: Final = 512


@dataclass(slots=True)
class _Ended:
    """A process that has ended.

    Attributes:
        size: bytes that it used, and then those that are kept of it.
        until: seconds on the clock of the event loop; then it is the audit's.
        ended: likewise, when it was seen to have ended.
        is_kept: the driver listed it after that.
    """

    size: int
    until: float
    ended: float = math.inf
    is_kept: bool = False


class KeptMemory:
    """Knows what processes held that ended just now, and asks the driver which of it is kept.

    Args:
        left: returns what ended processes left to others of a device, in bytes by container: that is charged already.
        dispatch: tells the machine what may be kept, whenever that changes.
    """

    def __init__(
        self,
        machine: Machine,
        executor: NvmlExecutor,
        left: Callable[[str], Mapping[str, int]],
        dispatch: Callable[[e.MayBeKept], None],
    ) -> None:
        self._machine = machine
        self._executor = executor
        self._left = left
        self._dispatch = dispatch
        self._ended: defaultdict[Place, dict[int, _Ended]] = defaultdict(dict)  # by pid, the oldest first
        self._timers: set[Place] = set()  # of which old ones will be forgotten

    def begin(self, pid: int, container: str, used: Mapping[str, int]) -> None:
        """Take what the process of an ended session used, in bytes by device, but what stays charged anyway."""
        now = asyncio.get_running_loop().time()
        for device, size in used.items():
            place = Place(container, device)
            if pid and size:
                rows = self._ended[place]
                rows.pop(pid, None)
                rows[pid] = _Ended(size, now + _LONGEST)
                self._forget_old(place, now)
                self._tell(place)
                self._set_timer(place)

    def may_be_in_the_way(self, container: str, device: str, size: int, used: Callable[[], int]) -> bool:
        """Say whether an allocation is above the limit with all that may be kept, and not without it: then `look`.

        `used`: returns how many bytes the container's processes use by now.
        """
        place = Place(container, device)
        return self._is_in_the_way(place, size, used, self._most(place))

    def is_in_the_way(self, container: str, device: str, size: int, used: Callable[[], int]) -> bool:
        """Say the same of what is kept for certain."""
        place = Place(container, device)
        return self._is_in_the_way(place, size, used, self._certain(place))

    def kept(self, container: str, device: str) -> int:
        """Return how many bytes are kept for certain, beside those that the audit has charged."""
        place = Place(container, device)
        account = self._machine.account(*place)
        return self._uncharged(account, place, self._certain(place)) if account is not None else 0

    def _most(self, place: Place) -> int:
        return sum(one.size for one in self._ended.get(place, {}).values())

    def _certain(self, place: Place) -> int:
        return sum(one.size for one in self._ended.get(place, {}).values() if one.is_kept)

    def _is_in_the_way(self, place: Place, size: int, used: Callable[[], int], kept: int) -> bool:
        account = self._machine.account(*place) if kept else None
        if account is None:
            return False
        wanted = used() + account.charged + size  # without headroom, which is taken back for it
        return wanted <= account.limit < wanted + self._uncharged(account, place, kept)

    def _uncharged(self, account: AccountView, place: Place, kept: int) -> int:
        found = max(account.charged - self._left(place.device).get(place.container, 0), 0)  # by the audit
        return max(kept - found, 0)

    async def look(self, container: str, device: str) -> None:
        """Find out what is kept of a container's processes on a device. If nobody tells, nothing is."""
        place, clock = Place(container, device), asyncio.get_running_loop().time
        for _ in range(_LOOKS):
            asked = clock()
            try:
                listed = await self._executor.ask(device, _held)
            except DeviceError as error:
                log.warning("what ended processes of %s keep is left to the audit: %s", container, error)
                listed = {}
            if self._follow(place, listed, asked, clock()):
                return
            await asyncio.sleep(_STEP)

    def _follow(self, place: Place, listed: Mapping[int, int], asked: float, now: float) -> bool:
        """Follow what the driver listed when it was asked; say whether all is known."""
        is_known, before = True, self._most(place)
        for pid, one in list(self._ended.get(place, {}).items()):
            one.size = min(one.size, listed.get(pid, 0))
            if not one.size or is_alive(pid):  # the driver has freed it; or another process has the pid by now
                del self._ended[place][pid]
            else:
                if not is_exiting(pid):  # for longer than we look it counts in its own way (decision 225)
                    one.ended = min(one.ended, now)
                one.is_kept = one.is_kept or asked > one.ended + _LISTED
                is_known &= one.is_kept
        self._forget_old(place, now)
        if self._most(place) != before:
            self._tell(place)
        return is_known

    def _tell(self, place: Place) -> None:
        self._dispatch(e.MayBeKept(*place, self._most(place)))

    def _set_timer(self, place: Place) -> None:
        """Have it told when the oldest of a place is the audit's."""
        if place in self._ended and place not in self._timers:
            oldest = next(iter(self._ended[place].values()))
            self._timers.add(place)
            asyncio.get_running_loop().call_at(oldest.until, self._leave_old, place)

    def _leave_old(self, place: Place) -> None:
        self._timers.discard(place)
        if place in self._ended:
            self._forget_old(place, asyncio.get_running_loop().time())
            self._tell(place)
            self._set_timer(place)

    def _forget_old(self, place: Place, now: float) -> None:
        rows = self._ended.get(place, {})
        for pid in list(rows):
            if rows[pid].until > now and len(rows) <= _MOST:
                break
            del rows[pid]
        if not rows:
            self._ended.pop(place, None)


def _held(devices: Devices, uuid: str) -> Mapping[int, int]:
    return devices.used_by(uuid)
