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


def test_an_older_newcomer_may_keep_one_waiting_that_another_went_past() -> None:
    """The last went past the younger, which has limits on both cards. The older one goes past the oldest after that.

    Beside the limit of the older one, that of the younger does not fit into g0. It came before it, so it may be waited
    for: when it has ended, the younger one gets its limits, whether the last one ends or not.
    """
    host = CheckedHost(Machine({"g0": 8, "g1": 8}, make_policy("fifo", seed=1), 0.0))

    def arrive(name: str, limits: dict[str, int], size: int, device: str = "g0") -> int:
        host.create(name, limits, None, 0, None, is_whole=False)
        session = host.start(name)
        host.allocate(session, size, device)
        return session

    arrive("long", {"g0": 4}, 4)
    short = arrive("short", {"g0": 3}, 3)
    arrive("oldest", {"g0": 5}, 5)
    arrive("older", {"g0": 3}, 2)
    arrive("younger", {"g0": 7, "g1": 4}, 1, "g1")
    assert [waiting.container for waiting in host.machine.waiting] == ["oldest", "older", "younger"]
    arrive("last", {"g1": 1}, 1, "g1")
    host.end(short)
    assert [waiting.container for waiting in host.machine.waiting] == ["oldest", "younger"]
    host.check()


def test_a_deficit_elsewhere_is_not_for_who_goes_past() -> None:
    """Memory that escapes leaves two containers on g0 stuck, whoever comes to g1 after that."""
    host = CheckedHost(Machine({"g0": 10, "g1": 8}, make_policy("fifo", seed=1), 0.0))

    def arrive(name: str, device: str, limit: int, size: int) -> None:
        host.create(name, {device: limit}, None, 0, None, is_whole=False)
        host.allocate(host.start(name), size, device)

    arrive("one", "g0", 6, 3)
    arrive("other", "g0", 10, 4)
    arrive("escaping", "g0", 1, 1)
    host.dispatch(e.UnleasedMemory("escaping", "g0", 4))
    assert host.machine.snapshot().devices["g0"].deficit > 0
    arrive("long", "g1", 4, 4)
    arrive("oldest", "g1", 5, 5)
    arrive("past", "g1", 3, 3)
    assert [waiting.container for waiting in host.machine.waiting] == ["oldest"]
    host.check()
