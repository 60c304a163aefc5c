"""Who waits is tried again only where something has changed, and always where that lets somebody be served."""

from collections.abc import Sequence

import pytest
from checked_host import CheckedHost

from convgpu.core import events as e
from convgpu.core.allocation import allocator, retries
from convgpu.core.allocation.fairness import MayPass, eligible
from convgpu.core.allocation.hold_back import HoldBack, hold_back
from convgpu.core.machine import Machine
from convgpu.core.state import State
from convgpu.policies.memory import Fifo, WaitingAllocation


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Devices on which those that wait were tried, each time."""
    devices_of: list[list[str]] = []

    def record(state: State, devices: Sequence[str], now: float) -> HoldBack:
        devices_of.append(list(devices))
        return hold_back(state, devices, now)

    monkeypatch.setattr(allocator, "hold_back", record)
    return devices_of


def make_host() -> CheckedHost:
    """Return a host on which a container waits for each of two devices."""
    host = CheckedHost(Machine({"g0": 10, "g1": 10, "g2": 10}, Fifo(), starvation_timeout=10.0))
    for device in ("g0", "g1"):
        for name in ("holder", "waiter"):
            host.create(f"{name}-{device}", {device: 10})
            host.allocate(host.start(f"{name}-{device}"), 8, device)
    return host


def test_what_starts_and_holds_nothing_lets_nobody_be_tried(tried: list[list[str]]) -> None:
    host = make_host()
    tried.clear()
    host.create("new", {"g0": 10})
    host.allocate(host.start("new"), 9, "g0")
    host.remove("new")
    host.now = 100.0
    host.create("later", {"g0": 1})
    assert tried == [["g0"]]  # once one had ended to wait


def test_an_end_lets_those_be_tried_who_wait_for_its_device_and_the_connected_ones(tried: list[list[str]]) -> None:
    host = make_host()
    tried.clear()
    host.finish("holder-g0")
    assert {device for devices in tried for device in devices} == {"g0"}
    host.create("both", {"g0": 1, "g1": 1})
    tried.clear()
    host.finish("holder-g1")
    assert {device for devices in tried for device in devices} == {"g0", "g1"}
    assert not host.pending
    host.check()


def test_after_a_grant_only_those_are_tried_whom_it_can_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[list[str]] = []

    def record(state: State, devices: Sequence[str], held_back: HoldBack, may_pass: MayPass) -> list[WaitingAllocation]:
        rounds.append(list(devices))
        return eligible(state, devices, held_back, may_pass)

    monkeypatch.setattr(retries, "eligible", record)
    host = CheckedHost(Machine({"g0": 10, "g1": 10}, Fifo(), starvation_timeout=100.0))
    host.create("holder", {"g0": 10, "g1": 10})
    session = host.start("holder")
    host.allocate(session, 10, "g0")
    host.allocate(session, 10, "g1")
    for name, device in (("a", "g0"), ("b", "g1"), ("c", "g0")):
        host.create(name, {device: 4})
        host.allocate(host.start(name), 4, device)
    rounds.clear()
    host.finish("holder")
    assert not host.pending
    assert rounds[0] == ["g0", "g1"]
    assert all(len(devices) == 1 for devices in rounds[1:])  # but "b" was tried: it was with "a"
    host.check()


def test_what_lets_nobody_in_tries_nobody_and_takes_nothing_back() -> None:
    host = make_host()
    host.dispatch(e.TimePassed())
    step = host.machine.handle(e.ContainerStarted("waiter-g0"), host.now)
    assert (step.effects, step.needs) == ((), None)
    host.check()
