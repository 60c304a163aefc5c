"""What the plugin tells the scheduler of containers that use a GPU without a limit."""

import os
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

from daemon import wait_until

from convgpu.authz.host_programs import HostProgramJudge
from convgpu.authz.ports import EngineUnreachable
from convgpu.authz.unlimited import UnlimitedJudge
from convgpu.client.scheduler import Scheduler
from convgpu.plugin.engine import unlimited_watch
from convgpu.plugin.engine.unlimited_watch import UnlimitedWatch
from convgpu.protocol.records import Done, Unlimited
from convgpu.protocol.requests import JudgeUnlimited, UnlimitedVerdict

TICKS = os.sysconf("SC_CLK_TCK")


class World:
    """A scheduler that has seen containers, and a judge with a reason for each."""

    def __init__(self, *seen: Unlimited) -> None:
        self.seen = seen
        self.now = 0.0
        self.reasons: dict[str, str | None] = {}
        self.judged: list[tuple[str, bool]] = []
        self.programs: list[tuple[int, int, str]] = []
        self.told: list[UnlimitedVerdict] = []
        self.started: list[float] = []
        world = cast("Any", self)
        host = cast("HostProgramJudge", SimpleNamespace(why_kept=self.why_program_kept))
        self.watch = UnlimitedWatch(cast("Scheduler", world), cast("UnlimitedJudge", world), host, lambda: self.now)

    def ask(self, request: object) -> object:
        if isinstance(request, JudgeUnlimited):
            self.told += request.verdicts
            return Done()
        devices = [SimpleNamespace(uuid="GPU-a", unlimited=self.seen[:1])]
        return SimpleNamespace(devices=[*devices, SimpleNamespace(uuid="GPU-b", unlimited=self.seen)])

    def why_kept(self, container: str, started: float, *, is_known: bool) -> str:
        self.judged.append((container, is_known))
        self.started.append(started)
        reason = self.reasons.get(container, "")
        if reason is None:
            raise EngineUnreachable("no Engine answers")
        return reason

    def why_program_kept(self, pid: int, started: int, gpu: str) -> str | None:
        self.programs.append((pid, started, gpu))
        return self.reasons.get(str(pid), "")


def test_each_is_judged_once_and_again_after_a_while_or_after_another_start() -> None:
    first, second = Unlimited("volume", "1", 5, 70), Unlimited("2", "2", 5, 80)
    world = World(first, second)
    world.reasons["2"] = "an exemption"
    world.watch.look()
    assert world.judged == [("1", True), ("2", False)]
    assert world.told == [UnlimitedVerdict("1", 70, ""), UnlimitedVerdict("2", 80, "an exemption")]
    world.seen = (Unlimited("volume", "1", 5, 70, ""), Unlimited("2", "2", 5, 80, "an exemption"))
    world.now = 29.0
    world.watch.look()
    assert len(world.told) == 2
    world.seen = (world.seen[0], Unlimited("2", "2", 5, 90))
    world.watch.look()
    world.now = 31.0
    world.watch.look()
    assert [(verdict.id, verdict.started) for verdict in world.told[2:]] == [("2", 90), ("1", 70), ("2", 90)]


def test_what_has_no_id_or_no_start_is_not_judged() -> None:
    world = World(Unlimited("volume", "", 5, 70), Unlimited("2", "2", 5, 0))
    world.watch.look()
    assert (world.judged, world.told) == ([], [])


def test_what_cannot_be_judged_is_not_told() -> None:
    world = World(Unlimited("1", "1", 5, 70), Unlimited("2", "2", 5, 80))
    world.reasons["1"] = None
    world.watch.look()
    assert world.told == [UnlimitedVerdict("2", 80, "")]


def test_a_program_of_the_hosts_is_judged_for_its_gpu_and_not_told_of_if_nobody_can_tell() -> None:
    programs = (Unlimited(f"pid {pid}", f"{pid}", 5, 80, pid=pid) for pid in (7, 8))
    world = World(Unlimited("1", "1", 5, 70), *programs)
    world.reasons["8"] = None
    world.watch.look()
    assert world.programs == [(7, 80, "GPU-b"), (8, 80, "GPU-b")]
    assert world.told == [UnlimitedVerdict("1", 70, ""), UnlimitedVerdict("7", 80, "")]


def test_a_program_that_keeps_who_looks_at_it_waiting_keeps_no_other_from_its_verdict(monkeypatch: Any) -> None:
    monkeypatch.setattr(unlimited_watch, "_PATIENCE", 0.05)
    world = World(*(Unlimited(f"pid {pid}", f"{pid}", 5, 80, pid=pid) for pid in (7, 8)))
    goes_on, judge = threading.Event(), world.why_program_kept
    monkeypatch.setattr(world.watch._host, "why_kept", lambda *one: (one[0] == 7 and goes_on.wait(), judge(*one))[1])
    while len(world.told) < 2:  # on a slow machine the other one may be late, too
        world.watch.look()
    assert (set(world.programs), world.told) == ({(8, 80, "GPU-b")}, [UnlimitedVerdict("8", 80, "")] * 2)
    goes_on.set()
    wait_until(lambda: (7, 80, "GPU-b") in world.programs, "the look at the first one returns")
    assert world.programs.count((7, 80, "GPU-b")) == 1


def test_a_start_is_told_in_unix_seconds() -> None:
    minute_ago = int((time.clock_gettime(time.CLOCK_BOOTTIME) - 60) * TICKS)
    world = World(Unlimited("1", "1", 5, minute_ago))
    world.watch.look()
    assert abs(time.time() - 60 - world.started[0]) < 30
