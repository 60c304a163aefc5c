"""The age bound (invariant 5): what may overtake an overdue allocation that could be served, and how often."""

from checked_host import CheckedHost

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import Fifo


def make_host(capacity: int, *containers: tuple[str, int]) -> tuple[CheckedHost, dict[str, int]]:
    """Return a host of one device, and one session for each container of a name and a limit."""
    host = CheckedHost(Machine({"gpu": capacity}, Fifo()))
    for name, limit in containers:
        host.create(name, {"gpu": limit})
    return host, {name: host.start(name) for name, _ in containers}


# -- a container that hands memory from process to process ------------------------------------------------


def test_memory_that_a_process_frees_goes_to_an_overdue_allocation_before_a_sibling() -> None:
    host, start = make_host(10, ("a", 10), ("b", 5), ("n", 5))
    sibling = host.start("a")
    host.allocate(start["a"], 5)
    host.allocate(start["b"], 5)
    host.now = 1.0
    newcomer = host.allocate(start["n"], 5)
    host.now = 61.0
    again = host.allocate(sibling, 5)
    host.now = 62.0
    host.free(start["a"], 5)
    assert (newcomer in host.answers, again in host.answers) == (True, False)
    host.end(start["b"])
    assert again in host.answers
    host.check()


def test_memory_of_an_ended_process_goes_to_an_overdue_allocation_before_a_sibling() -> None:
    host, start = make_host(10, ("a", 9), ("b", 5), ("n", 4))
    sibling = host.start("a")
    host.allocate(start["a"], 4)
    host.allocate(sibling, 1)
    host.allocate(start["b"], 5)
    newcomer = host.allocate(start["n"], 4)
    host.now = 61.0
    again = host.allocate(sibling, 4)
    host.end(start["a"])
    assert (newcomer in host.answers, again in host.answers) == (True, False)
    host.check()


def test_a_sibling_uses_freed_memory_at_once_while_nobody_is_overdue() -> None:
    host, start = make_host(10, ("a", 10), ("b", 5), ("n", 5))
    sibling = host.start("a")
    host.allocate(start["a"], 5)
    host.allocate(start["b"], 5)
    newcomer = host.allocate(start["n"], 5)
    host.now = 59.0
    again = host.allocate(sibling, 5)
    host.free(start["a"], 5)
    assert (newcomer in host.answers, again in host.answers) == (False, True)
    host.check()


# -- holders that hand memory to each other ---------------------------------------------------------------


def test_two_overdue_holders_that_hand_memory_to_each_other_do_not_starve_an_older_newcomer() -> None:
    host, start = make_host(10, ("x", 6), ("y", 6))
    host.create("n", {"gpu": 4}, priority=100)
    newcomer_session = host.start("n")
    x, y = start["x"], start["y"]
    host.allocate(y, 2)
    host.allocate(x, 6)
    newcomer = host.allocate(newcomer_session, 4)
    host.allocate(y, 4)
    host.free(x, 4)  # both have held 6 since n waits
    holding, lacking = y, x
    for _ in range(5):
        again = host.allocate(lacking, 4)
        host.now += 100.0  # overdue, as everything that waits
        host.free(holding, 4)
        if newcomer in host.answers:
            break
        assert again in host.answers
        holding, lacking = lacking, holding
    assert newcomer in host.answers
    assert host.now == 100.0
    host.check()


# -- high-water marks --------------------------------------------------------------------------------------


def test_a_second_program_of_a_container_advances_as_the_first_did() -> None:
    host, start = make_host(16, ("again", 10), ("other", 12), ("n", 6))
    host.allocate(start["again"], 10)
    host.end(start["again"])
    host.allocate(start["other"], 12)
    second = host.start("again")
    host.allocate(second, 4)
    newcomer = host.allocate(start["n"], 6)
    host.now = 100.0
    raising = host.allocate(second, 6)
    host.free(start["other"], 6)
    assert (raising in host.answers, newcomer in host.answers) == (True, False)
    host.check()


def test_a_program_beside_one_that_holds_memory_advances_as_the_first_did() -> None:
    host, start = make_host(16, ("notebook", 11), ("other", 11), ("n", 6))
    kernel, executed = start["notebook"], host.start("notebook")
    host.allocate(kernel, 1)
    host.allocate(executed, 10)
    host.end(executed)
    host.allocate(start["other"], 11)
    second = host.start("notebook")
    host.allocate(second, 4)
    newcomer = host.allocate(start["n"], 6)
    host.now = 100.0
    raising = host.allocate(second, 6)
    host.free(start["other"], 6)
    assert (raising in host.answers, newcomer in host.answers) == (True, False)
    host.check()


def test_programs_that_follow_each_other_in_a_container_overtake_an_overdue_allocation_once() -> None:
    host, start = make_host(10, ("a", 9), ("b", 5), ("c", 4), ("n", 4))
    host.allocate(start["a"], 1)
    host.allocate(start["b"], 5)
    host.allocate(start["c"], 4)
    newcomer = host.allocate(start["n"], 4)
    first, second = host.start("a"), host.start("a")
    host.now = 100.0
    raising = host.allocate(first, 4)
    host.end(start["c"])
    assert (raising in host.answers, newcomer in host.answers) == (True, False)
    again = host.allocate(second, 4)
    host.now = 200.0
    host.end(first)
    assert (again in host.answers, newcomer in host.answers) == (False, True)
    host.check()


def test_memory_used_out_of_headroom_counts_for_the_high_water_mark() -> None:
    host, start = make_host(16, ("a", 8), ("b", 11), ("n", 5))
    host.allocate(start["a"], 2)  # the rest of the limit is leased ahead
    assert host.allocate(start["a"], 6) == 0
    host.allocate(start["b"], 8)
    newcomer = host.allocate(start["n"], 5)
    host.now = 100.0
    host.free(start["a"], 3)
    assert host.allocate(start["b"], 3) in host.answers
    again = host.allocate(start["a"], 3)
    host.free(start["b"], 5)
    assert (again in host.answers, newcomer in host.answers) == (False, True)
    host.check()


def test_headroom_of_a_sibling_does_not_count_for_the_high_water_mark() -> None:
    host, start = make_host(16, ("a", 8), ("other", 10), ("n", 4))
    sibling = host.start("a")
    host.allocate(sibling, 1)
    assert host.processes[sibling].headroom["gpu"] == 3  # its share of the limit, leased ahead
    host.allocate(start["a"], 3)
    host.allocate(start["other"], 10)
    newcomer = host.allocate(start["n"], 4)
    host.now = 100.0
    raising = host.allocate(start["a"], 3)  # the container never held more than 4
    host.free(start["other"], 4)
    assert (raising in host.answers, newcomer in host.answers) == (True, False)
    host.check()


# -- raised limits ----------------------------------------------------------------------------------------


def test_a_raised_limit_is_in_force_as_soon_as_a_free_makes_it_safe() -> None:
    host, start = make_host(16, ("a", 8), ("b", 14))
    host.allocate(start["a"], 4)
    host.allocate(start["b"], 8)
    host.dispatch(e.LimitsChanged("a", {"gpu": 14}))
    assert host.machine.account("a", "gpu").limit == 8
    host.free(start["b"], 6)
    assert host.machine.account("a", "gpu").limit == 14
    host.check()


def test_a_waiting_raise_is_not_delayed_by_memory_leased_ahead_of_need() -> None:
    host, start = make_host(16, ("a", 8), ("b", 14), ("c", 3))
    host.allocate(start["a"], 4)
    host.allocate(start["b"], 8)
    host.dispatch(e.LimitsChanged("a", {"gpu": 14}))
    host.allocate(start["c"], 1)
    host.free(start["b"], 6)
    assert host.machine.account("a", "gpu").limit == 14
    host.dispatch(e.LimitsChanged("a", {"gpu": 8}))
    assert not any(host.processes[start["b"]].armed.values())
    host.check()


# -- the age of a container and of a request ---------------------------------------------------------------


def test_the_oldest_container_is_the_one_that_started_first_and_not_the_oldest_volume() -> None:
    host, start = make_host(10, ("holder", 10))
    host.create("volume of yesterday", {"gpu": 10})
    host.unmount("volume of yesterday")
    host.create("started first", {"gpu": 10})
    host.mount("volume of yesterday")
    host.allocate(start["holder"], 10)
    younger = host.allocate(host.start("volume of yesterday"), 10)
    older = host.allocate(host.start("started first"), 10)
    host.end(start["holder"])
    assert (older in host.answers, younger in host.answers) == (True, False)


def test_without_a_mount_a_container_is_as_old_as_its_first_process() -> None:
    host, start = make_host(10, ("holder", 10))
    for name in ("second", "first"):
        host.create(name, {"gpu": 10})
        host.unmount(name)
    first, second = host.start("first"), host.start("second")
    host.start("first")
    host.allocate(start["holder"], 10)
    younger, older = host.allocate(second, 10), host.allocate(first, 10)
    host.end(start["holder"])
    assert (older in host.answers, younger in host.answers) == (True, False)


def test_an_allocation_that_is_sent_again_after_a_reconnection_keeps_its_age() -> None:
    host, start = make_host(10, ("holder", 10), ("n", 10), ("late", 10))
    host.allocate(start["holder"], 10)
    host.allocate(start["n"], 10)
    host.now = 50.0
    other = host.allocate(start["late"], 10)
    host.now = 55.0
    session = host.reconnect(start["n"], {})
    again = host.allocate(session, 10)
    host.now = 65.0
    (oldest, _) = host.machine.waiting
    assert (oldest.request, oldest.since) == (again, 0.0)
    host.end(start["holder"])
    assert (again in host.answers, other in host.answers) == (True, False)
    host.check()


def test_an_allocation_that_is_sent_again_after_a_reconnection_keeps_its_deadline() -> None:
    host, start = make_host(10, ("holder", 10))
    host.create("n", {"gpu": 10}, wait=30.0)
    session = host.start("n")
    host.allocate(start["holder"], 10)
    host.allocate(session, 10)
    host.now = 20.0
    again = host.allocate(host.reconnect(session, {}), 10)
    assert host.machine.next_deadline() == 30.0
    host.now = 30.0
    host.dispatch(e.TimePassed())
    assert isinstance(host.answers[again], e.Reject)


def test_only_what_waited_before_a_reconnection_keeps_its_age_and_only_once() -> None:
    host, start = make_host(10, ("holder", 10), ("n", 10))
    host.allocate(start["holder"], 10)
    host.allocate(start["n"], 4)
    host.now = 20.0
    session = host.reconnect(host.reconnect(start["n"], {}), {})
    requests = [host.allocate(session, size) for size in (3, 4, 4)]
    since = {waiting.request: waiting.since for waiting in host.machine.waiting}
    assert [since[request] for request in requests] == [20.0, 0.0, 20.0]
    host.check()


def test_what_a_reconnected_process_asks_for_later_is_new_though_it_is_alike() -> None:
    """What executes another program sends nothing again; the new one's request was overdue, or too late, at once."""
    host, start = make_host(10, ("holder", 10))
    host.create("n", {"gpu": 10}, wait=30.0)
    session = host.start("n")
    host.allocate(start["holder"], 10)
    host.allocate(session, 4)
    host.now = 20.0
    session = host.reconnect(session, {})
    host.now = 35.0
    fresh = host.allocate(session, 4)
    (waiting,) = host.machine.waiting
    assert (waiting.request, waiting.since) == (fresh, 35.0)
    host.now = 64.0
    host.dispatch(e.TimePassed())
    assert fresh not in host.answers
    host.check()
