"""A device that NVML cannot describe, among others that are well: what the audit makes of it."""

import asyncio
import os
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.daemon.audit.attributor import Attributor
from convgpu.daemon.audit.capacity import Capacities, initial_capacities, measure_memory
from convgpu.daemon.audit.container_resolver import ContainerResolver, ProcessIndex
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
from convgpu.daemon.gpu.nvml import Device, DeviceError, UnnamedError
from convgpu.daemon.gpu.nvml_executor import NvmlExecutor
from convgpu.daemon.gpu.settling import Settling
from convgpu.daemon.hook_api.adoption import SessionAdopter
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.sessions.effects import EffectPerformer
from convgpu.daemon.sessions.exports import Exports
from convgpu.daemon.sessions.lifecycle import EndedMemory, SessionLifecycle
from convgpu.daemon.sessions.open_requests import OpenRequests
from convgpu.daemon.sessions.outliving import OutlivingMemory
from convgpu.daemon.sessions.pause_notices import PauseNotices
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.storage.history import Bounds, History
from convgpu.daemon.storage.rows import PreviousSession
from convgpu.daemon.storage.store import Store
from convgpu.daemon.system.procfs import start_time
from convgpu.daemon.transport.shares import Shares
from convgpu.policies.memory import Fifo

GIB = 1 << 30
LOST = "memory of one: GPU is lost"


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
        ended = EndedMemory(settling, outliving, ending)
        self.lifecycle = SessionLifecycle(driver, self.sessions, history, ended, table, time.time, shares)
        self.capacities = Capacities(driver, self.store.devices, settling, memory, rows, 0, outliving)
        self.report = AuditReport()
        self.attributor = Attributor(
            machine, self.sessions, ContainerResolver(self.sessions, dict), ended=EndedProcesses(stays=outliving.stays)
        )
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


def play(directory: Path, cards: Cards, *steps: tuple[str, object]) -> list[tuple[str, list[float]]]:
    """Set something wrong, look, and say what the first device's health and both capacities are; for each step."""

    async def run() -> list[tuple[str, list[float]]]:
        parts = Parts(cards, directory)
        seen = []
        with closing(parts.store):
            for name, value in steps:
                setattr(cards, name, value)
                await parts.audit.audit()
                parts.driver.machine.check_invariants(0.0)
                seen.append((parts.report.health["one"], parts.capacity()))
        return seen

    return asyncio.run(run())


def test_a_lost_device_is_told_once_and_the_others_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    well, lost = [15.5, 15.5], [0.0, 15.5]
    steps = [("wrong", ""), ("wrong", LOST), ("wrong", LOST), ("wrong", LOST), ("wrong", "")]
    assert play(tmp_path, Cards(), *steps) == [
        ("ok", well),
        (LOST, well),  # it may have been an accident
        (LOST, lost),
        (LOST, lost),
        ("ok", well),
    ]
    assert caplog.text.count(f"device one: {LOST}") == 1


def test_memory_of_programs_that_nvml_does_not_name_lowers_the_capacity_when_it_lasts(tmp_path: Path) -> None:
    more, less = {"one": 5 * GIB // 2, "two": GIB // 2}, {"one": GIB // 2, "two": GIB // 2}
    steps = [("used_bytes", one) for one in (less, more, less, more, more, less)]
    assert [capacity for _, capacity in play(tmp_path, Cards(), *steps)] == [
        [15.5, 15.5],
        [15.5, 15.5],
        [15.5, 15.5],
        [15.5, 15.5],
        [13.5, 15.5],
        [15.5, 15.5],
    ]


def test_what_an_external_program_had_is_not_handed_out_before_it_is_free(tmp_path: Path) -> None:
    """The driver lists it no more, and its memory is in use for a moment: it was handed out, and taken back."""
    there, ending, free = ({os.getpid(): 4 * GIB}, 9 * GIB // 2), ({}, 9 * GIB // 2), ({}, GIB // 2)
    steps = [("first", one) for one in (there, there, ending, ending, free, there, ending, free)]
    assert [capacity[0] for _, capacity in play(tmp_path, Cards(), *steps)] == [
        11.5, 11.5, 11.5, 11.5, 15.5, 11.5, 11.5, 15.5,
    ]  # fmt: skip


def test_a_driver_that_names_no_processes_is_no_reason_to_complain(tmp_path: Path) -> None:
    more = {"one": 9 * GIB, "two": GIB}
    seen = play(tmp_path, Cards(), ("named", False), ("used_bytes", more), ("used_bytes", more))
    assert seen == [("ok", [15.5, 15.5])] * 3


def test_a_lost_device_comes_back_though_its_driver_names_no_processes(tmp_path: Path) -> None:
    seen = play(tmp_path, Cards(), ("named", False), ("wrong", LOST), ("wrong", LOST), ("wrong", ""))
    assert seen[2:] == [(LOST, [0.0, 15.5]), ("ok", [15.5, 15.5])]


def test_a_process_that_ends_while_the_audit_looks_is_no_foreigner(tmp_path: Path) -> None:
    async def run() -> None:
        cards = Cards()
        parts = Parts(cards, tmp_path)
        with closing(parts.store), subprocess.Popen(["sleep", "600"]) as process:

            def listed() -> dict[str, str]:
                """NVML has been asked when it is asked whose the process is."""
                process.kill()
                process.wait()
                return {}

            parts.attributor._resolver = ContainerResolver(parts.sessions, listed)
            cards.held[process.pid] = 10 * GIB
            cards.used_bytes["one"] += 10 * GIB
            await parts.audit.audit()
            assert parts.capacity() == [15.5, 15.5]

    asyncio.run(run())


def test_of_a_device_that_comes_late_what_the_driver_takes_is_not_taken_for_what_processes_do(tmp_path: Path) -> None:
    class Late(Cards):
        def list(self) -> list[Device]:
            one, two = super().list()
            return [replace(one, total=0, free=0, trouble=LOST), two]

    async def run() -> int | None:
        cards, pid = Late(), os.getpid()
        parts = Parts(cards, tmp_path)
        contexts = ContextSizes(parts.executor, parts.capacities.own)
        with closing(parts.store):
            await parts.audit.audit()
            assert parts.capacity() == [15.5, 15.5]
            cards.held = {pid: 518 << 20}
            cards.used_bytes["one"] += (518 + 9) << 20
            return await contexts.held("one", pid)

    assert asyncio.run(run()) == (518 + 9) << 20


def test_a_volume_that_is_made_anew_while_nvml_is_asked_gets_nothing_of_the_old_ones_process(tmp_path: Path) -> None:
    async def run() -> None:
        loop, parts = asyncio.get_running_loop(), Parts(cards := Cards(), tmp_path)
        happen = parts.driver.dispatch

        def make_anew() -> None:
            happen(e.ContainerRemoved("a"))
            happen(e.ContainerCreated("a", {"two": GIB}, None, 0))

        def used_by(_uuid: str) -> Mapping[int, int]:
            loop.call_soon_threadsafe(make_anew)
            return {os.getpid(): GIB}

        cards.used_by = used_by
        happen(e.ContainerCreated("a", {"one": GIB}, None, 0))
        adopter = parts.adopter(ContextSizes(parts.executor, {}))
        with closing(parts.store):
            await adopter.adopt([PreviousSession(os.getpid(), start_time(os.getpid()), "a", "test")])
            assert parts.sessions.of("a") == []

    asyncio.run(run())


def test_an_event_of_a_device_without_capacity_is_no_fault(tmp_path: Path) -> None:
    async def run() -> None:
        cards = Cards()
        parts = Parts(cards, tmp_path)
        with closing(parts.store):
            parts.driver.dispatch(e.ContainerCreated("a", {"one": GIB}))
            cards.wrong = LOST
            await parts.audit.audit()
            await parts.audit.audit()
            parts.driver.dispatch(e.ContainerRemoved("a"))
            assert parts.capacity() == [0.0, 15.5]

    asyncio.run(run())


def test_who_imported_memory_is_asked_only_where_some_has_no_owner(tmp_path: Path) -> None:
    async def run() -> None:
        cards = Cards()
        parts = Parts(cards, tmp_path)
        cards.held = {(pid := os.getpid()): GIB // 2}
        with closing(parts.store):
            for used, imported, held in (
                (1, None, 0.5),
                (1, {pid: 3 * GIB}, 0.5),  # the owner is listed with it
                (4, None, 0.5),  # the driver does not tell
                (4, {pid: 3 * GIB, 8: GIB}, 3.5),
            ):
                cards.used_bytes["one"], cards.imported = used * GIB, imported
                [sample] = await parts.sampler.take(["one"], parts.attributor.index)
                assert sample.held == {pid: pytest.approx(held * GIB, abs=32 << 20)}

    asyncio.run(run())


def test_who_ends_one_process_after_another_does_not_hide_memory_without_an_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something settles at each look: a stranger's program leased memory and ended, every 0.3 s."""

    async def run() -> None:
        loop, parts = asyncio.get_running_loop(), Parts(cards := Cards(), tmp_path)
        seconds, seen = 0.0, []
        begun = loop.time()
        monkeypatch.setattr(loop, "time", lambda: begun + seconds)
        with closing(parts.store):
            parts.driver.dispatch(e.ContainerCreated("a", {"one": GIB}, None, 0))
            cards.used_bytes["one"] += 5 * GIB
            for number in range(5):
                parts.driver.dispatch(e.SessionStarted(number, "a", {"one": GIB}))
                parts.driver.dispatch(e.SessionEnded(number, {}))
                await parts.audit.audit()
                seen.append(parts.capacity()[0])
                seconds += 5.0
        assert seen == [15.5, 15.5, 15.5, 10.5, 10.5]

    asyncio.run(run())


def test_what_an_ended_process_left_is_its_containers_and_no_external_memory(tmp_path: Path) -> None:
    """Beside what the audit finds of it; nobody is ended for it."""

    async def run() -> None:
        parts = Parts(cards := Cards(), tmp_path)
        left, seen = Exports("a", charged=Counter({"one": 3 * GIB})), []
        with closing(parts.store):
            parts.driver.dispatch(e.ContainerCreated("a", {"one": 4 * GIB}))
            parts.outliving._left["a"].append(left)
            parts.driver.dispatch(e.UnleasedMemory("a", "one", 3 * GIB))
            for more in (3, 3, 4, 4, 3):  # a GiB is somebody else's
                cards.used_bytes["one"] = GIB // 2 + more * GIB
                await parts.audit.audit()
                account = parts.driver.machine.account("a", "one")
                assert parts.report.over == {"one": {}, "two": {}}
                seen.append((parts.capacity()[0], account.charged / GIB if account else None))
        assert seen == [(15.5, 3), (15.5, 3), (15.5, 3), (14.5, 3), (15.5, 3)]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("held", "imported", "over"),
    [
        (0.75, 0, {}),
        (2, 0, {"a": 5 * GIB}),  # neither what was left nor what is listed is above the limit
        (0.75, 2, {}),  # it has two of the three that were left
    ],
)
def test_what_was_left_counts_beside_what_is_taken_past_the_hook(
    tmp_path: Path, held: float, imported: int, over: Mapping[str, int]
) -> None:
    """A stranger had 920 MiB in each of six containers of 512."""

    async def run() -> Mapping[str, int]:
        parts, pid = Parts(cards := Cards(), tmp_path), os.getpid()
        parts.attributor._resolver = cast("Any", SimpleNamespace(index=lambda: ProcessIndex({pid: "a"}, {}, {})))
        with closing(parts.store):
            parts.driver.dispatch(e.ContainerCreated("a", {"one": 4 * GIB}))
            parts.outliving._left["a"].append(Exports("a", charged=Counter({"one": 3 * GIB})))
            parts.driver.dispatch(e.UnleasedMemory("a", "one", 3 * GIB))
            cards.first = {pid: int(held * GIB)}, int((3.5 + held) * GIB)
            cards.imported = {pid: imported * GIB}
            for _ in range(3):
                await parts.audit.audit()
            account = parts.driver.machine.account("a", "one")
            charged = account.charged if account is not None else 0
            assert charged == pytest.approx((3 + held + imported) * GIB, abs=32 << 20)
        return parts.report.over["one"]

    assert asyncio.run(run()) == over
