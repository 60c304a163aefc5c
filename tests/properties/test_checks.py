"""Histories of which the checks of `checked_host.py` once said what is not so."""

from checked_host import CheckedHost

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import make_policy


def begin(capacity: int, *, recovering: bool = False, starvation_timeout: float = 60.0) -> Machine:
    return Machine({"g": capacity}, make_policy("fifo", seed=1), starvation_timeout, recovering=recovering)


def create(host: CheckedHost, name: str, limit: int, *, is_whole: bool = False) -> None:
    host.create(name, {"g": limit}, None, 0, None, is_whole=is_whole)


def deficits(host: CheckedHost) -> tuple[int, int]:
    figures = host.machine.snapshot().devices["g"]
    return figures.deficit, figures.nominal_deficit


def test_what_comes_back_to_an_overcommitted_device_may_leave_a_deficit() -> None:
    """Two processes come back late: beside them 12 of 10 bytes are granted, and the first container can end.

    When one of them ends, its container may ask for those 3 bytes again, and only one is free: both claims are stuck,
    at the nominal capacity as well. When the other one has ended too, nobody waits.
    """
    host = CheckedHost(begin(10))
    create(host, "late", 6)
    create(host, "present", 10)
    for _ in range(2):
        host.allocate(host.start("late"), 3, "g")
    host.restart(begin(10, recovering=True))
    host.dispatch(e.RecoveryEnded())
    present = host.start("present")
    host.allocate(present, 6, "g")
    first, second = (host.reconnect_previous(0) for _ in range(2))
    assert host.machine.snapshot().devices["g"].free == -2
    assert deficits(host) == (0, 0)
    host.end(second)
    assert deficits(host) == (2, 2)
    host.end(first)
    host.allocate(present, 4, "g")  # takes the idle grant that the late container keeps until somebody asks
    assert not host.pending
    assert deficits(host) == (0, 0)
    host.check()


def test_what_a_process_brought_with_it_is_no_grant() -> None:
    """With 2 of the 3 bytes that are left, a process of a container that is admitted as a whole comes back.

    One byte is free, so its older request of two bytes still waits, and the younger one of one byte is served.
    """
    host = CheckedHost(begin(13, starvation_timeout=0.0))
    create(host, "whole", 5, is_whole=True)
    create(host, "charged", 1)
    host.allocate(host.start("whole"), 2, "g")
    host.restart(begin(13, recovering=True, starvation_timeout=0.0))
    waiting = host.start("whole")
    host.dispatch(e.UnleasedMemory("charged", "g", 10))
    host.dispatch(e.RecoveryEnded())
    older, younger = host.allocate(waiting, 2, "g"), host.allocate(waiting, 1, "g")
    assert host.pending.keys() == {older, younger}
    host.reconnect_previous(0)
    assert host.pending.keys() == {older}
    host.dispatch(e.UnleasedMemory("charged", "g", 0))
    assert not host.pending
    host.check()
