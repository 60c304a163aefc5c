"""Containers that are admitted as a whole, alone or as a gang; and contexts of newcomers (docs/policies.md)."""

import pytest
from checked_host import CheckedHost

from convgpu.core import events as e
from convgpu.core.allocation.admission import GANG_TIMEOUT
from convgpu.core.machine import Machine
from convgpu.policies.memory import Fifo
from convgpu.protocol.event_kinds import RejectReason, WaitReason


def make_host(*capacity: int, timeout: float = 60.0) -> CheckedHost:
    devices = {"gpu" if not number else f"gpu{number}": size for number, size in enumerate(capacity)}
    return CheckedHost(Machine(devices, Fifo(), timeout))


def grants(host: CheckedHost, *names: str) -> list[int]:
    return [sum(account.grant for account in host.machine.accounts(name).values()) for name in names]


def reason(host: CheckedHost, request: int) -> WaitReason:
    return host.machine.explain(host.now)[request].reason


# -- admit=whole ------------------------------------------------------------------------------------------


def test_the_first_allocation_waits_for_the_whole_limit_and_holds_nothing_meanwhile() -> None:
    host = make_host(16)
    host.create("holder", {"gpu": 10})
    host.create("whole", {"gpu": 8}, is_whole=True)
    holder, whole = host.start("holder"), host.start("whole")
    host.allocate(holder, 10)
    first = host.allocate(whole, 1)
    assert (grants(host, "whole"), reason(host, first)) == ([0], WaitReason.MEMORY)
    host.finish("holder")
    assert (first in host.answers, grants(host, "whole")) == (True, [8])
    host.check()


def test_the_whole_limits_on_all_devices_are_granted_at_once() -> None:
    host = make_host(16, 16)
    host.create("holder", {"gpu1": 10})
    host.create("whole", {"gpu": 8, "gpu1": 8}, is_whole=True)
    host.allocate(host.start("holder"), 10, "gpu1")
    first = host.allocate(host.start("whole"), 1)
    assert (first in host.pending, grants(host, "whole")) == (True, [0])
    host.finish("holder")
    assert (first in host.answers, grants(host, "whole")) == (True, [16])
    host.check()


def test_what_an_admitted_container_does_not_use_is_reserved_until_its_last_process_ends() -> None:
    host = make_host(16)
    host.create("whole", {"gpu": 10}, is_whole=True)
    host.create("other", {"gpu": 8})
    whole = host.start("whole")
    host.allocate(whole, 1)
    waiting = host.allocate(host.start("other"), 8)
    assert waiting in host.pending
    assert host.allocate(whole, 9) in host.answers  # it never waits again
    host.end(whole)
    assert (waiting in host.answers, grants(host, "whole")) == (True, [0])
    host.check()


@pytest.mark.parametrize("gang", ["", "train"])
def test_what_was_reserved_is_reserved_again_after_a_restart(gang: str) -> None:
    """Else a container that "never waits again" waits for the next one, which gets the rest of its limit."""
    host = CheckedHost(Machine({"gpu": 16}, Fifo(), recovering=True))
    for name in ("a", "b"):
        host.create(name, {"gpu": 7}, is_whole=True, gang=gang)
    host.create("other", {"gpu": 8})
    a, b = host.start("a", held={"gpu": 1}), host.start("b", held={"gpu": 2})
    waiting = host.allocate(host.start("other"), 8)
    asked = host.allocate(b, 3)  # it is sent again
    host.dispatch(e.RecoveryEnded())
    assert (grants(host, "a", "b", "other"), waiting in host.pending) == ([7, 7, 0], True)
    assert {asked, host.allocate(a, 6), host.allocate(b, 2)} <= host.answers.keys()
    host.end(a)
    assert waiting in host.answers
    host.check()


def test_what_was_reserved_and_is_taken_now_is_left_to_who_has_it() -> None:
    host = CheckedHost(Machine({"gpu": 16}, Fifo(), recovering=True))
    host.create("whole", {"gpu": 10}, is_whole=True)
    host.create("other", {"gpu": 8})
    whole, other = host.start("whole", held={"gpu": 1}), host.start("other", held={"gpu": 8})
    host.dispatch(e.RecoveryEnded())
    assert grants(host, "whole", "other") == [8, 8]
    assert host.allocate(whole, 7) in host.answers
    waits = host.allocate(whole, 2)
    host.end(other)
    assert waits in host.answers
    host.check()


@pytest.mark.parametrize("gang", ["", "train"])
def test_what_is_reserved_goes_to_nobody_while_external_memory_is_in_its_place(gang: str) -> None:
    """A program past the hook, for five seconds, let another container have what was reserved as long as it ran."""
    host = make_host(16)
    names = ("a", "b") if gang else ("a",)
    for name in names:
        host.create(name, {"gpu": 15 // len(names)}, is_whole=True, gang=gang)
    host.create("other", {"gpu": 3})
    sessions = [host.start(name) for name in names]
    for session in sessions:
        host.allocate(session, 1)
    reserved = grants(host, *names)
    waiting = host.allocate(host.start("other"), 3)
    assert (reserved, waiting in host.pending) == ([15 // len(names)] * len(names), True)
    for external in (7, 3, 1, 4):  # it may leave in parts
        host.dispatch(e.CapacityChanged("gpu", 16 - external))
        assert (sum(grants(host, *names)) <= 16 - external, waiting in host.pending) == (True, True)
        host.check()
    host.dispatch(e.CapacityChanged("gpu", 16))
    assert waiting in host.pending
    for session in sessions:
        assert host.allocate(session, 15 // len(names) - 1) in host.answers  # it never waits again
        host.end(session)
    assert waiting in host.answers
    host.check()


def test_whether_what_is_reserved_was_taken() -> None:
    host = make_host(16)
    host.create("whole", {"gpu": 10}, is_whole=True)
    host.create("other", {"gpu": 10})
    whole = host.start("whole")
    host.allocate(whole, 1)

    def taken(*charged: int) -> list[bool]:
        found = []
        for size in charged:
            host.dispatch(e.UnleasedMemory("other", "gpu", size))
            found.append(host.machine.is_reserved_taken("gpu"))
        return found

    assert taken(0, 6, 7, 9, 6, 0) == [False, False, True, True, False, False]
    host.dispatch(e.UnleasedMemory("whole", "gpu", 10))  # its own memory, within its own limit
    assert taken(0, 5, 6, 7) == [False, False, True, True]  # it uses 1 by its lease, too
    host.end(whole)
    host.check()


def test_an_overdue_whole_admission_holds_newcomers_back_and_is_served() -> None:
    host = make_host(16, timeout=10.0)
    for name in ("a", "b", "c"):
        host.create(name, {"gpu": 8})
    host.create("whole", {"gpu": 16}, is_whole=True)
    a, b, c = (host.start(name) for name in ("a", "b", "c"))
    host.allocate(a, 8)
    host.allocate(b, 8)
    first = host.allocate(host.start("whole"), 1)
    host.now = 20.0
    host.end(a)
    younger = host.allocate(c, 8)
    assert {first, younger} == host.pending.keys()
    host.end(b)
    assert (first in host.answers, younger in host.answers) == (True, False)
    host.check()


# -- gangs ------------------------------------------------------------------------------------------------


def make_gang(host: CheckedHost, *limits: int, gang: str = "train") -> list[int]:
    for number, limit in enumerate(limits):
        host.create(f"w{number}", {"gpu": limit}, gang=gang)
    return [host.start(f"w{number}") for number in range(len(limits))]


def test_a_gang_starts_when_all_have_come_and_all_whole_limits_are_free() -> None:
    host = make_host(16)
    host.create("holder", {"gpu": 6})
    holder = host.start("holder")
    host.allocate(holder, 6)
    first, second = make_gang(host, 8, 4)
    one = host.allocate(first, 2)
    assert (reason(host, one), host.machine.explain(0.0)[one].behind) == (WaitReason.GANG, ("w1",))
    two = host.allocate(second, 2)
    assert (reason(host, one), reason(host, two)) == (WaitReason.MEMORY, WaitReason.MEMORY)
    host.end(holder)
    assert (one in host.answers, two in host.answers, grants(host, "w0", "w1")) == (True, True, [8, 4])
    host.check()


def test_a_gang_of_a_size_waits_for_containers_that_are_not_created_yet() -> None:
    host = make_host(16)
    (first,) = make_gang(host, 4, gang="train:2")
    one = host.allocate(first, 2)
    assert reason(host, one) == WaitReason.GANG
    host.create("w1", {"gpu": 4}, gang="train:2")
    two = host.allocate(host.start("w1"), 1)
    assert {one, two} <= host.answers.keys()
    host.check()


def test_an_incomplete_gang_is_in_nobodys_way() -> None:
    host = make_host(16, timeout=10.0)
    first, _ = make_gang(host, 8, 8)
    host.allocate(first, 8)
    host.create("other", {"gpu": 16})
    host.now = 100.0
    other = host.start("other")
    assert host.allocate(other, 2) in host.answers
    assert host.allocate(other, 2) == 0  # out of what was leased ahead: nobody is scarce
    host.check()


def test_who_never_comes_lets_the_others_be_rejected_after_the_timeout() -> None:
    host = make_host(16)
    first, _ = make_gang(host, 8, 8)
    one = host.allocate(first, 8)
    assert host.machine.next_deadline() == GANG_TIMEOUT
    host.now = GANG_TIMEOUT
    host.dispatch(e.TimePassed())
    answer = host.answers[one]
    assert isinstance(answer, e.Reject)
    assert answer.reason is RejectReason.GANG
    host.check()


def test_a_complete_gang_may_wait_for_memory_longer_than_for_its_members() -> None:
    host = make_host(16)
    host.create("holder", {"gpu": 16})
    holder = host.start("holder")
    host.allocate(holder, 16)
    requests = [host.allocate(session, 8) for session in make_gang(host, 8, 8)]
    host.now = GANG_TIMEOUT
    host.dispatch(e.TimePassed())
    assert (set(requests), host.machine.next_deadline()) == (host.pending.keys(), 2 * GANG_TIMEOUT)
    host.end(holder)
    assert set(requests) <= host.answers.keys()
    host.check()


def test_two_gangs_do_not_wait_for_each_other() -> None:
    """Without gangs each job gets one of its two containers in, and both wait for ever."""
    host = make_host(16)
    for job in ("a", "b"):
        for number in (0, 1):
            host.create(f"{job}{number}", {"gpu": 6}, gang=job)
    sessions = {name: host.start(name) for name in ("a0", "b0", "a1", "b1")}
    requests = {name: host.allocate(session, 6) for name, session in sessions.items()}
    assert grants(host, "a0", "a1", "b0", "b1") == [6, 6, 0, 0]
    host.end(sessions["a0"])
    assert grants(host, "b0", "b1") == [0, 0]
    host.end(sessions["a1"])
    assert requests["b0"] in host.answers
    assert requests["b1"] in host.answers
    host.check()


def test_what_an_admitted_container_turned_out_not_to_need_is_lent_and_comes_back() -> None:
    """Lowered to 4 of 10; it asks for all of it again, is paused, never rejected, and gets it before who came later."""
    host = make_host(16)
    host.create("whole", {"gpu": 10}, is_whole=True)
    whole = host.start("whole")
    host.allocate(whole, 3)
    host.create("other", {"gpu": 8})
    other = host.start("other")
    borrowed = host.allocate(other, 8)
    assert reason(host, borrowed) == WaitReason.MEMORY
    host.dispatch(e.LimitsLearned("whole", {"gpu": 4}))
    assert (borrowed in host.answers, grants(host, "whole", "other")) == (True, [4, 8])
    account = host.machine.account("whole", "gpu")
    assert account is not None
    assert (account.limit, account.learned) == (10, 4)
    again = host.allocate(whole, 7)
    assert (again in host.pending, reason(host, again)) == (True, WaitReason.MEMORY)
    host.end(other)
    assert isinstance(host.answers[again], e.Accept)
    host.check()


def test_nothing_is_lent_that_who_learned_may_claim_against_one_that_waits_for_it() -> None:
    """Both could need all they may have, and neither would end: the claim stays, so the second gets no first part."""
    host = make_host(12)
    host.create("a", {"gpu": 8})
    host.create("b", {"gpu": 10})
    a, b = host.start("a"), host.start("b")
    host.allocate(a, 5)
    host.dispatch(e.LimitsLearned("a", {"gpu": 5}))
    waits = host.allocate(b, 6)
    assert waits in host.pending
    assert isinstance(host.answers[host.allocate(a, 3)], e.Accept)
    host.finish("a")
    assert isinstance(host.answers[waits], e.Accept)
    host.check()


def test_a_raise_of_one_of_a_gang_is_judged_by_the_claim_of_all() -> None:
    """By themselves `w1` could end for the raise of `w0`; but it waits for `w0`, as members of a gang do."""
    host = make_host(16)
    first, second = make_gang(host, 4, 4)
    host.allocate(first, 4)
    host.allocate(second, 4)
    host.create("other", {"gpu": 10})
    other = host.start("other")
    host.allocate(other, 4)
    host.dispatch(e.LimitsChanged("w0", {"gpu": 9}))
    account = host.machine.account("w0", "gpu")
    assert account is not None
    assert (account.limit, account.target) == (4, 9)
    host.end(other)
    raised = host.machine.account("w0", "gpu")
    assert raised is not None
    assert raised.limit == 9
    host.check()


def test_one_of_a_gang_that_starts_again_goes_before_newcomers() -> None:
    host = make_host(16, timeout=10.0)
    first, second = make_gang(host, 6, 6)
    for session in (first, second):
        host.allocate(session, 6)
    host.create("other", {"gpu": 8})
    other = host.allocate(host.start("other"), 8)
    host.unmount("w1")
    host.end(second)
    assert other in host.answers
    host.create("small", {"gpu": 2})
    host.allocate(host.start("small"), 2)
    host.mount("w1")
    again = host.allocate(host.start("w1"), 6)
    assert (again in host.pending, reason(host, again)) == (True, WaitReason.MEMORY)
    host.finish("other")
    assert again in host.answers
    host.check()


# -- one turn for what is admitted together -------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "comes_first"), [(0.0, True), (2.0, False)])
def test_a_gang_has_the_turn_of_its_first_allocation(asked: float, comes_first: bool) -> None:
    host = make_host(10)
    host.create("holder", {"gpu": 10})
    host.allocate(host.start("holder"), 10)
    host.create("early", {"gpu": 3}, gang="g:2")
    host.create("late", {"gpu": 3}, gang="g:2")
    host.create("alone", {"gpu": 5})
    early, late, alone = (host.start(name) for name in ("early", "late", "alone"))
    requests = {}
    for host.now, name, session, size in sorted([(asked, "early", early, 1), (1.0, "alone", alone, 5)]):
        requests[name] = host.allocate(session, size)
    host.now = 3.0
    requests["late"] = host.allocate(late, 3)  # younger than the overdue one, and served with the gang
    host.now = 65.0
    host.finish("holder")
    served = {name for name, request in requests.items() if request in host.answers}
    assert served == ({"early", "late"} if comes_first else {"alone"})
    host.check()


# -- contexts of newcomers ------------------------------------------------------------------------------------


def test_contexts_of_those_that_would_wait_anyway_take_nothing() -> None:
    host = make_host(32)
    for number in range(6):
        host.create(f"c{number}", {"gpu": 14})
    sessions = [host.start(f"c{number}") for number in range(6)]
    for session in sessions:
        context = host.allocate(session, 1, is_context=True)
        if context in host.answers:
            host.allocate(session, 13)
    assert grants(host, *(f"c{number}" for number in range(6))) == [14, 14, 1, 0, 0, 0]
    host.check()


@pytest.mark.parametrize(("limit", "goes_on"), [(2, True), (4, False)])
def test_a_context_goes_on_if_the_whole_limit_is_free(limit: int, goes_on: bool) -> None:
    host = make_host(16)
    host.create("holder", {"gpu": 13})
    host.create("big", {"gpu": 8})
    host.create("small", {"gpu": limit})
    host.allocate(host.start("holder"), 13)
    host.allocate(host.start("big"), 8)
    assert (host.allocate(host.start("small"), 1, is_context=True) in host.answers) == goes_on
    host.check()
