"""Searches containers' PID namespaces for memory of the dead whom nobody saw: without that it is nobody's.

A process can begin, take memory and end between two looks, or have nothing until it has ended: whoever has its
descriptor makes memory of it. Without a context NVML does not list it, either. The driver tells what is held with each
pid of a namespace, so all pids are asked about that there may be; and whoever is not alive is of the container whose
namespace it is (decision 204).
"""

import asyncio
import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from convgpu.core.audit.attribution import Owner
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.doubts.pid_slices import Looked, Plan, look
from convgpu.daemon.gpu.nvml import DeviceError, Devices, UnnamedError
from convgpu.daemon.system.processes.daemon_threads import in_daemon_thread

log = logging.getLogger(__name__)

# Bytes that are nobody's; less is not searched for.
_WORTH: Final = 64 << 20
# Seconds between two searches at least, and at most: it doubles with each pass over all pids that found nothing.
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
# Seconds for which it goes on when nothing is nobody's any more.
_LINGER: Final = 60.0
# Seconds after a search that failed.
_FAILED: Final = 10.0
# Seconds for which holds what was told of a namespace.
_STALE: Final = 10.0


@dataclass(slots=True)
class _Known:
    """What is known of a namespace.

    Attributes:
        owner: the container.
        plan: what is to be asked about next.
        sizes: bytes by device and pid, of the dead.
        all_of: bytes by device, where whoever asked was ended or stopped each time: all that was nobody's.
        at: seconds on the loop's clock when that was told.
    """

    owner: Owner
    plan: Plan = field(default_factory=Plan)
    sizes: dict[str, dict[int, int]] = field(default_factory=dict)
    all_of: Mapping[str, int] = field(default_factory=dict)
    at: float = -math.inf

    def held(self, device: str) -> int:
        """Return the bytes of a device that its dead ones hold."""
        return sum(self.sizes.get(device, {}).values()) + self.all_of.get(device, 0)


class UnseenMemory:
    """Searches while some memory is nobody's, or was; nobody waits for it.

    Args:
        devices: answer; if they cannot, they are not asked again.
    """

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._own = Path("/proc/self/ns/pid").stat().st_ino
        self._index: ProcessIndex | None = None
        self._nobodys: Mapping[str, int] = {}
        self._sought: Mapping[str, int] = {}  # what was nobody's when the pause was shortest
        self._until = 0.0
        self._pause = _PAUSE
        self._more = asyncio.Event()  # it is worth it not to wait
        self._task: asyncio.Task[None] | None = None
        self._known: dict[int, _Known] = {}  # by inode
        self._has_complained = False
        self._can_tell = True

    def follow(self, nobodys: Mapping[str, int], index: ProcessIndex) -> None:
        """Search, if it is worth it.

        Args:
            nobodys: bytes by device.
            index: tells the containers' processes.
        """
        now = asyncio.get_running_loop().time()
        self._index, self._nobodys = index, dict(nobodys)
        devices = nobodys.keys() | self._sought.keys()
        if any(abs(nobodys.get(each, 0) - self._sought.get(each, 0)) > _WORTH for each in devices):
            self._sought, self._pause = dict(nobodys), _PAUSE
            self._more.set()
        if any(size > _WORTH for size in nobodys.values()) or any(self.found(each) for each in devices):
            self._until = now + _LINGER
        if self._can_tell and now < self._until and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run())

    def found(self, device: str) -> Mapping[Owner, int]:
        """Return what the dead of each container hold of a device, in bytes; nobody may have seen them alive."""
        since = asyncio.get_running_loop().time() - _STALE
        rows = ((one.owner, one.held(device)) for one in self._known.values() if one.at > since)
        return {owner: size for owner, size in rows if size}

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while (begun := clock()) < self._until and self._can_tell:
            pause = await self._try()
            self._more.clear()
            with suppress(TimeoutError):  # at most half of the time
                await asyncio.sleep(clock() - begun)
                await asyncio.wait_for(self._more.wait(), max(pause - (clock() - begun), 0))
        self._known = {}
        await self._leave()

    async def _try(self) -> float:
        """Search, and return the seconds until the next search."""
        try:
            is_over = await self._search()
        except UnnamedError as error:
            log.info("%s: memory of a dead process that nobody saw alive stays nobody's", error)
            self._can_tell = False
            return 0.0
        except (DeviceError, OSError, RuntimeError) as error:  # no descriptors are left, or no thread can be begun
            log.warning("memory of dead processes that nobody saw is searched for in %g s: %s", _FAILED, error)
        except Exception:  # a fault here must not go unseen
            log.exception("memory of dead processes that nobody saw is searched for in %g s", _FAILED)
        else:
            has_found = any(one.held(device) for one in self._known.values() for device in self._nobodys)
            if is_over:
                self._pause = _PAUSE if has_found else min(2 * self._pause, _LONGEST_PAUSE)
            return self._pause if is_over else _PAUSE
        self._known = {}
        return _FAILED

    async def _search(self) -> bool:
        """Search for some time; say whether a pass over all pids of all namespaces is over."""
        index = self._index
        if index is None:
            return True
        plans = {inode: (one.owner, one.plan) for inode, one in self._known.items()}
        looked = await in_daemon_thread(lambda: look(self._devices, index, self._own, plans))
        same = {inode: one for inode, one in self._known.items() if looked.owners.get(inode) == one.owner}
        self._known = {inode: same.get(inode) or _Known(owner) for inode, owner in looked.owners.items()}
        await self._judge(looked)
        return not any(one.plan.left for one in self._known.values())

    async def _judge(self, looked: Looked) -> None:
        """Take what was told."""
        for inode, known in self._known.items():
            known.plan = looked.plans[inode]
        for inode, told in looked.told:
            known = self._known[inode]
            if told.is_disturbed:  # each time: who asked was ended or stopped there
                known.all_of = {device: self._nobodys[device] for device in self._nobodys}
            elif told.sizes is None:
                await self._complain(told.trouble)
                known.sizes, known.all_of = {}, {}
            else:
                for device in told.sizes.keys() | known.sizes.keys():
                    before = known.sizes.get(device, {})
                    kept = {pid: size for pid, size in before.items() if pid not in told.asked}
                    known.sizes[device] = kept | dict(told.sizes.get(device, {}))
                known.all_of = {}
            known.at = asyncio.get_running_loop().time()

    async def _complain(self, trouble: str) -> None:
        """Say once why nothing is told, and have who asks begin anew: it may have lost a card."""
        if not self._has_complained:
            self._has_complained = True
            log.warning("memory of dead processes that nobody saw is not told: %s", trouble)
        await self._leave()

    async def _leave(self) -> None:
        with suppress(DeviceError, OSError, RuntimeError):
            await in_daemon_thread(lambda: self._devices.search_inside([]))

    def close(self) -> None:
        """Search no more. Who searches closes what it opened."""
        if self._task is not None:
            self._task.cancel()
