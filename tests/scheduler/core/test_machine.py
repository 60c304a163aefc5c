import pytest
from checked_host import CheckedHost

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.step import Step
from convgpu.policies.memory import BestFit, Fifo, Policy
from convgpu.protocol.event_kinds import EventKind, RejectReason


def make_host(capacity: int = 16, policy: Policy | None = None, **options: object) -> CheckedHost:
    return CheckedHost(Machine({"gpu": capacity}, policy or Fifo(), **options))


def happened(host: CheckedHost) -> list[tuple[str, str, int]]:
    return [(one.kind, one.container, one.size) for one in host.history]


def test_a_container_that_fits_is_granted_its_whole_limit_with_the_first_allocation() -> None:
    machine = Machine({"gpu": 16}, Fifo())
    machine.handle(e.ContainerCreated("a", {"gpu": 10}), 0.0)
    machine.handle(e.SessionStarted(1, "a", {}), 0.0)
    assert machine.handle(e.AllocationRequested(1, 7, "gpu", 4), 0.0) == Step(
        (e.Lease(1, "gpu", 6), e.Accept(1, 7, 4, 0), e.HistoryEntry(EventKind.ACCEPTED, "a", "gpu", 4, 1, 7))
    )


def test_beyond_the_limit_is_rejected_at_once_and_up_to_the_limit_is_not() -> None:
    host = make_host()
    host.create("a", {"gpu": 10})
    one = host.start("a")
    assert host.answers[host.allocate(one, 11)] == e.Reject(one, 2, RejectReason.LIMIT)
    host.allocate(one, 6)
    assert isinstance(host.answers[host.allocate(one, 5)], e.Reject)
    assert host.allocate(one, 4) in (0, *host.answers)
    host.check()


def test_an_allocation_on_a_device_without_a_limit_is_rejected() -> None:
    host = make_host()
    host.create("a", {"gpu": 10})
    one = host.start("a")
    assert host.answers[host.allocate(one, 1, "other")] == e.Reject(one, 2, RejectReason.DEVICE)


def test_an_allocation_is_paused_until_the_holder_ends() -> None:
    host = make_host()
    host.create("a", {"gpu": 10})
    host.create("b", {"gpu": 10})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 10)
    host.allocate(b, 4)
    paused = host.allocate(b, 6)
    assert paused not in host.answers
    host.now = 3.0
    host.end(a)
    assert host.answers[paused] == e.Accept(b, paused, 6, 10)
    assert happened(host) == [
        (EventKind.ACCEPTED, "a", 10),
        (EventKind.ACCEPTED, "b", 4),
        (EventKind.PAUSED, "b", 6),
        (EventKind.RETURNED, "a", 10),
        (EventKind.GRANTED, "b", 6),
    ]
    assert host.history[-1].waited == 3.0
    host.check()


def test_an_unused_grant_is_taken_back_for_a_waiting_container() -> None:
    host = make_host()
    host.create("a", {"gpu": 10})
    host.create("b", {"gpu": 10})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 2)
    assert host.processes[a].headroom["gpu"] == 8
    assert isinstance(host.answers[host.allocate(b, 10)], e.Accept)
    assert host.processes[a].headroom["gpu"] == 0
    host.check()


def test_a_free_while_an_allocation_waits_is_reported_and_ends_the_pause() -> None:
    host = make_host()
    host.create("a", {"gpu": 12})
    host.create("b", {"gpu": 12})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 12)
    paused = host.allocate(b, 8)
    host.free(a, 3)
    assert paused not in host.answers
    host.free(a, 9)
    assert isinstance(host.answers[paused], e.Accept)
    host.check()


def test_headroom_is_taken_from_a_few_slots_where_that_suffices_and_from_all_before_a_pause() -> None:
    host = make_host(capacity=100)
    for number in range(100):
        host.create(f"c{number}", {"gpu": 2})
    ahead = [host.start(f"c{number}") for number in range(50)]
    for session in ahead:
        host.allocate(session, 1)
    assert all(host.processes[session].headroom["gpu"] == 1 for session in ahead)
    host.create("few", {"gpu": 10})
    assert isinstance(host.answers[host.allocate(host.start("few"), 10)], e.Accept)
    assert [host.processes[session].headroom["gpu"] for session in ahead] == [0] * 16 + [1] * 34
    host.create("all", {"gpu": 41})
    waits = host.allocate(host.start("all"), 41)
    assert waits not in host.answers
    assert not any(process.headroom["gpu"] for process in host.processes.values())
    host.check()


def test_a_free_between_the_first_take_and_the_arming_is_not_lost() -> None:
    host = make_host()
    host.create("a", {"gpu": 12})
    host.create("b", {"gpu": 12})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 12)

    def free_once() -> None:
        host.after_take = lambda: None
        host.free(a, 12)

    host.after_take = free_once
    assert isinstance(host.answers[host.allocate(b, 8)], e.Accept)


def test_two_half_served_containers_cannot_deadlock() -> None:
    host = make_host()
    host.create("a", {"gpu": 12})
    host.create("b", {"gpu": 12})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 8)
    first = host.allocate(b, 6)  # would leave 2 for a, who may still ask for 4: nobody could end
    assert first not in host.answers
    host.check()
    host.allocate(a, 4)
    host.end(a)
    assert isinstance(host.answers[first], e.Accept)
    host.check()


def test_processes_of_one_container_share_its_limit() -> None:
    host = make_host()
    host.create("a", {"gpu": 10})
    one, two = host.start("a"), host.start("a")
    host.allocate(one, 4)
    host.allocate(two, 6)
    assert isinstance(host.answers[host.allocate(one, 1)], e.Reject)
    host.end(two)
    assert isinstance(host.answers[host.allocate(one, 6)], e.Accept)
    host.check()


def test_an_allocation_is_rejected_when_a_sibling_takes_the_rest_of_the_limit() -> None:
    host = make_host()
    host.create("x", {"gpu": 10})
    host.create("a", {"gpu": 10})
    x, one, two = host.start("x"), host.start("a"), host.start("a")
    host.allocate(x, 10)
    host.allocate(one, 1)
    paused = host.allocate(one, 8)
    host.allocate(two, 2)
    assert isinstance(host.answers[paused], e.Reject)
    host.check()


def test_an_allocation_is_rejected_at_the_deadline_of_its_container() -> None:
    host = make_host()
    host.create("a", {"gpu": 16})
    host.create("b", {"gpu": 16}, wait=5.0)
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 16)
    paused = host.allocate(b, 1)
    assert host.machine.next_deadline() == 5.0
    host.now = 4.9
    host.dispatch(e.TimePassed())
    assert paused not in host.answers
    host.now = 5.0
    host.dispatch(e.TimePassed())
    assert host.answers[paused] == e.Reject(b, paused, RejectReason.DEADLINE)
    assert host.machine.next_deadline() is None
    host.check()


def test_the_memory_of_an_ended_process_is_settling_until_the_driver_has_freed_it() -> None:
    host = make_host()
    host.create("a", {"gpu": 16})
    one = host.start("a")
    host.allocate(one, 5)
    host.dispatch(e.SessionEnded(one, {"gpu": 11}))
    assert host.machine.settling("gpu") == 5
    host.dispatch(e.SettlingEnded(one))
    assert host.machine.settling("gpu") == 0


def test_a_slot_that_lies_counts_for_no_more_than_was_leased() -> None:
    host = make_host()
    host.create("a", {"gpu": 8})
    host.create("b", {"gpu": 16})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 8)
    host.processes[a].headroom["gpu"] = 1 << 60
    host.allocate(b, 9)
    assert host.machine.account("a", "gpu").leased == 0
    host.machine.check_invariants(host.now)


def test_the_grant_outlives_a_process_and_ends_with_the_container() -> None:
    host = make_host()
    host.create("a", {"gpu": 10})
    host.allocate(host.start("a"), 4)
    host.end(1)
    assert host.machine.device("gpu").free == 6
    host.dispatch(e.ContainerEnded("a"))
    assert host.machine.device("gpu").free == 16


def test_processes_of_an_earlier_scheduler_reconnect_before_anything_is_granted() -> None:
    host = make_host(recovering=True)
    host.create("a", {"gpu": 10})
    host.create("b", {"gpu": 16})
    b = host.start("b")
    asked = host.allocate(b, 16)
    assert asked not in host.answers
    a = host.start("a", {"gpu": 10})
    host.dispatch(e.RecoveryEnded())
    assert asked not in host.answers
    host.check()
    host.end(a)
    assert isinstance(host.answers[asked], e.Accept)


@pytest.mark.parametrize(("policy", "first"), [(Fifo(), "b"), (BestFit(), "c")])
def test_the_policy_chooses_among_allocations_that_fit(policy: Policy, first: str) -> None:
    host = make_host(policy=policy)
    for name, limit in (("a", 16), ("b", 5), ("c", 12)):
        host.create(name, {"gpu": limit})
    a, b, c = (host.start(name) for name in "abc")
    host.allocate(a, 16)
    requests = {"b": host.allocate(b, 5), "c": host.allocate(c, 12)}
    host.end(a)
    assert [name for name, request in requests.items() if request in host.answers] == [first]
    host.check()


def test_an_overdue_allocation_is_not_overtaken_by_newcomers() -> None:
    host = make_host(policy=BestFit(), starvation_timeout=10.0)
    host.create("holder", {"gpu": 8})
    host.create("big", {"gpu": 16})
    holder, big = host.start("holder"), host.start("big")
    host.allocate(holder, 8)
    overdue = host.allocate(big, 16)
    host.now = 10.0
    host.create("small", {"gpu": 4})
    small = host.allocate(host.start("small"), 4)
    assert small not in host.answers
    host.end(holder)
    assert isinstance(host.answers[overdue], e.Accept)
    host.end(big)
    assert isinstance(host.answers[small], e.Accept)
    host.check()


def test_safety_is_checked_for_all_devices_jointly() -> None:
    host = CheckedHost(Machine({"g0": 10, "g1": 10}, Fifo()))
    host.create("a", {"g0": 10, "g1": 10})
    host.create("b", {"g0": 10, "g1": 10})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 6, "g0")
    crossed = host.allocate(b, 6, "g1")  # each would hold what the other needs
    assert crossed not in host.answers
    host.allocate(a, 10, "g1")
    host.end(a)
    assert isinstance(host.answers[crossed], e.Accept)
    host.check()


def test_an_overdue_allocation_holds_newcomers_back_on_its_own_device_only() -> None:
    host = CheckedHost(Machine({"g0": 16, "g1": 16}, BestFit(), starvation_timeout=60.0))
    host.create("server", {"g0": 16})
    for name in ("x", "y", "z"):
        host.create(name, {"g0": 16, "g1": 16})
    server, x, y, z = (host.start(name) for name in ("server", "x", "y", "z"))
    host.allocate(server, 12, "g0")
    overdue = host.allocate(x, 10, "g0")
    host.now = 61.0
    elsewhere = host.allocate(y, 8, "g1")
    assert isinstance(host.answers[elsewhere], e.Accept)
    same = host.allocate(z, 1, "g0")
    assert same not in host.answers
    host.check()
    host.end(server)
    host.end(y)
    assert isinstance(host.answers[overdue], e.Accept)


def test_an_overdue_allocation_that_fits_but_is_not_safe_is_not_delayed_by_newcomers_elsewhere() -> None:
    host = CheckedHost(Machine({"g0": 16, "g1": 16}, BestFit(), starvation_timeout=60.0))
    for name in ("a", "x", "y"):
        host.create(name, {"g0": 16, "g1": 16})
    a, x, y = (host.start(name) for name in ("a", "x", "y"))
    host.allocate(a, 8, "g1")
    overdue = host.allocate(x, 10, "g0")  # a may still ask for all of g0
    assert overdue not in host.answers
    host.now = 61.0
    late = host.allocate(y, 1, "g1")
    assert late not in host.answers
    host.end(a)
    assert isinstance(host.answers[overdue], e.Accept)
    host.check()


def test_a_process_that_reconnects_keeps_what_it_uses() -> None:
    host = make_host()
    host.create("a", {"gpu": 6})
    host.create("b", {"gpu": 11})
    old = host.start("a")
    host.allocate(old, 6)
    waiting = host.allocate(host.start("b"), 11)
    assert waiting not in host.answers
    new = host.reconnect(old, {"gpu": 5})
    assert host.machine.account("a", "gpu").leases == {new: 5}
    assert isinstance(host.answers[waiting], e.Accept)
    host.check()


@pytest.mark.parametrize("exported", [0, 4, 99])
def test_who_executes_another_program_is_charged_with_what_others_keep_of_it(exported: int) -> None:
    """In one event, so that nobody is granted it in between."""
    host = make_host()
    host.create("a", {"gpu": 6})
    host.create("b", {"gpu": 13})
    old = host.start("a")
    host.allocate(old, 6)
    waiting = host.allocate(host.start("b"), 13)
    host.reconnect(old, {}, exported=exported)
    account = host.machine.account("a", "gpu")
    assert (account.grant, account.charged) == (0, min(exported, 6))
    assert (waiting in host.answers) == (not exported)
    assert host.machine.snapshot().devices["gpu"].free == (16 - min(exported, 6) if exported else 3)
    host.check()


def test_no_deadline_passes_during_recovery() -> None:
    host = make_host(recovering=True)
    host.create("a", {"gpu": 10}, wait=1.0)
    asked = host.allocate(host.start("a"), 4)
    assert host.machine.next_deadline() is None
    host.now = 3.0
    host.dispatch(e.RecoveryEnded())
    assert isinstance(host.answers[asked], e.Accept)


def test_containers_that_get_memory_elsewhere_first_do_not_starve_an_overdue_allocation() -> None:
    host = CheckedHost(Machine({"g0": 16, "g1": 16}, BestFit(), starvation_timeout=60.0))
    host.create("x", {"g0": 16})
    stream = []

    def next_of_the_stream(number: int) -> None:
        host.create(f"y{number}", {"g0": 4, "g1": 4})
        stream.append(host.start(f"y{number}"))
        host.allocate(stream[-1], 1, "g1")
        host.allocate(stream[-1], 4, "g0")

    next_of_the_stream(0)
    x = host.allocate(host.start("x"), 16, "g0")
    for number in range(1, 30):
        host.now += 10.0
        next_of_the_stream(number)
        if len(stream) > 2:
            host.end(stream.pop(0))
        if x in host.answers:
            break
    assert x in host.answers
    assert host.now <= 2 * 60.0 + 4 * 10.0
    host.check()


def test_among_overdue_allocations_those_of_holders_go_first() -> None:
    host = make_host(policy=BestFit(), starvation_timeout=10.0)
    for name, size in (("a", 8), ("b", 13), ("newcomer", 8)):
        host.create(name, {"gpu": size})
    a, b, newcomer = (host.start(name) for name in ("a", "b", "newcomer"))
    host.allocate(a, 8)
    host.allocate(b, 7)
    older, younger = host.allocate(newcomer, 4), host.allocate(b, 6)
    host.now = 10.0
    host.end(a)
    assert (older in host.answers, younger in host.answers) == (False, True)
    host.end(b)
    assert older in host.answers
    host.check()
