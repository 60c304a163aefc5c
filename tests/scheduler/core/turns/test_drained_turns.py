"""A turn that waits for a drained or lost device, or for external memory, is in nobody's way on other devices."""

import pytest
from elastic_host import ElasticHost

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.residency import events as r
from convgpu.policies.memory import Fifo

OVERDUE = 240.0  # four starvation timeouts
DRAINED, BACK = e.DeviceDrained("g1", drained=True), e.DeviceDrained("g1", drained=False)
LOST, SMALLER, WHOLE = (
    e.CapacityChanged("g1", 0, 10, is_lost=True),
    e.CapacityChanged("g1", 5, 10),
    e.CapacityChanged("g1", 10, 10),
)


def make_host(switch_cost: float = 0.0) -> tuple[ElasticHost, dict[str, int]]:
    """Return a host on which `x` has 4 of `g0`, `k` all of `g1`, and `m` waits for 7 and 6; and the sessions of all."""
    host = ElasticHost(Machine({"g0": 10, "g1": 10}, Fifo(), switch_cost=switch_cost))
    for device in ("g0", "g1"):
        host.set_pool(device, 20, 1)
    limits = {"x": {"g0": 9}, "m": {"g0": 9, "g1": 9}, "k": {"g1": 10}, "y": {"g0": 9}, "z": {"g0": 9}}
    sessions = {}
    for name, sizes in limits.items():
        host.create_elastic(name, sizes, 0)
        sessions[name] = host.start(name)
        host.enable(sessions[name])
    host.allocate(sessions["x"], 4, "g0")
    host.allocate(sessions["k"], 10, "g1")
    host.allocate(sessions["m"], 6, "g1")
    host.allocate(sessions["m"], 7, "g0")
    assert {request.session for request in host.pending.values()} == {sessions["m"]}
    return host, sessions


@pytest.mark.parametrize(("fact", "undone"), [(DRAINED, BACK), (LOST, WHOLE), (SMALLER, WHOLE)])
def test_it_holds_nobody_back_elsewhere_until_the_fact_is_over(fact: e.Event, undone: e.Event) -> None:
    host, sessions = make_host()
    host.now = OVERDUE
    host.dispatch(e.TimePassed())
    before = host.allocate(sessions["y"], 5, "g0")
    assert before in host.pending  # x's end would leave m nothing of 7 beside 5
    host.dispatch(fact)
    assert before in host.answers  # nothing else happens on `g0`
    host.check()
    host.end(sessions["y"])
    host.dispatch(undone)
    assert host.allocate(sessions["z"], 5, "g0") in host.pending
    host.check()


def test_another_may_take_turns_with_who_runs_before_it_is_overdue() -> None:
    """The first in the order of turns could be given none, and nobody lost its own for the second meanwhile."""
    host, sessions = make_host(switch_cost=0.05)
    host.dispatch(DRAINED)
    waits = host.allocate(sessions["y"], 7, "g0")
    gate = host.gates[sessions["x"]]
    while not gate.must_stop and (deadline := host.machine.next_deadline()) is not None:
        host.now = deadline
        host.dispatch(e.TimePassed())
    assert (gate.must_stop, host.now < OVERDUE) == (True, True)
    host.answer_stop(sessions["x"], r.StopOutcome.DRAINED)
    host.move(sessions["x"], "out", "g0", gate.evicting["g0"])
    assert waits in host.answers
    host.check()
