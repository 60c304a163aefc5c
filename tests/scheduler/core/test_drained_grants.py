"""On a drained device a container has what it was granted, whichever of its processes frees and takes it."""

from checked_host import CheckedHost

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import Fifo


def make_host(size: int) -> tuple[CheckedHost, int]:
    """Return a drained device of 10, of which another container has 6, and a process of `own` so much."""
    host = CheckedHost(Machine({"gpu": 10}, Fifo()))
    for name in ("other", "own"):
        host.create(name, {"gpu": 6})
    host.allocate(host.start("other"), 6)
    first = host.start("own")
    host.allocate(first, size)
    host.dispatch(e.DeviceDrained("gpu", drained=True))
    return host, first


def test_what_one_process_frees_another_one_of_its_container_gets() -> None:
    """Nobody had it report that, as nothing that is freed there is granted: the other one waited beside it."""
    host, first = make_host(3)
    waits = host.allocate(host.start("own"), 3)
    assert waits in host.pending
    host.free(first, 3)
    assert waits in host.answers
    host.check()


def test_what_waits_before_a_device_is_drained_gets_it_too() -> None:
    host, first = make_host(3)
    host.dispatch(e.DeviceDrained("gpu", drained=False))
    waits = host.allocate(host.start("own"), 3)
    host.dispatch(e.DeviceDrained("gpu", drained=True))
    host.free(first, 3)
    assert waits in host.answers
    host.check()


def test_no_headroom_is_given_ahead_that_others_of_the_container_wait_for() -> None:
    """The second was rejected as beyond the limit, or waited, for what the first was leased ahead of its needs."""
    host, first = make_host(3)
    second, third = host.start("own"), host.start("own")
    waiting = [host.allocate(second, 1), host.allocate(third, 2)]
    host.end(first)
    assert host.answers.keys() >= set(waiting)
    assert all(isinstance(host.answers[request], e.Accept) for request in waiting)
    host.check()


def test_the_next_process_of_who_is_admitted_as_a_whole_has_what_the_last_one_had() -> None:
    """It was taken back, and on a drained device nobody is admitted: the next program waited until that ended."""
    host = CheckedHost(Machine({"gpu": 10}, Fifo()))
    host.create("whole", {"gpu": 6}, is_whole=True)
    host.create("other", {"gpu": 8})
    host.mount("whole")
    first = host.start("whole")
    host.allocate(first, 4)
    host.dispatch(e.DeviceDrained("gpu", drained=True))
    host.end(first)
    second = host.start("whole")
    assert host.allocate(second, 3) in host.answers
    host.dispatch(e.DeviceDrained("gpu", drained=False))
    waits = host.allocate(host.start("other"), 8)
    assert host.allocate(second, 3) in host.answers  # it is admitted: it never waits again
    host.end(second)
    assert waits in host.answers
    host.check()


def test_what_a_drained_device_kept_for_a_next_process_goes_when_it_is_not_drained_any_more() -> None:
    """That process is admitted anew, then."""
    host = CheckedHost(Machine({"gpu": 10}, Fifo()))
    host.create("whole", {"gpu": 6}, is_whole=True)
    host.mount("whole")
    session = host.start("whole")
    host.allocate(session, 4)
    host.dispatch(e.DeviceDrained("gpu", drained=True))
    host.end(session)
    grants = []
    for drained in (True, False):
        host.dispatch(e.DeviceDrained("gpu", drained=drained))
        grants.append(host.machine.account("whole", "gpu").grant)
    assert grants == [6, 0]
    host.check()
