"""Decides whether an allocation that the driver refused although it was granted may wait."""

import asyncio
import logging
from typing import Final, NamedTuple

from convgpu.core.audit.attribution import NOISE, MemorySample
from convgpu.core.machine import Machine
from convgpu.daemon.audit.attributor import Attributor
from convgpu.daemon.audit.capacity import Capacities
from convgpu.daemon.audit.sampling import DeviceSampler
from convgpu.daemon.sessions.registry import SessionRegistry

log = logging.getLogger(__name__)

# Seconds between samples for one refused call. A thousand such calls must leave time for all others.
_STEP: Final = 0.1
# Bytes that the driver needs beside what is asked for: page tables, code that was loaded just now.
_MARGIN: Final = 32 << 20
# Longest time in seconds until memory whose owner is unknown is freed by the driver or attributed by the audit.
MAX_ATTRIBUTION_TIME: Final = 10.0


class _Judged(NamedTuple):
    """What a sample says: bytes that are free by the ledger, and whether some memory has no known owner yet."""

    sample: MemorySample
    free: int
    is_more: bool


class RefusalJudge:
    """Tells external memory, which may come back, from a disagreement of driver and ledger, which waiting does not end.

    Args:
        sampler: asks NVML.
        machine: knows what is granted; only read.
        sessions: of all containers.
        attributor: finds the owners of memory.
        capacities: follow what a sample shows.
        audited: whether the audit runs; without it nobody would see that external memory was freed.
    """

    def __init__(
        self,
        sampler: DeviceSampler,
        machine: Machine,
        sessions: SessionRegistry,
        attributor: Attributor,
        capacities: Capacities,
        *,
        audited: bool,
    ) -> None:
        self._sampler = sampler
        self._machine = machine
        self._sessions = sessions
        self._attributor = attributor
        self._capacities = capacities
        self._audited = audited
        self._last: dict[str, _Judged] = {}

    async def may_wait(self, device: str, size: int, container: str) -> bool:
        """Say whether `size` bytes that a device's driver refused to a process of a container may be asked for again.

        They may when external memory is the reason, or when there is room by now: the capacity follows the sample. Else
        the ledger has room that the driver has not, and waiting would not help. Memory without a known owner is waited
        for here: it is freed (of a program that ended), or the audit attributes it. Where memory of other containers
        can leave, the ledger gives way: what the driver does not have is not handed out any more, so that the
        allocation waits for its turn.
        """
        if not self._audited:
            return False
        loop = asyncio.get_running_loop()
        deadline = loop.time() + MAX_ATTRIBUTION_TIME
        try:
            while not self._machine.recovering:
                sample = await self._sampler.take_one(device, self._attributor.index)
                if self._machine.may_leave(device, container):
                    verdict = self._make_way(sample, size)
                else:
                    verdict = self._judge(sample, size)
                if verdict is not None:
                    return verdict
                if loop.time() > deadline:
                    return False
                await asyncio.sleep(_STEP)
        except Exception:  # as in the audit: the process must have its answer
            log.exception("whether external memory is in the way is not known")
            return False
        return True  # it waits for the end of recovery

    def _judge(self, sample: MemorySample, size: int) -> bool | None:
        """Return what a sample says of refused bytes; None while some memory has no known owner."""
        if sample.error is not None or sample.held is None:
            return False
        if sample.total - sample.used >= size:
            return True
        judged = self._last.get(sample.device)
        if judged is None or judged.sample is not sample:  # concurrent questions share one sample
            judged = self._last[sample.device] = self._attribute(sample)
        if size > judged.free:
            return True
        return None if judged.is_more else False

    def _make_way(self, sample: MemorySample, size: int) -> bool | None:
        """Let the capacity follow a sample to the byte, where memory can leave for what lacks."""
        if sample.error is not None or sample.held is None:
            return False
        if self._attribute(sample).is_more:
            return None
        device, room = sample.device, sample.total - sample.used
        if room < size + _MARGIN:
            free, leased = self._machine.card(device)
            expected = free + leased - self._sessions.used_on(device) - self._machine.settling(device)
            self._capacities.concede(device, expected - max(room - _MARGIN, 0))
        return True

    def _attribute(self, sample: MemorySample) -> _Judged:
        device = sample.device
        leases = self._attributor.leases((sample.held or {}).keys())
        attribution = self._attributor.attribute(sample, leases, self._attributor.index())
        self._capacities.follow(device, attribution, None, is_settled=False)
        ledger = self._machine.snapshot()
        charged = sum(account.charged for account in ledger.on(device).values())
        free = ledger.devices[device].capacity - self._sessions.used_on(device) - charged
        is_more = self._capacities.is_more(device, attribution)
        return _Judged(sample, free, is_more or sum(attribution.unleased.values()) > charged + NOISE)
