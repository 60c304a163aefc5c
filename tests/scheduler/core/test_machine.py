import pytest
from world import World

from convgpu.core import events as e
from convgpu.core.events import HistoryKind, RejectReason
from convgpu.core.machine import Machine
from convgpu.core.step import Step
from convgpu.policies.memory import BestFit, Fifo, Policy


def world(capacity: int = 16, policy: Policy | None = None, **options: object) -> World:
    return World(Machine({"gpu": capacity}, policy or Fifo(), **options))


def happened(world: World) -> list[tuple[str, str, int]]:
    return [(one.kind, one.container, one.size) for one in world.history]


def test_a_container_that_fits_is_granted_its_whole_limit_with_the_first_allocation() -> None:
    machine = Machine({"gpu": 16}, Fifo())
    machine.handle(e.ContainerCreated("a", {"gpu": 10}), 0.0)
    machine.handle(e.SessionStarted(1, "a", {}), 0.0)
    assert machine.handle(e.AllocationRequested(1, 7, "gpu", 4), 0.0) == Step(
        (e.Lease(1, "gpu", 6), e.Accept(1, 7, 4, 0), e.HistoryEntry(HistoryKind.ACCEPTED, "a", "gpu", 4, 1, 7))
    )


def test_beyond_the_limit_is_rejected_at_once_and_up_to_the_limit_is_not() -> None:
    w = world()
    w.create("a", {"gpu": 10})
    one = w.start("a")
    assert w.answers[w.allocate(one, 11)] == e.Reject(one, 2, RejectReason.LIMIT)
    w.allocate(one, 6)
    assert isinstance(w.answers[w.allocate(one, 5)], e.Reject)
    assert w.allocate(one, 4) in (0, *w.answers)
    w.check()


def test_no_limit_on_that_device() -> None:
    w = world()
    w.create("a", {"gpu": 10})
    one = w.start("a")
    assert w.answers[w.allocate(one, 1, "other")] == e.Reject(one, 2, RejectReason.DEVICE)


def test_paused_until_the_holder_ends() -> None:
    w = world()
    w.create("a", {"gpu": 10})
    w.create("b", {"gpu": 10})
    a, b = w.start("a"), w.start("b")
    w.allocate(a, 10)
    w.allocate(b, 4)
    paused = w.allocate(b, 6)
    assert paused not in w.answers
    w.now = 3.0
    w.end(a)
    assert w.answers[paused] == e.Accept(b, paused, 6, 10)
    assert happened(w) == [
        (HistoryKind.ACCEPTED, "a", 10),
        (HistoryKind.ACCEPTED, "b", 4),
        (HistoryKind.PAUSED, "b", 6),
        (HistoryKind.RETURNED, "a", 10),
        (HistoryKind.GRANTED, "b", 6),
    ]
    assert w.history[-1].waited == 3.0
    w.check()


def test_unused_grant_is_taken_back_for_one_who_waits() -> None:
    w = world()
    w.create("a", {"gpu": 10})
    w.create("b", {"gpu": 10})
    a, b = w.start("a"), w.start("b")
    w.allocate(a, 2)
    assert w.processes[a].headroom["gpu"] == 8
    assert isinstance(w.answers[w.allocate(b, 10)], e.Accept)
    assert w.processes[a].headroom["gpu"] == 0
    w.check()


def test_a_free_while_somebody_waits_is_reported_and_ends_the_pause() -> None:
    w = world()
    w.create("a", {"gpu": 12})
    w.create("b", {"gpu": 12})
    a, b = w.start("a"), w.start("b")
    w.allocate(a, 12)
    paused = w.allocate(b, 8)
    w.free(a, 3)
    assert paused not in w.answers
    w.free(a, 9)
    assert isinstance(w.answers[paused], e.Accept)
    w.check()


def test_headroom_is_taken_back_from_a_few_where_that_suffices_and_from_all_before_somebody_waits() -> None:
    w = world(capacity=100)
    for number in range(100):
        w.create(f"c{number}", {"gpu": 2})
    ahead = [w.start(f"c{number}") for number in range(50)]
    for session in ahead:
        w.allocate(session, 1)
    assert all(w.processes[session].headroom["gpu"] == 1 for session in ahead)
    w.create("few", {"gpu": 10})
    assert isinstance(w.answers[w.allocate(w.start("few"), 10)], e.Accept)
    assert [w.processes[session].headroom["gpu"] for session in ahead] == [0] * 16 + [1] * 34
    w.create("all", {"gpu": 41})
    waits = w.allocate(w.start("all"), 41)
    assert waits not in w.answers
    assert not any(process.headroom["gpu"] for process in w.processes.values())
    w.check()


def test_a_free_between_the_first_look_and_the_order_to_report_it_is_not_lost() -> None:
    w = world()
    w.create("a", {"gpu": 12})
    w.create("b", {"gpu": 12})
    a, b = w.start("a"), w.start("b")
    w.allocate(a, 12)

    def free_once() -> None:
        w.after_look = lambda: None
        w.free(a, 12)

    w.after_look = free_once
    assert isinstance(w.answers[w.allocate(b, 8)], e.Accept)


def test_two_half_served_containers_cannot_block_each_other() -> None:
    w = world()
    w.create("a", {"gpu": 12})
    w.create("b", {"gpu": 12})
    a, b = w.start("a"), w.start("b")
    w.allocate(a, 8)
    first = w.allocate(b, 6)  # would leave 2 for a, who may still ask for 4: nobody could end
    assert first not in w.answers
    w.check()
    w.allocate(a, 4)
    w.end(a)
    assert isinstance(w.answers[first], e.Accept)
    w.check()


def test_processes_of_one_container_share_its_limit() -> None:
    w = world()
    w.create("a", {"gpu": 10})
    one, two = w.start("a"), w.start("a")
    w.allocate(one, 4)
    w.allocate(two, 6)
    assert isinstance(w.answers[w.allocate(one, 1)], e.Reject)
    w.end(two)
    assert isinstance(w.answers[w.allocate(one, 6)], e.Accept)
    w.check()


def test_a_sibling_that_takes_the_rest_ends_the_wait_with_a_rejection() -> None:
    w = world()
    w.create("x", {"gpu": 10})
    w.create("a", {"gpu": 10})
    x, one, two = w.start("x"), w.start("a"), w.start("a")
    w.allocate(x, 10)
    w.allocate(one, 1)
    paused = w.allocate(one, 8)
    w.allocate(two, 2)
    assert isinstance(w.answers[paused], e.Reject)
    w.check()


def test_the_wait_has_a_deadline_if_the_container_has_one() -> None:
    w = world()
    w.create("a", {"gpu": 16})
    w.create("b", {"gpu": 16}, wait=5.0)
    a, b = w.start("a"), w.start("b")
    w.allocate(a, 16)
    paused = w.allocate(b, 1)
    assert w.machine.next_deadline() == 5.0
    w.now = 4.9
    w.dispatch(e.TimePassed())
    assert paused not in w.answers
    w.now = 5.0
    w.dispatch(e.TimePassed())
    assert w.answers[paused] == e.Reject(b, paused, RejectReason.DEADLINE)
    assert w.machine.next_deadline() is None
    w.check()


def test_what_an_ended_process_used_is_settling_until_the_driver_has_freed_it() -> None:
    w = world()
    w.create("a", {"gpu": 16})
    one = w.start("a")
    w.allocate(one, 5)
    w.dispatch(e.SessionEnded(one, {"gpu": 11}))
    assert w.machine.settling("gpu") == 5
    w.dispatch(e.SettlingEnded(one))
    assert w.machine.settling("gpu") == 0


def test_a_word_that_lies_counts_for_no_more_than_was_leased() -> None:
    w = world()
    w.create("a", {"gpu": 8})
    w.create("b", {"gpu": 16})
    a, b = w.start("a"), w.start("b")
    w.allocate(a, 8)
    w.processes[a].headroom["gpu"] = 1 << 60
    w.allocate(b, 9)
    assert w.machine.ledger.accounts["a"]["gpu"].leased == 0
    w.machine.check_invariants(w.now)


def test_the_grant_stays_between_two_processes_and_goes_with_the_container() -> None:
    w = world()
    w.create("a", {"gpu": 10})
    w.allocate(w.start("a"), 4)
    w.end(1)
    assert w.machine.ledger.free == {"gpu": 6}
    w.dispatch(e.ContainerEnded("a"))
    assert w.machine.ledger.free == {"gpu": 16}


def test_processes_of_an_earlier_scheduler_come_back_before_anything_is_granted() -> None:
    w = world(recovering=True)
    w.create("a", {"gpu": 10})
    w.create("b", {"gpu": 16})
    b = w.start("b")
    asked = w.allocate(b, 16)
    assert asked not in w.answers
    a = w.start("a", {"gpu": 10})
    w.dispatch(e.RecoveryEnded())
    assert asked not in w.answers
    w.check()
    w.end(a)
    assert isinstance(w.answers[asked], e.Accept)


@pytest.mark.parametrize(("policy", "first"), [(Fifo(), "b"), (BestFit(), "c")])
def test_the_policy_chooses(policy: Policy, first: str) -> None:
    w = world(policy=policy)
    for name, limit in (("a", 16), ("b", 5), ("c", 12)):
        w.create(name, {"gpu": limit})
    a, b, c = (w.start(name) for name in "abc")
    w.allocate(a, 16)
    requests = {"b": w.allocate(b, 5), "c": w.allocate(c, 12)}
    w.end(a)
    assert [name for name, request in requests.items() if request in w.answers] == [first]
    w.check()


def test_an_overdue_one_is_not_overtaken_by_newcomers() -> None:
    w = world(policy=BestFit(), starvation_timeout=10.0)
    w.create("holder", {"gpu": 8})
    w.create("big", {"gpu": 16})
    holder, big = w.start("holder"), w.start("big")
    w.allocate(holder, 8)
    overdue = w.allocate(big, 16)
    w.now = 10.0
    w.create("small", {"gpu": 4})
    small = w.allocate(w.start("small"), 4)
    assert small not in w.answers
    w.end(holder)
    assert isinstance(w.answers[overdue], e.Accept)
    w.end(big)
    assert isinstance(w.answers[small], e.Accept)
    w.check()


def test_several_devices_are_judged_jointly() -> None:
    w = World(Machine({"g0": 10, "g1": 10}, Fifo()))
    w.create("a", {"g0": 10, "g1": 10})
    w.create("b", {"g0": 10, "g1": 10})
    a, b = w.start("a"), w.start("b")
    w.allocate(a, 6, "g0")
    crossed = w.allocate(b, 6, "g1")  # each would hold what the other needs
    assert crossed not in w.answers
    w.allocate(a, 10, "g1")
    w.end(a)
    assert isinstance(w.answers[crossed], e.Accept)
    w.check()


def test_an_overdue_one_keeps_newcomers_off_its_own_device_only() -> None:
    w = World(Machine({"g0": 16, "g1": 16}, BestFit(), starvation_timeout=60.0))
    w.create("server", {"g0": 16})
    for name in ("x", "y", "z"):
        w.create(name, {"g0": 16, "g1": 16})
    server, x, y, z = (w.start(name) for name in ("server", "x", "y", "z"))
    w.allocate(server, 12, "g0")
    overdue = w.allocate(x, 10, "g0")
    w.now = 61.0
    elsewhere = w.allocate(y, 8, "g1")
    assert isinstance(w.answers[elsewhere], e.Accept)
    same = w.allocate(z, 1, "g0")
    assert same not in w.answers
    w.check()
    w.end(server)
    w.end(y)
    assert isinstance(w.answers[overdue], e.Accept)


def test_an_overdue_one_that_fits_but_is_not_safe_is_not_delayed_by_newcomers_elsewhere() -> None:
    w = World(Machine({"g0": 16, "g1": 16}, BestFit(), starvation_timeout=60.0))
    for name in ("a", "x", "y"):
        w.create(name, {"g0": 16, "g1": 16})
    a, x, y = (w.start(name) for name in ("a", "x", "y"))
    w.allocate(a, 8, "g1")
    overdue = w.allocate(x, 10, "g0")  # a may still ask for all of g0
    assert overdue not in w.answers
    w.now = 61.0
    late = w.allocate(y, 1, "g1")
    assert late not in w.answers
    w.end(a)
    assert isinstance(w.answers[overdue], e.Accept)
    w.check()


def test_a_process_that_lost_its_connection_goes_on_with_what_it_uses() -> None:
    w = world()
    w.create("a", {"gpu": 6})
    w.create("b", {"gpu": 11})
    old = w.start("a")
    w.allocate(old, 6)
    waiting = w.allocate(w.start("b"), 11)
    assert waiting not in w.answers
    new = w.resume(old, {"gpu": 5})
    assert w.machine.ledger.accounts["a"]["gpu"].leases == {new: 5}
    assert isinstance(w.answers[waiting], e.Accept)
    w.check()


def test_no_deadline_passes_while_the_scheduler_itself_gives_no_grants() -> None:
    w = world(recovering=True)
    w.create("a", {"gpu": 10}, wait=1.0)
    asked = w.allocate(w.start("a"), 4)
    assert w.machine.next_deadline() is None
    w.now = 3.0
    w.dispatch(e.RecoveryEnded())
    assert isinstance(w.answers[asked], e.Accept)


def test_a_stream_of_containers_that_get_memory_elsewhere_first_does_not_keep_an_overdue_one_waiting() -> None:
    w = World(Machine({"g0": 16, "g1": 16}, BestFit(), starvation_timeout=60.0))
    w.create("x", {"g0": 16})
    stream = []

    def next_of_the_stream(number: int) -> None:
        w.create(f"y{number}", {"g0": 4, "g1": 4})
        stream.append(w.start(f"y{number}"))
        w.allocate(stream[-1], 1, "g1")
        w.allocate(stream[-1], 4, "g0")

    next_of_the_stream(0)
    x = w.allocate(w.start("x"), 16, "g0")
    for number in range(1, 30):
        w.now += 10.0
        next_of_the_stream(number)
        if len(stream) > 2:
            w.end(stream.pop(0))
        if x in w.answers:
            break
    assert x in w.answers
    assert w.now <= 2 * 60.0 + 4 * 10.0
    w.check()


def test_among_the_overdue_who_holds_memory_goes_first() -> None:
    w = world(policy=BestFit(), starvation_timeout=10.0)
    for name, size in (("a", 8), ("b", 13), ("newcomer", 8)):
        w.create(name, {"gpu": size})
    a, b, newcomer = (w.start(name) for name in ("a", "b", "newcomer"))
    w.allocate(a, 8)
    w.allocate(b, 7)
    older, younger = w.allocate(newcomer, 4), w.allocate(b, 6)
    w.now = 10.0
    w.end(a)
    assert (older in w.answers, younger in w.answers) == (False, True)
    w.end(b)
    assert older in w.answers
    w.check()
