"""A gang that was admitted waits for room on the card without an end, unless its option `wait` says one."""

import pytest
from elastic_host import ElasticHost

from convgpu.core import events as e
from convgpu.core.allocation.admission import GANG_TIMEOUT
from convgpu.core.machine import Machine
from convgpu.policies.memory import Fifo
from convgpu.protocol.event_kinds import RejectReason


@pytest.mark.parametrize("wait", [None, 400.0])
def test_a_gang_that_has_come_is_not_rejected_by_the_timeout_for_those_that_have_not(wait: float | None) -> None:
    """One of it had waited for the other nearly that long, and then had no room on the card."""
    host = ElasticHost(Machine({"gpu": 10}, Fifo()))
    host.set_pool("gpu", 10, 1)
    for name, size in (("x", 6), ("y", 4)):
        host.create_elastic(name, {"gpu": 6}, 0)
        session = host.start(name)
        host.enable(session)
        host.allocate(session, size)
    for name in ("a", "b"):
        host.create(name, {"gpu": 2}, wait, gang="train:2")
    a, b = host.start("a"), host.start("b")
    host.now = 1.0
    requests = [host.allocate(a, 2)]
    host.now = GANG_TIMEOUT
    requests.append(host.allocate(b, 2))
    assert {"a", "b"} <= set(host.machine.holders)
    host.now = GANG_TIMEOUT + 1.0
    host.dispatch(e.TimePassed())
    assert set(requests) == host.pending.keys()
    host.now = 401.0
    host.dispatch(e.TimePassed())
    if wait is None:
        host.end(session)
        assert all(isinstance(host.answers[request], e.Accept) for request in requests)
    else:
        assert host.answers[requests[0]] == e.Reject(a, requests[0], RejectReason.DEADLINE)
        assert requests[1] in host.pending
    host.check()
