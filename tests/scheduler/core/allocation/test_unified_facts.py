"""What facts take of a container of managed memory comes back when they are over: it never waits again."""

import pytest

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.residency import events as r
from convgpu.policies.memory import Fifo
from convgpu.simulate.host import SimulatedHost


def make_host(pool: int = 0, *, recovering: bool = False) -> SimulatedHost:
    """Return a host with one device of 10."""
    host = SimulatedHost(Machine({"gpu": 10}, Fifo(), recovering=recovering))
    if pool:
        host.dispatch(r.PoolChanged("gpu", pool))
    return host


def unified(host: SimulatedHost, name: str, limit: int) -> None:
    host.create(name, {"gpu": limit}, is_whole=True)
    host.dispatch(r.UnifiedSet(name))


def grants(host: SimulatedHost) -> dict[str, int]:
    host.machine.check_invariants(host.now)
    return {name: host.machine.accounts(name)["gpu"].grant for name in host.machine.holders}


@pytest.mark.parametrize("pool", [0, 10])
@pytest.mark.parametrize(
    ("fact", "undone"),
    [
        (e.CapacityChanged("gpu", 9, 10), e.CapacityChanged("gpu", 10, 10)),
        (e.CapacityChanged("gpu", 0, 10, is_lost=True), e.CapacityChanged("gpu", 10, 10)),
        (e.UnleasedMemory("large", "gpu", 1), e.UnleasedMemory("large", "gpu", 0)),
        (e.UnleasedMemory("other", "gpu", 1), e.UnleasedMemory("other", "gpu", 0)),
        (e.UnleasedMemory("other", "gpu", 7), e.UnleasedMemory("other", "gpu", 0)),
        (e.DeviceDrained("gpu", drained=True), e.DeviceDrained("gpu", drained=False)),
    ],
)
def test_facts_that_are_over_leave_it_its_whole_limit(pool: int, fact: e.Event, undone: e.Event) -> None:
    """What was taken back was never granted again: its device had no more beside its capacity than was granted."""
    host = make_host(pool)
    unified(host, "large", 15)
    unified(host, "other", 12)
    large = host.start("large")
    host.allocate(large, 6)
    waits = host.allocate(host.start("other"), 1)
    for event in (fact, undone):
        host.dispatch(event)
        grants(host)
    assert grants(host) == {"large": 15}
    host.allocate(large, 9)
    assert (host.processes[large].used["gpu"], list(host.pending)) == (15, [waits])
    host.end(large)
    assert grants(host) == {"other": 12}


def test_external_memory_takes_nothing_of_it_and_lets_nobody_in() -> None:
    host = make_host()
    unified(host, "large", 15)
    host.create("small", {"gpu": 4})
    large, small = host.start("large"), host.start("small")
    host.allocate(large, 6)
    waits = host.allocate(small, 1)
    host.dispatch(e.CapacityChanged("gpu", 4, 10))
    host.allocate(large, 9)
    assert (grants(host), list(host.pending)) == ({"large": 15}, [waits])
    host.dispatch(e.CapacityChanged("gpu", 10, 10))
    host.end(large)
    assert (list(host.pending), host.machine.device("gpu").usable) == ([], 10)


def test_what_it_turned_out_not_to_need_is_lent_to_nobody_who_could_not_be_there_anyway() -> None:
    host = make_host()
    unified(host, "large", 15)
    large = host.start("large")
    host.allocate(large, 6)
    unified(host, "other", 12)
    host.allocate(host.start("other"), 1)
    host.dispatch(e.LimitsLearned("large", {"gpu": 7}))
    host.allocate(large, 9)
    assert (host.processes[large].used["gpu"], grants(host)) == (15, {"large": 15})


def test_another_that_waits_and_is_removed_takes_nothing_of_it() -> None:
    host = make_host()
    unified(host, "large", 15)
    unified(host, "other", 12)
    large = host.start("large")
    host.allocate(large, 6)
    host.allocate(host.start("other"), 1)
    host.remove("other")
    host.allocate(large, 9)
    assert (host.processes[large].used["gpu"], grants(host)) == (15, {"large": 15})


def test_a_new_scheduler_that_finds_external_memory_grants_it_the_whole_again() -> None:
    host = make_host(recovering=True)
    unified(host, "large", 15)
    host.dispatch(e.CapacityChanged("gpu", 9, 10))
    large = host.start("large", held={"gpu": 6})
    host.dispatch(e.RecoveryEnded())
    host.dispatch(e.CapacityChanged("gpu", 10, 10))
    host.allocate(large, 9)
    assert (host.processes[large].used["gpu"], grants(host)) == (15, {"large": 15})


def test_what_came_back_late_beside_another_is_whole_again_when_that_has_ended() -> None:
    host = make_host()
    unified(host, "large", 15)
    host.allocate(host.start("large"), 6)
    host.create("small", {"gpu": 4})
    host.restart(Machine({"gpu": 10}, Fifo(), recovering=True))
    host.dispatch(r.UnifiedSet("large"))
    adopted = host.adopt(0, {})
    host.dispatch(e.RecoveryEnded())
    small = host.start("small")
    host.allocate(small, 2)
    large = host.reconnect_adopted(adopted)
    waits = host.allocate(large, 9)
    assert (waits in host.pending, grants(host)) == (True, {"large": 6, "small": 2})
    host.end(small)
    assert (host.processes[large].used["gpu"], grants(host)) == (15, {"large": 15})


@pytest.mark.parametrize("pool", [0, 10])
def test_its_first_allocation_may_be_larger_than_its_device(pool: int) -> None:
    host = make_host(pool)
    host.create("small", {"gpu": 4})
    unified(host, "large", 15)
    small, large = host.start("small"), host.start("large")
    host.allocate(small, 4)
    first = host.allocate(large, 12)
    assert first in host.pending
    host.end(small)
    assert (first in host.answers, grants(host)) == (True, {"large": 15})


@pytest.mark.parametrize("pool", [0, 10])
@pytest.mark.parametrize("is_lost", [True, False])
def test_of_a_device_that_has_nothing_nothing_is_granted(pool: int, is_lost: bool) -> None:
    host = make_host(pool)
    unified(host, "large", 15)
    host.dispatch(e.CapacityChanged("gpu", 0, 10, is_lost=is_lost))
    large = host.start("large")
    waits = host.allocate(large, 4)
    assert (waits in host.pending, grants(host)) == (True, {})
    host.dispatch(e.CapacityChanged("gpu", 10, 10))
    assert (waits in host.answers, grants(host)) == (True, {"large": 15})
    host.end(large)
    host.dispatch(e.CapacityChanged("gpu", 0, 10, is_lost=is_lost))
    assert grants(host) == {}


def test_of_a_lost_device_nothing_is_reserved_again_for_who_uses_nothing() -> None:
    host = make_host()
    unified(host, "large", 15)
    large = host.start("large")
    host.allocate(large, 4)
    host.free(large, 4)
    host.dispatch(e.CapacityChanged("gpu", 0, 10, is_lost=True))
    assert grants(host) == {}
    host.dispatch(e.CapacityChanged("gpu", 10, 10))
    assert grants(host) == {"large": 15}


def test_who_comes_late_to_its_device_leaves_it_nothing_idle() -> None:
    host = make_host()
    unified(host, "large", 15)
    large = host.start("large")
    host.allocate(large, 9)
    host.create("small", {"gpu": 4})
    small = host.start("small", held={"gpu": 2})
    assert grants(host) == {"large": 9, "small": 2}
    host.end(small)
    host.unmount("small")
    assert grants(host) == {"large": 15}
