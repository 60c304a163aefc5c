"""What containers are charged with is counted again when it is in the way of an allocation: it may be gone by now.

The audit finds what nobody leases, and charges it; what was freed since then stays charged until it has looked again,
for seconds. Who asks for memory meanwhile would be refused (decision 235).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from convgpu.core import events as e
from convgpu.core.audit.attribution import MemorySample, Owner
from convgpu.daemon.audit.attributor import Attributor, Leases
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.sessions.outliving import OutlivingMemory

# Seconds from one count on a device to the next at least; of those that take long, twice as many. Whoever is refused
# again and again must leave time for all others.
_STEP: Final = 0.1

TakeSamples = Callable[[AbstractSet[str]], Awaitable[tuple[list[MemorySample], Leases]]]


class Recount:
    """Takes back what containers are charged with and is there no more; it never charges more.

    Args:
        take: returns samples of devices, and what processes could have on them meanwhile.
        outliving: what ended processes left is charged beside that.
    """

    def __init__(
        self, take: TakeSamples, driver: MachineDriver, attributor: Attributor, outliving: OutlivingMemory
    ) -> None:
        self._take = take
        self._driver = driver
        self._attributor = attributor
        self._outliving = outliving
        self._counts: dict[str, asyncio.Task[None]] = {}  # by device
        self._next: dict[str, float] = {}  # when the next one may begin, on the clock of the loop

    async def count(self, device: str) -> None:
        """Count on a device; return when a count has ended that began after the call. Who asks meanwhile shares one."""
        if (begun := self._counts.get(device)) is not None:
            await asyncio.wait([begun])
        await asyncio.shield(self._begin(device))

    def _begin(self, device: str) -> asyncio.Task[None]:
        if device not in self._counts:
            task = self._counts[device] = asyncio.get_running_loop().create_task(self._count(device))
            task.add_done_callback(lambda _: self._counts.pop(device))
        return self._counts[device]

    async def _count(self, device: str) -> None:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(self._next.get(device, 0.0) - clock())
        begun = clock()
        self._next[device] = begun + _STEP
        found = await self._attributor.claims.confirm(device)
        samples, leases = await self._take({device})
        for sample in samples:
            if sample.error is None and sample.held is not None:
                self._take_back(sample, leases, found)
        self._next[device] = begun + max(_STEP, 2 * (clock() - begun))

    def _take_back(self, sample: MemorySample, leases: Leases, found: Mapping[Owner, int]) -> None:
        device, index = sample.device, self._attributor.index()
        unleased = self._attributor.attribute(sample, leases, index, found).unleased
        left = self._outliving.charged(device)
        for name, account in self._driver.machine.snapshot().on(device).items():
            size = unleased.get(name, 0) + left[name]
            if size < account.charged:
                self._driver.dispatch(e.UnleasedMemory(name, device, size))
