"""A device that NVML cannot describe, among others that are well: what the audit makes of it."""

import asyncio
import os
import subprocess
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from audit_parts import GIB, Cards, Parts

from convgpu.core import events as e
from convgpu.daemon.audit.container_resolver import ContainerResolver
from convgpu.daemon.gpu.context_sizes import ContextSizes
from convgpu.daemon.gpu.nvml import Device
from convgpu.daemon.storage.rows import PreviousSession
from convgpu.daemon.system.procfs import start_time

LOST = "memory of one: GPU is lost"


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
