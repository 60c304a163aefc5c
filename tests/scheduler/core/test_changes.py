"""Changes while containers run: limits, capacities, drained devices, unleased memory, the policy."""

from checked_host import CheckedHost

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import BestFit, Fifo
from convgpu.protocol.event_kinds import RejectReason, WaitReason


def make_host(capacity: int = 16, **options: object) -> CheckedHost:
    return CheckedHost(Machine({"gpu": capacity}, Fifo(), **options))


def total_deficit(host: CheckedHost) -> int:
    return sum(figures.deficit for figures in host.machine.snapshot().devices.values())


def limit(host: CheckedHost, name: str) -> tuple[int, int | None]:
    account = host.machine.account(name, "gpu")
    return account.limit, account.target


def holdings(host: CheckedHost, name: str) -> tuple[int, int, int]:
    account = host.machine.account(name, "gpu")
    return account.grant, account.held, account.charged


def test_a_raised_limit_is_in_force_at_once_if_it_is_safe() -> None:
    host = make_host()
    host.create("a", {"gpu": 4})
    a = host.start("a")
    host.allocate(a, 4)
    host.dispatch(e.LimitsChanged("a", {"gpu": 10}))
    assert limit(host, "a") == (10, None)
    assert host.limit_changes == [e.LimitInForce("a", "gpu", 10, None)]
    assert isinstance(host.answers[host.allocate(a, 6)], e.Accept)
    host.check()


def test_a_raised_limit_waits_until_it_is_safe_and_allocations_above_it_are_rejected_until_then() -> None:
    host = make_host()
    host.create("a", {"gpu": 8})
    host.create("b", {"gpu": 14})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 6)
    host.allocate(b, 6)  # b needs what a gives back
    host.dispatch(e.LimitsChanged("a", {"gpu": 12}))
    assert limit(host, "a") == (8, 12)
    host.allocate(a, 2)
    needs_it = host.allocate(a, 2)
    assert host.answers[needs_it] == e.Reject(a, needs_it, RejectReason.LIMIT)
    host.check()
    host.end(b)
    assert limit(host, "a") == (12, None)
    assert isinstance(host.answers[host.allocate(a, 4)], e.Accept)
    assert isinstance(host.answers[host.allocate(a, 1)], e.Reject)
    host.check()


def test_an_allocation_that_waits_for_a_raise_on_an_overcommitted_device_is_rejected_when_the_raise_is_withdrawn() -> (
    None
):
    """Found by random histories."""
    host = make_host()
    host.create("a", {"gpu": 8})
    a = host.start("a")
    host.allocate(a, 8)
    host.dispatch(e.CapacityChanged("gpu", 4))
    host.dispatch(e.LimitsChanged("a", {"gpu": 12}))
    waits = host.allocate(a, 2)
    assert waits not in host.answers
    host.check()
    host.dispatch(e.LimitsChanged("a", {"gpu": 8}))
    assert host.answers[waits] == e.Reject(a, waits, RejectReason.LIMIT)
    host.check()


def test_two_raised_limits_do_not_deadlock() -> None:
    """Found by the model: b waited for its raise, the raise for the end of a, and a for memory of b."""
    host = make_host(2)
    host.create("a", {"gpu": 1})
    host.create("b", {"gpu": 1})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 1)
    host.allocate(b, 1)
    host.dispatch(e.LimitsChanged("a", {"gpu": 2}))
    host.dispatch(e.LimitsChanged("b", {"gpu": 2}))
    assert (limit(host, "a"), limit(host, "b")) == ((2, None), (1, 2))
    waits, needs_it = host.allocate(a, 1), host.allocate(b, 1)
    assert waits not in host.answers
    assert host.answers[needs_it] == e.Reject(b, needs_it, RejectReason.LIMIT)
    host.end(b)
    assert isinstance(host.answers[waits], e.Accept)
    host.check()


def test_idle_grants_of_other_containers_do_not_delay_a_raised_limit() -> None:
    host = make_host()
    host.create("a", {"gpu": 4})
    host.create("b", {"gpu": 12})
    host.allocate(host.start("a"), 4)
    host.allocate(host.start("b"), 1)
    host.dispatch(e.LimitsChanged("a", {"gpu": 16}))
    assert limit(host, "a") == (16, None)
    host.check()


def test_a_lowered_limit_is_in_force_at_once_down_to_what_is_in_use_and_follows_what_is_freed() -> None:
    host = make_host()
    host.create("a", {"gpu": 16})
    a = host.start("a")
    host.allocate(a, 10)
    host.dispatch(e.LimitsChanged("a", {"gpu": 4}))
    assert limit(host, "a") == (10, 4)
    assert host.answers[host.allocate(a, 1)] == e.Reject(a, 3, RejectReason.LIMIT)
    host.free(a, 5)
    assert limit(host, "a") == (5, 4)
    host.free(a, 5)
    assert limit(host, "a") == (4, None)
    assert [one.limit for one in host.limit_changes] == [10, 5, 4]
    assert isinstance(host.answers[host.allocate(a, 4)], e.Accept)
    host.check()


def test_a_lowered_limit_follows_what_children_keep_of_ended_processes() -> None:
    """It fell with the program's end, and the container was ended for what a child kept."""
    host = make_host()
    host.create("a", {"gpu": 16})
    a = host.start("a")
    host.allocate(a, 10)
    host.dispatch(e.LimitsChanged("a", {"gpu": 4}))
    host.end(a, settled=False)
    host.dispatch(e.MayBeKept("a", "gpu", 10))
    host.settle(a)
    assert limit(host, "a") == (10, 4)
    host.dispatch(e.UnleasedMemory("a", "gpu", 8))
    host.dispatch(e.MayBeKept("a", "gpu", 0))
    assert limit(host, "a") == (8, 4)


def test_a_limit_is_lowered_after_the_processes_of_an_earlier_scheduler_have_reconnected() -> None:
    host = make_host(recovering=True)
    host.create("a", {"gpu": 16})
    host.dispatch(e.LimitsChanged("a", {"gpu": 4}))
    a = host.start("a", {"gpu": 10})
    assert limit(host, "a") == (16, 4)
    host.dispatch(e.RecoveryEnded())
    assert limit(host, "a") == (10, 4)
    host.end(a)
    assert limit(host, "a") == (4, None)
    host.check()


def test_a_request_for_the_limit_in_force_cancels_the_target() -> None:
    host = make_host()
    host.create("a", {"gpu": 16})
    a = host.start("a")
    host.allocate(a, 10)
    host.dispatch(e.LimitsChanged("a", {"gpu": 4}))
    host.dispatch(e.LimitsChanged("a", {"gpu": 10}))
    assert limit(host, "a") == (10, None)
    assert not host.processes[a].armed["gpu"]
    host.check()


def test_a_waiting_allocation_beyond_a_lowered_limit_is_rejected() -> None:
    host = make_host()
    host.create("a", {"gpu": 16})
    host.create("b", {"gpu": 16})
    host.allocate(host.start("a"), 16)
    waiting = host.allocate(host.start("b"), 8)
    host.dispatch(e.LimitsChanged("b", {"gpu": 7}))
    assert isinstance(host.answers[waiting], e.Reject)
    host.check()


def test_a_drained_device_grants_nothing_until_it_is_in_service_again() -> None:
    host = make_host()
    host.create("a", {"gpu": 8})
    host.create("b", {"gpu": 8})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 2)
    host.dispatch(e.DeviceDrained("gpu", drained=True))
    waiting = host.allocate(b, 1)
    assert waiting not in host.answers
    assert host.allocate(a, 6) in (0, *host.answers)  # it was granted before
    host.check()
    host.dispatch(e.DeviceDrained("gpu", drained=False))
    assert isinstance(host.answers[waiting], e.Accept)
    host.check()


def test_external_memory_reduces_free_memory_first_and_then_idle_grants() -> None:
    host = make_host()
    host.create("a", {"gpu": 10})
    a = host.start("a")
    host.allocate(a, 2)
    host.dispatch(e.CapacityChanged("gpu", 6))
    assert host.machine.device("gpu").free == 4
    assert host.processes[a].headroom["gpu"] == 0
    host.check()
    waiting = host.allocate(a, 8)  # within the limit: it waits for the external memory
    assert waiting not in host.answers
    host.dispatch(e.CapacityChanged("gpu", 16))
    assert isinstance(host.answers[waiting], e.Accept)
    host.check()


def test_a_lost_device_pauses_only_its_own_allocations() -> None:
    host = CheckedHost(Machine({"g0": 16, "g1": 16}, BestFit()))
    host.create("a", {"g0": 8, "g1": 8})
    host.create("b", {"g0": 16, "g1": 16})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 8, "g0")
    host.dispatch(e.CapacityChanged("g0", 0))
    lost, other = host.allocate(b, 1, "g0"), host.allocate(b, 8, "g1")
    assert lost not in host.answers
    assert isinstance(host.answers[other], e.Accept)
    host.check()
    host.dispatch(e.CapacityChanged("g0", 16))
    assert isinstance(host.answers[lost], e.Accept)
    host.check()


def test_grants_while_a_device_is_lost_cause_no_deadlock_when_it_is_back() -> None:
    """No container can request memory of a lost device, so the claims of a and b there did not count once."""
    host = CheckedHost(Machine({"g0": 16, "g1": 16}, BestFit()))
    for name in "abc":
        host.create(name, {"g0": 16, "g1": 16} if name != "c" else {"g1": 8})
    a, b, c = (host.start(name) for name in "abc")
    host.allocate(a, 8, "g0")
    host.dispatch(e.CapacityChanged("g0", 0))
    waits = host.allocate(b, 8, "g1")
    assert waits not in host.answers
    assert (host.machine.explain(host.now)[waits].reason, host.machine.explain(host.now)[waits].behind) == (
        WaitReason.SAFETY,
        ("a",),
    )
    assert isinstance(host.answers[host.allocate(c, 8, "g1")], e.Accept)  # it has nothing to do with g0
    host.check()
    host.dispatch(e.CapacityChanged("g0", 16))
    assert total_deficit(host) == 0
    host.end(c)
    host.allocate(a, 16, "g1")
    host.end(a)
    assert isinstance(host.answers[waits], e.Accept)
    host.check()


def test_two_containers_that_external_memory_keeps_from_ending_do_not_deadlock() -> None:
    host = make_host()
    host.create("a", {"gpu": 10})
    host.create("b", {"gpu": 10})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 5)
    host.allocate(b, 5)
    host.dispatch(e.CapacityChanged("gpu", 13))  # 3 free, each may still ask for 5
    assert total_deficit(host) == 2
    first = host.allocate(a, 1)
    second = host.allocate(b, 1)
    assert first in host.answers
    assert second not in host.answers
    host.check()
    host.allocate(a, 2)
    host.end(a)
    assert second in host.answers
    assert total_deficit(host) == 0
    host.check()


def test_a_raise_on_an_overcommitted_device_waits_for_the_end_of_the_overcommit() -> None:
    host = make_host()
    host.create("a", {"gpu": 16})
    host.create("b", {"gpu": 8})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 2)
    host.allocate(b, 2)
    host.dispatch(e.CapacityChanged("gpu", 1))
    host.dispatch(e.LimitsChanged("b", {"gpu": 16}))
    assert limit(host, "b") == (8, 16)
    host.dispatch(e.CapacityChanged("gpu", 16))  # 12 free: with the raise both could ask for 14
    assert limit(host, "b") == (8, 16)
    assert total_deficit(host) == 0
    host.end(a)
    assert limit(host, "b") == (16, None)
    host.check()


def test_unleased_memory_is_charged_even_above_the_limit_and_returned() -> None:
    host = make_host()
    host.create("a", {"gpu": 8})
    host.create("b", {"gpu": 16})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 6)
    host.dispatch(e.UnleasedMemory("a", "gpu", 5))
    assert holdings(host, "a") == (6, 11, 5)
    assert host.machine.device("gpu").free == 5
    assert isinstance(host.answers[host.allocate(a, 1)], e.Reject)
    waiting = host.allocate(b, 6)
    assert waiting not in host.answers
    host.check()
    host.dispatch(e.UnleasedMemory("a", "gpu", 0))
    assert holdings(host, "a") == (6, 6, 0)
    assert isinstance(host.answers[waiting], e.Accept)
    host.check()


def test_a_container_that_is_charged_its_whole_limit_is_rejected_although_it_leases_nothing() -> None:
    """Found by random histories."""
    host = make_host()
    host.create("a", {"gpu": 3})
    a = host.start("a")
    host.dispatch(e.UnleasedMemory("a", "gpu", 8))
    asked = host.allocate(a, 3)
    assert host.answers[asked] == e.Reject(a, asked, RejectReason.LIMIT)
    host.check()


def test_a_process_whose_container_is_charged_its_whole_limit_reconnects_with_what_it_holds() -> None:
    """Found by random histories."""
    host = make_host()
    host.create("a", {"gpu": 3})
    a = host.start("a")
    host.allocate(a, 3)
    host.dispatch(e.UnleasedMemory("a", "gpu", 1))
    again = host.reconnect(a, {"gpu": 3})
    assert host.machine.account("a", "gpu").leases == {again: 3}
    host.check()


def test_memory_returned_on_an_overcommitted_device_reduces_the_overcommit_first() -> None:
    """Found by random histories: afterwards no container may be able to end, although all could before."""
    host = make_host(18)
    for name, size in (("a", 2), ("b", 3), ("c", 2)):
        host.create(name, {"gpu": size})
    a, b, c = (host.start(name) for name in "abc")
    for session, size in ((a, 1), (b, 2), (c, 2)):
        host.allocate(session, size)
    host.dispatch(e.UnleasedMemory("a", "gpu", 14))
    assert host.machine.device("gpu").free == -1
    host.check()
    waiting = host.allocate(b, 1)
    host.free(c, 1)
    host.check()
    assert waiting not in host.answers
    host.end(c)
    host.dispatch(e.UnleasedMemory("a", "gpu", 0))
    assert waiting in host.answers
    assert host.machine.device("gpu").deficit == 0
    host.check()


def test_priority_comes_before_the_policy_and_age_before_priority() -> None:
    host = make_host(starvation_timeout=60.0)
    host.create("holder", {"gpu": 16})
    host.create("old", {"gpu": 9})
    host.create("urgent", {"gpu": 9}, priority=5)
    holder, old, urgent = (host.start(name) for name in ("holder", "old", "urgent"))
    host.allocate(holder, 16)
    first, second = host.allocate(old, 9), host.allocate(urgent, 9)
    host.end(holder)
    assert (first in host.answers, second in host.answers) == (False, True)
    host.now = 60.0
    host.create("late", {"gpu": 9}, priority=5)
    third = host.allocate(host.start("late"), 9)
    host.end(urgent)
    assert (first in host.answers, third in host.answers) == (True, False)
    host.check()


def test_a_change_of_policy_counts_from_the_next_decision_on() -> None:
    host = make_host()
    for name, size in (("a", 16), ("b", 5), ("c", 12)):
        host.create(name, {"gpu": size})
    a, b, c = (host.start(name) for name in "abc")
    host.allocate(a, 16)
    host.allocate(b, 5)
    waiting = host.allocate(c, 12)
    host.dispatch(e.PolicyChosen("best-fit"))
    host.end(a)
    assert waiting in host.answers
    assert host.machine.policy.name == "best-fit"


def test_an_allocation_on_a_drained_device_is_rejected_when_the_idle_grant_is_used_instead() -> None:
    host = make_host()
    host.create("a", {"gpu": 7})
    host.create("b", {"gpu": 13})
    a, b = host.start("a"), host.start("b")
    host.allocate(b, 13)
    host.allocate(a, 3)
    host.dispatch(e.DeviceDrained("gpu", drained=True))
    host.free(a, 3)
    waits = host.allocate(a, 5)
    assert waits not in host.answers
    assert isinstance(host.answers[host.allocate(a, 3)], e.Accept)
    assert host.answers[waits] == e.Reject(a, waits, RejectReason.LIMIT)
    host.check()
