"""Answers wait in a container whose ending process holds what is in their way, as the card has it for that long."""

from dataclasses import dataclass

import pytest

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.daemon.gpu.ending import EndingProcesses, Place
from convgpu.policies.memory import Fifo

GIB = 1 << 30
DYING, NEXT, OTHER = 1, 2, 3


@dataclass
class Answer:
    """Counts how often it was sent."""

    sent: int = 0
    is_gone: bool = False
    asked: tuple[int, int] = (0, 0)

    def accept(self) -> None:
        self.sent += 1


class Host:
    """A machine of 16 GiB with a container of 4 GiB, of which a process has ended with so much, and another of 8."""

    def __init__(self, used: int = 3 * GIB) -> None:
        self.machine = Machine({"gpu": 16 * GIB}, Fifo())
        for name, limit in (("a", 4 * GIB), ("b", 8 * GIB)):
            self.handle(e.ContainerCreated(name, {"gpu": limit}))
            self.handle(e.ContainerStarted(name))
        self.ending = EndingProcesses(self.machine)
        self.end(DYING, used)
        for session, name in ((NEXT, "a"), (OTHER, "b")):
            self.handle(e.SessionStarted(session, name, {}))

    def handle(self, event: e.Event) -> list[object]:
        step = self.machine.handle(event, 1.0)
        effects = list(step.effects)
        while step.needs is not None:
            taken = tuple((slot, 0) for slot in step.needs.slots)
            step = self.machine.handle(e.HeadroomTaken(taken), 1.0)
            effects += step.effects
        return effects

    def end(self, session: int, used: int) -> None:
        """Have a process of the first container use so much and end; the driver is at it still."""
        self.handle(e.SessionStarted(session, "a", {}))
        self.request(session, used)
        self.handle(e.SessionEnded(session, self.headroom(session, used)))
        self.ending.begin(session, 100 + session, "a", {"gpu": used})

    def headroom(self, session: int, used: int) -> dict[str, int]:
        return {"gpu": self.machine.lease(session, "gpu") - used}

    def request(self, session: int, size: int) -> int:
        """Have bytes leased; return how many were leased ahead besides."""
        effects = self.handle(e.AllocationRequested(session, 1, "gpu", size, is_context=False))
        assert any(isinstance(effect, e.Accept) for effect in effects)
        return sum(effect.size for effect in effects if isinstance(effect, e.Lease))

    def ask(self, session: int, container: str, size: int) -> Answer:
        self.request(session, size)
        answer = Answer()
        self.ending.answer(Place(container, "gpu"), size, answer)
        return answer


def test_what_is_above_the_limit_with_it_waits_for_its_end() -> None:
    host = Host()
    answer = host.ask(NEXT, "a", 2 * GIB)
    assert answer.sent == 0
    host.ending.end(DYING)
    host.ending.end(DYING)
    assert answer.sent == 1


def test_what_is_within_the_limit_is_answered_at_once() -> None:
    assert Host().ask(NEXT, "a", GIB).sent == 1


def test_the_answers_of_other_containers_do_not_wait() -> None:
    assert Host().ask(OTHER, "b", 8 * GIB).sent == 1


def test_nothing_is_leased_ahead_that_is_above_the_limit_with_it() -> None:
    assert Host().request(NEXT, GIB // 2) == GIB // 2


def test_all_is_leased_ahead_when_it_has_settled() -> None:
    host = Host()
    host.handle(e.SettlingEnded(DYING))
    assert host.request(NEXT, GIB // 2) == 4 * GIB - GIB // 2


def test_nothing_is_leased_ahead_beside_what_children_may_keep() -> None:
    host = Host()
    host.handle(e.SettlingEnded(DYING))
    host.handle(e.MayBeKept("a", "gpu", GIB))
    assert host.request(NEXT, GIB // 2) == 4 * GIB - GIB - GIB // 2
    host.handle(e.MayBeKept("a", "gpu", 0))
    assert host.request(NEXT, GIB // 2) == GIB // 2


def test_what_children_of_others_may_keep_is_nothing_to_it() -> None:
    host = Host(GIB)
    host.handle(e.SettlingEnded(DYING))
    host.handle(e.MayBeKept("b", "gpu", 8 * GIB))
    host.handle(e.MayBeKept("gone", "gpu", 8 * GIB))  # by now
    assert host.request(NEXT, GIB) == 3 * GIB


def test_what_may_be_kept_is_what_was_told_last_and_goes_with_its_container() -> None:
    host = Host(GIB)
    host.handle(e.SettlingEnded(DYING))
    for size in (GIB, GIB):
        host.handle(e.MayBeKept("a", "gpu", size))
    host.handle(e.MayBeKept("b", "gpu", 0))
    assert host.request(NEXT, GIB) == 2 * GIB
    host.handle(e.SessionEnded(NEXT, host.headroom(NEXT, GIB)))
    host.handle(e.ContainerRemoved("a"))
    host.handle(e.ContainerCreated("a", {"gpu": 4 * GIB}))
    host.handle(e.ContainerStarted("a"))
    host.handle(e.SettlingEnded(NEXT))
    host.handle(e.SessionStarted(9, "a", {}))
    assert host.request(9, GIB) == 3 * GIB


def test_what_settles_and_what_may_be_kept_are_two_things() -> None:
    host = Host(GIB)
    host.handle(e.MayBeKept("a", "gpu", GIB))
    assert host.request(NEXT, GIB) == GIB


@pytest.mark.parametrize(("size", "is_taken"), [(GIB // 2, False), (GIB, False), (GIB + 1, True)])
def test_headroom_is_taken_of_nobody_if_there_is_room_beside_what_is_kept(size: int, is_taken: bool) -> None:
    """And of nobody of another container."""
    host = Host(GIB)
    host.handle(e.SettlingEnded(DYING))
    host.handle(e.SessionStarted(7, "a", {}))
    host.handle(e.UnleasedMemory("a", "gpu", GIB // 2))
    host.request(OTHER, GIB)
    ahead = host.request(7, GIB // 4)
    assert ahead > 0
    held = GIB // 2 + GIB // 4 + ahead
    host.handle(e.MayBeKept("a", "gpu", 3 * GIB - held))
    needs = host.machine.handle(e.AllocationRequested(NEXT, 2, "gpu", size, is_context=False), 1.0).needs
    assert needs == (e.TakeHeadroom(((7, "gpu"),)) if is_taken else None)


def test_what_a_living_one_was_leased_ahead_is_taken_back_before_another_is_granted_beside_what_is_kept() -> None:
    host = Host(GIB)
    host.handle(e.SessionStarted(7, "a", {}))
    ahead = host.request(7, GIB // 2)
    host.handle(e.MayBeKept("a", "gpu", GIB))
    request = e.AllocationRequested(NEXT, 2, "gpu", GIB, is_context=False)
    assert host.machine.handle(request, 1.0).needs == e.TakeHeadroom(((7, "gpu"),))
    effects = host.machine.handle(e.HeadroomTaken((((7, "gpu"), ahead),)), 1.0).effects
    assert [effect.size for effect in effects if isinstance(effect, e.Accept)] == [GIB]
    account = host.machine.account("a", "gpu")
    assert account is not None
    assert (host.machine.lease(7, "gpu"), account.held + GIB <= account.limit) == (GIB // 2, True)


def test_the_first_that_waits_is_answered_first() -> None:
    host = Host()
    answers = [host.ask(NEXT, "a", size) for size in (GIB, GIB // 2, GIB // 2)]
    assert [one.sent for one in answers] == [1, 0, 0]
    host.ending.end(DYING)
    assert [one.sent for one in answers] == [1, 1, 1]


def test_of_several_that_end_each_counts_until_its_own_end() -> None:
    host = Host(GIB)
    host.end(7, 2 * GIB)
    answer = host.ask(NEXT, "a", 2 * GIB)
    assert answer.sent == 0
    host.ending.end(DYING)
    assert answer.sent == 1


def test_an_answer_that_nobody_receives_is_in_nobodys_way() -> None:
    host = Host()
    gone = host.ask(NEXT, "a", 2 * GIB)
    gone.is_gone = True
    host.handle(e.SessionEnded(NEXT, host.headroom(NEXT, 0)))
    host.handle(e.SessionStarted(9, "a", {}))
    assert host.ask(9, "a", GIB).sent == 1
    host.ending.end(DYING)
    assert gone.sent == 0


def test_a_limit_that_was_raised_meanwhile_counts() -> None:
    host = Host()
    host.handle(e.LimitsChanged("a", {"gpu": 8 * GIB}))
    assert host.ask(NEXT, "a", 2 * GIB).sent == 1


def test_what_is_counted_of_a_process_is_told_by_its_pid_until_its_end() -> None:
    host = Host()
    assert host.ending.counted(100 + DYING, "gpu") == 3 * GIB
    assert (host.ending.counted(100 + NEXT, "gpu"), host.ending.counted(100 + DYING, "other")) == (0, 0)
    host.ending.end(DYING)
    assert host.ending.counted(100 + DYING, "gpu") == 0
