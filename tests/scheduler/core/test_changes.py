"""What changes while containers run: limits, capacities, drained devices, what escaped the hook, the policy."""

from world import World

from convgpu.core import events as e
from convgpu.core.allocation.wait_reasons import WaitReason
from convgpu.core.events import RejectReason
from convgpu.core.machine import Machine
from convgpu.policies.memory import BestFit, Fifo


def world(capacity: int = 16, **options: object) -> World:
    return World(Machine({"gpu": capacity}, Fifo(), **options))


def limit(w: World, name: str) -> tuple[int, int | None]:
    account = w.machine.ledger.accounts[name]["gpu"]
    return account.limit, account.target


def test_a_raised_limit_is_in_force_at_once_if_everybody_can_still_end() -> None:
    w = world()
    w.create("a", {"gpu": 4})
    a = w.start("a")
    w.allocate(a, 4)
    w.dispatch(e.LimitsChanged("a", {"gpu": 10}))
    assert limit(w, "a") == (10, None)
    assert w.limits == [e.LimitInForce("a", "gpu", 10, None)]
    assert isinstance(w.answers[w.allocate(a, 6)], e.Accept)
    w.check()


def test_a_raised_limit_waits_until_it_is_safe_and_what_needs_it_is_refused_until_then() -> None:
    w = world()
    w.create("a", {"gpu": 8})
    w.create("b", {"gpu": 14})
    a, b = w.start("a"), w.start("b")
    w.allocate(a, 6)
    w.allocate(b, 6)  # b needs what a gives back
    w.dispatch(e.LimitsChanged("a", {"gpu": 12}))
    assert limit(w, "a") == (8, 12)
    w.allocate(a, 2)
    needs_it = w.allocate(a, 2)
    assert w.answers[needs_it] == e.Reject(a, needs_it, RejectReason.LIMIT)
    w.check()
    w.end(b)
    assert limit(w, "a") == (12, None)
    assert isinstance(w.answers[w.allocate(a, 4)], e.Accept)
    assert isinstance(w.answers[w.allocate(a, 1)], e.Reject)
    w.check()


def test_who_waits_for_a_raise_on_an_overcommitted_device_is_refused_when_that_is_withdrawn() -> None:
    """Found by random histories."""
    w = world()
    w.create("a", {"gpu": 8})
    a = w.start("a")
    w.allocate(a, 8)
    w.dispatch(e.CapacityChanged("gpu", 4))
    w.dispatch(e.LimitsChanged("a", {"gpu": 12}))
    waits = w.allocate(a, 2)
    assert waits not in w.answers
    w.check()
    w.dispatch(e.LimitsChanged("a", {"gpu": 8}))
    assert w.answers[waits] == e.Reject(a, waits, RejectReason.LIMIT)
    w.check()


def test_two_whose_limits_are_raised_do_not_wait_for_each_other() -> None:
    """Found by the model: b waited for its raise, that for the end of a, and a for memory of b."""
    w = world(2)
    w.create("a", {"gpu": 1})
    w.create("b", {"gpu": 1})
    a, b = w.start("a"), w.start("b")
    w.allocate(a, 1)
    w.allocate(b, 1)
    w.dispatch(e.LimitsChanged("a", {"gpu": 2}))
    w.dispatch(e.LimitsChanged("b", {"gpu": 2}))
    assert (limit(w, "a"), limit(w, "b")) == ((2, None), (1, 2))
    waits, needs_it = w.allocate(a, 1), w.allocate(b, 1)
    assert waits not in w.answers
    assert w.answers[needs_it] == e.Reject(b, needs_it, RejectReason.LIMIT)
    w.end(b)
    assert isinstance(w.answers[waits], e.Accept)
    w.check()


def test_idle_memory_of_others_does_not_keep_a_limit_from_being_raised() -> None:
    w = world()
    w.create("a", {"gpu": 4})
    w.create("b", {"gpu": 12})
    w.allocate(w.start("a"), 4)
    w.allocate(w.start("b"), 1)
    w.dispatch(e.LimitsChanged("a", {"gpu": 16}))
    assert limit(w, "a") == (16, None)
    w.check()


def test_a_lowered_limit_is_in_force_at_once_down_to_what_is_in_use_and_follows_what_is_freed() -> None:
    w = world()
    w.create("a", {"gpu": 16})
    a = w.start("a")
    w.allocate(a, 10)
    w.dispatch(e.LimitsChanged("a", {"gpu": 4}))
    assert limit(w, "a") == (10, 4)
    assert w.answers[w.allocate(a, 1)] == e.Reject(a, 3, RejectReason.LIMIT)
    w.free(a, 5)
    assert limit(w, "a") == (5, 4)
    w.free(a, 5)
    assert limit(w, "a") == (4, None)
    assert [one.limit for one in w.limits] == [10, 5, 4]
    assert isinstance(w.answers[w.allocate(a, 4)], e.Accept)
    w.check()


def test_a_limit_is_lowered_when_the_processes_of_an_earlier_scheduler_are_back() -> None:
    w = world(recovering=True)
    w.create("a", {"gpu": 16})
    w.dispatch(e.LimitsChanged("a", {"gpu": 4}))
    a = w.start("a", {"gpu": 10})
    assert limit(w, "a") == (16, 4)
    w.dispatch(e.RecoveryEnded())
    assert limit(w, "a") == (10, 4)
    w.end(a)
    assert limit(w, "a") == (4, None)
    w.check()


def test_the_limit_in_force_asked_for_again_ends_what_was_pending() -> None:
    w = world()
    w.create("a", {"gpu": 16})
    a = w.start("a")
    w.allocate(a, 10)
    w.dispatch(e.LimitsChanged("a", {"gpu": 4}))
    w.dispatch(e.LimitsChanged("a", {"gpu": 10}))
    assert limit(w, "a") == (10, None)
    assert not w.processes[a].wanted["gpu"]
    w.check()


def test_a_waiting_allocation_beyond_a_lowered_limit_is_rejected() -> None:
    w = world()
    w.create("a", {"gpu": 16})
    w.create("b", {"gpu": 16})
    w.allocate(w.start("a"), 16)
    waiting = w.allocate(w.start("b"), 8)
    w.dispatch(e.LimitsChanged("b", {"gpu": 7}))
    assert isinstance(w.answers[waiting], e.Reject)
    w.check()


def test_a_drained_device_grants_nothing_until_it_is_not_drained() -> None:
    w = world()
    w.create("a", {"gpu": 8})
    w.create("b", {"gpu": 8})
    a, b = w.start("a"), w.start("b")
    w.allocate(a, 2)
    w.dispatch(e.DeviceDrained("gpu", drained=True))
    waiting = w.allocate(b, 1)
    assert waiting not in w.answers
    assert w.allocate(a, 6) in (0, *w.answers)  # it was granted before
    w.check()
    w.dispatch(e.DeviceDrained("gpu", drained=False))
    assert isinstance(w.answers[waiting], e.Accept)
    w.check()


def test_foreign_memory_is_taken_from_what_is_free_and_then_from_what_is_idle() -> None:
    w = world()
    w.create("a", {"gpu": 10})
    a = w.start("a")
    w.allocate(a, 2)
    w.dispatch(e.CapacityChanged("gpu", 6))
    assert w.machine.ledger.free == {"gpu": 4}
    assert w.processes[a].headroom["gpu"] == 0
    w.check()
    waiting = w.allocate(a, 8)  # within the limit: it waits for the foreign memory
    assert waiting not in w.answers
    w.dispatch(e.CapacityChanged("gpu", 16))
    assert isinstance(w.answers[waiting], e.Accept)
    w.check()


def test_a_lost_device_pauses_its_own_and_lets_the_others_go_on() -> None:
    w = World(Machine({"g0": 16, "g1": 16}, BestFit()))
    w.create("a", {"g0": 8, "g1": 8})
    w.create("b", {"g0": 16, "g1": 16})
    a, b = w.start("a"), w.start("b")
    w.allocate(a, 8, "g0")
    w.dispatch(e.CapacityChanged("g0", 0))
    lost, other = w.allocate(b, 1, "g0"), w.allocate(b, 8, "g1")
    assert lost not in w.answers
    assert isinstance(w.answers[other], e.Accept)
    w.check()
    w.dispatch(e.CapacityChanged("g0", 16))
    assert isinstance(w.answers[lost], e.Accept)
    w.check()


def test_what_is_decided_while_a_device_is_lost_leaves_nobody_stuck_when_it_is_back() -> None:
    """Nobody can ask for memory of a lost device, so what a and b may still ask for there was left out."""
    w = World(Machine({"g0": 16, "g1": 16}, BestFit()))
    for name in "abc":
        w.create(name, {"g0": 16, "g1": 16} if name != "c" else {"g1": 8})
    a, b, c = (w.start(name) for name in "abc")
    w.allocate(a, 8, "g0")
    w.dispatch(e.CapacityChanged("g0", 0))
    waits = w.allocate(b, 8, "g1")
    assert waits not in w.answers
    assert (w.machine.explain(w.now)[waits].reason, w.machine.explain(w.now)[waits].behind) == (
        WaitReason.SAFETY,
        ("a",),
    )
    assert isinstance(w.answers[w.allocate(c, 8, "g1")], e.Accept)  # it has nothing to do with g0
    w.check()
    w.dispatch(e.CapacityChanged("g0", 16))
    assert not any(w.machine.ledger.deficit.values())
    w.end(c)
    w.allocate(a, 16, "g1")
    w.end(a)
    assert isinstance(w.answers[waits], e.Accept)
    w.check()


def test_two_that_foreign_memory_keeps_from_ending_are_not_let_into_a_deadlock() -> None:
    w = world()
    w.create("a", {"gpu": 10})
    w.create("b", {"gpu": 10})
    a, b = w.start("a"), w.start("b")
    w.allocate(a, 5)
    w.allocate(b, 5)
    w.dispatch(e.CapacityChanged("gpu", 13))  # 3 free, each may still ask for 5
    assert sum(w.machine.ledger.deficit.values()) == 2
    first = w.allocate(a, 1)
    second = w.allocate(b, 1)
    assert first in w.answers
    assert second not in w.answers
    w.check()
    w.allocate(a, 2)
    w.end(a)
    assert second in w.answers
    assert not any(w.machine.ledger.deficit.values())
    w.check()


def test_a_raise_on_an_overcommitted_device_is_judged_when_it_is_not_any_more() -> None:
    w = world()
    w.create("a", {"gpu": 16})
    w.create("b", {"gpu": 8})
    a, b = w.start("a"), w.start("b")
    w.allocate(a, 2)
    w.allocate(b, 2)
    w.dispatch(e.CapacityChanged("gpu", 1))
    w.dispatch(e.LimitsChanged("b", {"gpu": 16}))
    account = w.machine.ledger.accounts["b"]["gpu"]
    assert (account.limit, account.target) == (8, 16)
    w.dispatch(e.CapacityChanged("gpu", 16))  # 12 free: with the raise both could ask for 14
    assert (account.limit, account.target) == (8, 16)
    assert not any(w.machine.ledger.deficit.values())
    w.end(a)
    assert (account.limit, account.target) == (16, None)
    w.check()


def test_what_escaped_the_hook_is_charged_even_above_the_limit_and_given_back() -> None:
    w = world()
    w.create("a", {"gpu": 8})
    w.create("b", {"gpu": 16})
    a, b = w.start("a"), w.start("b")
    w.allocate(a, 6)
    w.dispatch(e.UnleasedMemory("a", "gpu", 5))
    account = w.machine.ledger.accounts["a"]["gpu"]
    assert (account.grant, account.held, account.charged) == (6, 11, 5)
    assert w.machine.ledger.free == {"gpu": 5}
    assert isinstance(w.answers[w.allocate(a, 1)], e.Reject)
    waiting = w.allocate(b, 6)
    assert waiting not in w.answers
    w.check()
    w.dispatch(e.UnleasedMemory("a", "gpu", 0))
    assert (account.grant, account.held) == (6, 6)
    assert isinstance(w.answers[waiting], e.Accept)
    w.check()


def test_who_is_charged_its_whole_limit_is_rejected_although_it_leases_nothing() -> None:
    """Found by random histories."""
    w = world()
    w.create("a", {"gpu": 3})
    a = w.start("a")
    w.dispatch(e.UnleasedMemory("a", "gpu", 8))
    asked = w.allocate(a, 3)
    assert w.answers[asked] == e.Reject(a, asked, RejectReason.LIMIT)
    w.check()


def test_a_process_whose_container_is_charged_its_whole_limit_reconnects_with_what_it_holds() -> None:
    """Found by random histories."""
    w = world()
    w.create("a", {"gpu": 3})
    a = w.start("a")
    w.allocate(a, 3)
    w.dispatch(e.UnleasedMemory("a", "gpu", 1))
    again = w.resume(a, {"gpu": 3})
    assert w.machine.ledger.accounts["a"]["gpu"].leases == {again: 3}
    w.check()


def test_what_is_given_back_on_an_overcommitted_device_covers_that_first() -> None:
    """Found by random histories: then nobody may be able to end, although everybody could before."""
    w = world(18)
    for name, size in (("a", 2), ("b", 3), ("c", 2)):
        w.create(name, {"gpu": size})
    a, b, c = (w.start(name) for name in "abc")
    for session, size in ((a, 1), (b, 2), (c, 2)):
        w.allocate(session, size)
    w.dispatch(e.UnleasedMemory("a", "gpu", 14))
    assert w.machine.ledger.free == {"gpu": -1}
    w.check()
    waiting = w.allocate(b, 1)
    w.free(c, 1)
    w.check()
    assert waiting not in w.answers
    w.end(c)
    w.dispatch(e.UnleasedMemory("a", "gpu", 0))
    assert waiting in w.answers
    assert w.machine.ledger.deficit == {"gpu": 0}
    w.check()


def test_priority_comes_before_the_policy_and_age_before_priority() -> None:
    w = world(starvation_timeout=60.0)
    w.create("holder", {"gpu": 16})
    w.create("old", {"gpu": 9})
    w.create("urgent", {"gpu": 9}, priority=5)
    holder, old, urgent = (w.start(name) for name in ("holder", "old", "urgent"))
    w.allocate(holder, 16)
    first, second = w.allocate(old, 9), w.allocate(urgent, 9)
    w.end(holder)
    assert (first in w.answers, second in w.answers) == (False, True)
    w.now = 60.0
    w.create("late", {"gpu": 9}, priority=5)
    third = w.allocate(w.start("late"), 9)
    w.end(urgent)
    assert (first in w.answers, third in w.answers) == (True, False)
    w.check()


def test_another_policy_chooses_from_now_on() -> None:
    w = world()
    for name, size in (("a", 16), ("b", 5), ("c", 12)):
        w.create(name, {"gpu": size})
    a, b, c = (w.start(name) for name in "abc")
    w.allocate(a, 16)
    w.allocate(b, 5)
    waiting = w.allocate(c, 12)
    w.dispatch(e.PolicyChosen("best-fit"))
    w.end(a)
    assert waiting in w.answers
    assert w.machine.policy.name == "best-fit"


def test_what_waits_on_a_drained_device_is_refused_when_an_idle_grant_is_used_instead() -> None:
    w = world()
    w.create("a", {"gpu": 7})
    w.create("b", {"gpu": 13})
    a, b = w.start("a"), w.start("b")
    w.allocate(b, 13)
    w.allocate(a, 3)
    w.dispatch(e.DeviceDrained("gpu", drained=True))
    w.free(a, 3)
    waits = w.allocate(a, 5)
    assert waits not in w.answers
    assert isinstance(w.answers[w.allocate(a, 3)], e.Accept)
    assert w.answers[waits] == e.Reject(a, waits, RejectReason.LIMIT)
    w.check()
