"""Samples the usage of all GPUs once a second: the ledger's figures, and NVML's latest answer."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from convgpu.core.machine import Machine
from convgpu.daemon.audit.capacity import Capacities
from convgpu.daemon.audit.report import AuditReport
from convgpu.daemon.containers.registry import ContainerRegistry
from convgpu.daemon.gpu.nvml import DeviceError, Devices
from convgpu.daemon.gpu.nvml_executor import NvmlExecutor
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.usage.history import Holding, Reading, UsageHistory
from convgpu.protocol.records import Telemetry

log = logging.getLogger(__name__)


def read_telemetry(devices: Devices, uuid: str) -> Telemetry:
    """Ask NVML what a GPU does."""
    return devices.telemetry(uuid)


class UsageSampler:
    """Adds a sample to `history` at each second until it is closed.

    Attributes:
        history: the samples.

    Args:
        executor: asks NVML. A GPU that does not answer gets no second question, and has no figures meanwhile.
        report: gets what each GPU does.
        wall_clock: Unix seconds.
    """

    def __init__(
        self,
        executor: NvmlExecutor,
        machine: Machine,
        containers: ContainerRegistry,
        sessions: SessionRegistry,
        capacities: Capacities,
        report: AuditReport,
        wall_clock: Callable[[], float],
    ) -> None:
        self.history = UsageHistory()
        self._executor = executor
        self._machine, self._sessions = machine, sessions
        self._containers = containers
        self._capacities = capacities
        self._report = report
        self._wall_clock = wall_clock
        self._questions: dict[str, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Sample from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Stop."""
        for task in (self._task, *self._questions.values()):
            if task is not None:
                task.cancel()

    async def _run(self) -> None:
        while True:
            try:
                self.sample()
            except Exception:  # a fault here must not end the scheduler, nor the samples to come
                log.exception("no sample of the usage was taken")
            await asyncio.sleep(1 - self._wall_clock() % 1)

    def sample(self) -> None:
        """Take one sample now, and ask NVML for the next one's figures."""
        holdings = self._holdings()
        readings = {}
        for row in self._capacities.rows:
            self._ask(row.uuid)
            readings[row.uuid] = Reading(
                capacity=row.capacity,
                settling=self._machine.settling(row.uuid),
                external=self._capacities.external[row.uuid],
                holdings=holdings.get(row.uuid, ()),
                telemetry=self._report.telemetry.get(row.uuid, Telemetry()),
            )
        self.history.add(self._wall_clock(), readings)

    def _holdings(self) -> dict[str, Sequence[Holding]]:
        """Return what containers have on the cards, by device: what lies on the host takes no room there."""
        found: dict[str, list[Holding]] = {}
        for name in self._machine.holders:
            container, residence = self._containers.by_name.get(name), self._machine.residence(name)
            engine = container.volume.engine if container is not None else None
            for device, account in self._machine.accounts(name).items():
                if not account.grant:
                    continue
                out = residence.out.get(device, 0) if residence is not None else 0
                usage = self._sessions.used(name, device) + account.charged
                held = Holding(name, engine.name if engine else name, account.grant - out, max(0, usage - out))
                found.setdefault(device, []).append(held)
        return dict(found)

    def _ask(self, device: str) -> None:
        before = self._questions.get(device)
        if before is None or before.done():
            self._questions[device] = asyncio.get_running_loop().create_task(self._read(device))

    async def _read(self, device: str) -> None:
        try:
            self._report.telemetry[device] = await self._executor.ask(device, read_telemetry)
        except DeviceError:  # the audit says so, and what is wrong
            self._report.telemetry.pop(device, None)
