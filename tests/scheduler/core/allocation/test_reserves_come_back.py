"""What is reserved for who is admitted comes back before others get anything, and no more than stays reserved."""

import pytest
from checked_host import CheckedHost

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.residency.events import PoolChanged
from convgpu.policies.memory import Fifo


def test_what_who_is_admitted_turned_out_not_to_need_is_not_reserved_again() -> None:
    """External memory was there once, and from then on all that became free was reserved for it beyond its need."""
    host = CheckedHost(Machine({"gpu": 11}, Fifo()))
    host.create("whole", {"gpu": 4}, is_whole=True)
    host.create("other", {"gpu": 1})
    whole = host.start("whole")
    host.allocate(whole, 1)
    host.dispatch(e.CapacityChanged("gpu", 2, 11))
    assert host.allocate(whole, 3) in host.pending
    host.dispatch(e.LimitsLearned("whole", {"gpu": 1}))
    assert host.allocate(host.start("other"), 1) in host.answers
    host.check()


def test_what_waits_of_a_container_is_served_out_of_the_part_that_is_reserved_again() -> None:
    host = CheckedHost(Machine({"gpu": 12}, Fifo()))
    host.create("whole", {"gpu": 11}, is_whole=True)
    whole = host.start("whole")
    host.allocate(whole, 3)
    host.dispatch(e.CapacityChanged("gpu", 0, 12))
    waits = host.allocate(whole, 1)
    assert waits in host.pending
    host.dispatch(e.CapacityChanged("gpu", 9, 12))
    assert waits in host.answers
    host.check()


def test_what_was_idle_of_others_is_reserved_before_others_get_it() -> None:
    host = CheckedHost(Machine({"gpu": 12}, Fifo()))
    host.create("idle", {"gpu": 4})
    host.create("whole", {"gpu": 8}, is_whole=True)
    host.create("other", {"gpu": 4})
    idle, whole = host.start("idle"), host.start("whole")
    host.allocate(idle, 4)
    host.allocate(whole, 2)
    host.dispatch(e.CapacityChanged("gpu", 8, 12))
    waits = host.allocate(host.start("other"), 4)
    host.end(idle)
    assert waits in host.pending
    assert host.allocate(whole, 6) in host.answers
    host.check()


@pytest.mark.parametrize("was_estimated", [True, False])
def test_the_limits_of_who_comes_back_late_are_reserved(was_estimated: bool) -> None:
    """It was not admitted, or had nothing reserved: so it waited while it held memory, and its gang for it."""
    host = CheckedHost(Machine({"gpu": 12}, Fifo(), recovering=True))
    host.create("whole", {"gpu": 10}, is_whole=True)
    host.create("other", {"gpu": 6})
    adopted = host.start("whole") if was_estimated else 0
    host.dispatch(e.RecoveryEnded())
    whole = host.reconnect(adopted, {"gpu": 4}, late=True) if adopted else host.start("whole", {"gpu": 4})
    waits = host.allocate(host.start("other"), 6)
    assert waits in host.pending
    assert host.allocate(whole, 6) in host.answers
    host.check()


@pytest.mark.parametrize("gang", ["", "train"])
def test_the_next_program_of_a_container_is_admitted_anew(gang: str) -> None:
    """It used what was idle of the last one without being admitted: others got the rest, and its gang missed it."""
    host = CheckedHost(Machine({"gpu": 12}, Fifo()))
    for name in ("a", "b"):
        host.create(name, {"gpu": 5}, is_whole=True, gang=gang)
    host.create("other", {"gpu": 6})
    for _ in range(2):
        sessions = [host.start("a"), host.start("b")]
        for session in sessions:
            host.allocate(session, 1)
        assert (host.pending, [host.machine.account(name, "gpu").grant for name in ("a", "b")]) == ({}, [5, 5])
        other = host.start("other")
        assert host.allocate(other, 6) in host.pending
        for session in sessions:
            assert host.allocate(session, 4) in host.answers  # it never waits again
        host.check()
        host.end(other)
        for session in sessions:
            host.end(session)
        host.check()


def test_no_more_comes_back_than_stays_reserved() -> None:
    """The whole limit was reserved while others waited for what is beyond the need: until anything else happened."""
    host = CheckedHost(Machine({"gpu": 20}, Fifo()))
    for name, limit in (("whole", 10), ("holder", 16), ("other", 8)):
        host.create(name, {"gpu": limit}, is_whole=name == "whole")
    whole, holder = host.start("whole"), host.start("holder")
    host.allocate(whole, 2)
    host.dispatch(e.LimitsLearned("whole", {"gpu": 4}))
    host.allocate(holder, 15)
    host.dispatch(e.CapacityChanged("gpu", 16, 20))
    waits = host.allocate(host.start("other"), 8)
    host.dispatch(e.CapacityChanged("gpu", 17, 20))
    host.free(holder, 12)
    assert waits in host.answers
    assert host.allocate(whole, 2) in host.answers
    host.check()


def test_a_reserve_comes_back_out_of_a_pool_that_is_granted_only_then() -> None:
    """It did with the next event only: what waited was served, or found that it could be, by chance."""
    host = CheckedHost(Machine({"gpu": 10}, Fifo()))
    host.create("whole", {"gpu": 5}, is_whole=True)
    whole = host.start("whole")
    host.allocate(whole, 3)
    host.dispatch(e.CapacityChanged("gpu", 0, 10))
    waits = host.allocate(whole, 2)
    host.dispatch(PoolChanged("gpu", 6, 0))
    host.free(whole, 3)
    account = host.machine.account("whole", "gpu")
    assert (account.grant, account.leased) == (5, 2)
    assert waits in host.pending  # for room on the card
    host.machine.check_invariants(host.now)
