"""An audit with everything that it needs, of two devices whose figures are set from outside."""

import asyncio
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast

from convgpu.core.machine import Machine
from convgpu.daemon.audit.attributor import Attributor
from convgpu.daemon.audit.capacity import Capacities, initial_capacities, measure_memory
from convgpu.daemon.audit.container_resolver import ContainerResolver
from convgpu.daemon.audit.doubts.ended_processes import EndedProcesses
from convgpu.daemon.audit.ends.survivors import Ender
from convgpu.daemon.audit.enforcement import Enforcement
from convgpu.daemon.audit.holdings import HoldingsWriter
from convgpu.daemon.audit.keepers import Keepers
from convgpu.daemon.audit.loop import Audit
from convgpu.daemon.audit.overuse import OveruseEnforcer, OveruseRules
from convgpu.daemon.audit.report import AuditReport
from convgpu.daemon.audit.sampling import DeviceSampler, OwnerlessMemory
from convgpu.daemon.audit.unlimited import UnlimitedContainers
from convgpu.daemon.gpu.context_sizes import ContextSizes
from convgpu.daemon.gpu.ending import EndingProcesses
from convgpu.daemon.gpu.kept_memory import KeptMemory
from convgpu.daemon.gpu.nvml import Device, DeviceError, UnnamedError
from convgpu.daemon.gpu.nvml_executor import NvmlExecutor
from convgpu.daemon.gpu.settling import Settling
from convgpu.daemon.hook_api.adoption import SessionAdopter
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.sessions.effects import EffectPerformer
from convgpu.daemon.sessions.lifecycle import EndedMemory, SessionLifecycle
from convgpu.daemon.sessions.open_requests import OpenRequests
from convgpu.daemon.sessions.outliving import OutlivingMemory
from convgpu.daemon.sessions.pause_notices import PauseNotices
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.storage.history import Bounds, History
from convgpu.daemon.storage.store import Store
from convgpu.daemon.transport.shares import Shares
from convgpu.policies.memory import Fifo

GIB = 1 << 30


class Cards:
    """Two devices of 16 GiB with half a GiB of the driver's; what is wrong with the first is set from outside."""

    def __init__(self) -> None:
        self.wrong = ""
        self.used_bytes = {"one": GIB // 2, "two": GIB // 2}
        self.named = True
        self.held: dict[int, int] = {}
        self.imported: dict[int, int] | None = None

    @property
    def first(self) -> tuple[dict[int, int], int]:
        """Who holds memory of the first device, and how much of it is in use."""
        return self.held, self.used_bytes["one"]

    @first.setter
    def first(self, figures: tuple[dict[int, int], int]) -> None:
        self.held, self.used_bytes["one"] = figures

    def list(self) -> list[Device]:
        return [Device(uuid, place, "H200", 16 * GIB, 31 * GIB // 2) for place, uuid in enumerate(("one", "two"))]

    def total(self, uuid: str) -> int:
        assert uuid in self.used_bytes
        return 16 * GIB

    def used(self, uuid: str) -> int:
        return self.used_bytes[uuid]

    def used_by(self, uuid: str) -> Mapping[int, int]:
        assert uuid in self.used_bytes
        if not self.named:
            raise UnnamedError("Not Supported")
        return self.held if uuid == "one" else {}

    def note_ended(self, uuid: str, pid: int) -> None:
        pass

    def imported_by(self, uuid: str, pids: Collection[int]) -> Mapping[int, int]:
        if self.imported is None:
            raise UnnamedError(uuid)
        return {pid: size for pid, size in self.imported.items() if pid in pids}

    def check(self, uuid: str) -> None:
        if self.wrong and uuid == "one":
            raise DeviceError(self.wrong)


class Parts:
    """An audit with everything that it needs, never started by itself."""

    def __init__(self, cards: Cards, directory: Path) -> None:
        loop = asyncio.get_running_loop()
        shares = Shares(loop)
        self.executor = executor = NvmlExecutor(cards)
        self.store = Store(directory, "boot", loop.call_later)
        memory = measure_memory(cards, cards.list(), 0, {}, lambda _: False)
        rows = initial_capacities(cards.list(), memory, 0)
        machine = Machine({one.uuid: one.capacity for one in rows}, Fifo())
        history = History(time.time, self.store, Bounds(10, 10.0))
        self.sessions = SessionRegistry(machine, OpenRequests(shares))
        notices = PauseNotices(loop, self.sessions, None)
        ending = EndingProcesses(machine)
        performer = EffectPerformer(machine, self.sessions, history, self.store.volumes, notices, ending)
        self.driver = driver = MachineDriver(loop, machine, performer, lambda: None)
        self.outliving = outliving = OutlivingMemory(driver)
        own = {one.device: one.own for one in memory}
        settling = Settling(executor, own, lambda _: None)
        table = self.store.sessions
        kept = KeptMemory(machine, executor, outliving.left_on, driver.dispatch)
        ended = EndedMemory(settling, outliving, ending, kept)
        self.lifecycle = SessionLifecycle(driver, self.sessions, history, ended, table, time.time, shares)
        self.capacities = Capacities(driver, self.store.devices, settling, memory, rows, 0, outliving)
        self.report = AuditReport()
        told = EndedProcesses(stays=outliving.stays, stays_of=outliving.charged_of)
        self.attributor = Attributor(machine, self.sessions, ContainerResolver(self.sessions, dict), ended=told)
        rules = OveruseRules("warn", 10.0)
        ender = Ender(self.report.surviving)
        overuse = OveruseEnforcer(self.sessions, history, self.report, rules, ender)
        unlimited = UnlimitedContainers(history, self.report, rules, ender)
        enforcement = Enforcement(overuse, unlimited, Keepers(set, self.report), rules)
        holdings = HoldingsWriter(machine, self.sessions, self.store.volumes)
        followers = (holdings.write,)
        ownerless = OwnerlessMemory(executor, self.sessions, lambda _: (), self.capacities.least)
        self.sampler = DeviceSampler(executor, ownerless)
        self.audit = Audit(self.sampler, driver, self.attributor, self.capacities, enforcement, followers, self.report)

    def adopter(self, contexts: ContextSizes) -> SessionAdopter:
        """Return an adopter that can make no session."""
        none, machine = cast("Any", None), self.driver.machine
        return SessionAdopter(machine, self.sessions, self.lifecycle, contexts, none, self.store.sessions, none)

    def capacity(self) -> list[float]:
        return [one.capacity / GIB for one in self.capacities.rows]
