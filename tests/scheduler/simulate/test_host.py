"""The simulated host against a real machine: it carries out each effect, and counts the use of memory by itself."""

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import Fifo
from convgpu.simulate.host import SimulatedHost


def make_host(**options: object) -> SimulatedHost:
    return SimulatedHost(Machine({"gpu": 16}, Fifo(), **options))


def test_an_allocation_beyond_the_headroom_is_a_request_and_the_next_one_needs_none() -> None:
    host = make_host()
    host.create("a", {"gpu": 10})
    session = host.start("a")
    request = host.allocate(session, 4)
    assert host.answers[request] == e.Accept(session, request, 4, 0)
    assert host.allocate(session, 6) == 0
    assert (host.processes[session].used["gpu"], host.processes[session].headroom["gpu"]) == (10, 0)


def test_a_free_is_reported_only_while_an_allocation_waits() -> None:
    host = make_host()
    for name in "ab":
        host.create(name, {"gpu": 12})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 12)
    assert not host.processes[a].armed["gpu"]
    request = host.allocate(b, 8)
    assert request in host.pending
    assert host.processes[a].armed["gpu"]
    host.free(a, 8)
    assert isinstance(host.answers[request], e.Accept)


def test_after_a_restart_a_process_connects_with_what_it_holds_or_the_scheduler_estimates_it() -> None:
    host = make_host()
    for name in "ab":
        host.create(name, {"gpu": 8})
        host.allocate(host.start(name), 5)
    host.restart(Machine({"gpu": 16}, Fifo(), recovering=True))
    assert host.processes == {}
    assert [process.container for process in host.previous] == ["a", "b"]
    host.reconnect_previous(0)
    estimated = host.adopt(0, {"gpu": 4})
    assert [host.machine.account(name, "gpu").leased for name in "ab"] == [5, 4]
    host.reconnect_adopted(estimated)
    assert host.machine.account("b", "gpu").leased == 5


def test_a_finished_container_leaves_nothing_behind() -> None:
    host = make_host()
    host.create("a", {"gpu": 8})
    session = host.start("a")
    host.allocate(session, 5)
    host.end(session, settled=False)
    assert host.machine.settling("gpu") == 5
    host.settle(session)
    host.remove("a")
    assert host.machine.settling("gpu") == 0
    assert host.machine.snapshot().accounts == {}
    assert host.terms == {}
