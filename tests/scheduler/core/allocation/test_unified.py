"""A container of managed memory has its device alone, and may have more than that."""

import pytest

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.residency import events as r
from convgpu.policies.memory import Fifo


class Card:
    """One device of 10; containers with one process each, and its number."""

    def __init__(self, pool: int = 0) -> None:
        self.machine = Machine({"gpu": 10}, Fifo(), recovering=False)
        self.sessions = 0
        self.requests = 0
        if pool:
            self.send(r.PoolChanged("gpu", pool))

    def send(self, event: e.Event) -> list[e.Effect]:
        """Return answers and rejections; nobody has headroom to give back."""
        step = self.machine.handle(event, 0.0)
        effects = [effect for effect in step.effects if isinstance(effect, e.Accept | e.Reject)]
        if step.needs is not None:
            return effects + self.send(e.HeadroomTaken(tuple((slot, 0) for slot in step.needs.slots)))
        self.machine.check_invariants(0.0)
        return effects

    def start(self, name: str, limit: int, *events: e.Event, is_whole: bool = False) -> int:
        self.send(e.ContainerCreated(name, {"gpu": limit}, is_whole=is_whole))
        for event in events:
            self.send(event)
        self.sessions += 1
        self.send(e.SessionStarted(self.sessions, name, {}))
        return self.sessions

    def unified(self, name: str, limit: int) -> int:
        return self.start(name, limit, r.UnifiedSet(name), is_whole=True)

    def ask(self, session: int, size: int) -> list[tuple[type, int]]:
        """Return the kind of each answer, and the process that gets it."""
        self.requests += 1
        return self.answered(e.AllocationRequested(session, self.requests, "gpu", size))

    def answered(self, event: e.Event) -> list[tuple[type, int]]:
        return [(type(effect), effect.session) for effect in self.send(event)]  # type: ignore[union-attr]

    def grants(self) -> dict[str, int]:
        accounts = {name: self.machine.account(name, "gpu") for name in self.machine.holders}
        return {name: account.grant for name, account in accounts.items() if account is not None}


def test_it_is_granted_more_than_the_device_has_once_nobody_else_holds_anything() -> None:
    card = Card()
    small, large = card.start("small", 4), card.unified("large", 15)
    assert card.ask(small, 2) == [(e.Accept, small)]
    assert card.ask(large, 8) == []
    assert card.answered(e.SessionEnded(small, {"gpu": 0})) == [(e.Accept, large)]
    assert card.grants() == {"large": 15}
    assert card.machine.lease(large, "gpu") == 15


@pytest.mark.parametrize("limit", [3, 10, 15])
def test_nobody_else_is_granted_anything_beside_it(limit: int) -> None:
    card = Card()
    large, small = card.unified("large", limit), card.start("small", 4)
    assert card.ask(large, 2) == [(e.Accept, large)]
    assert card.ask(small, 1) == []
    assert card.answered(e.SessionEnded(large, {"gpu": 0})) == [(e.Accept, small)]
    assert card.machine.device("gpu").free == 10 - sum(card.grants().values())


def test_containers_whose_memory_may_leave_wait_for_its_end_too() -> None:
    card = Card(pool=10)
    large = card.unified("large", 15)
    other = card.start("other", 8, r.ElasticSet("other", {"gpu": 1}))
    assert card.ask(large, 12) == [(e.Accept, large)]
    assert card.ask(other, 2) == []
    assert card.answered(e.SessionEnded(large, {"gpu": 0})) == [(e.Accept, other)]


def test_two_of_them_take_turns() -> None:
    card = Card()
    first, second = card.unified("first", 15), card.unified("second", 12)
    assert card.ask(first, 1) == [(e.Accept, first)]
    assert card.ask(second, 1) == []
    assert card.answered(e.SessionEnded(first, {"gpu": 0})) == [(e.Accept, second)]
    assert card.grants() == {"second": 12}


def test_a_new_scheduler_grants_it_the_whole_again() -> None:
    card = Card()
    card.send(e.ContainerCreated("large", {"gpu": 15}, is_whole=True))
    card.send(r.UnifiedSet("large"))
    card.send(e.SessionStarted(1, "large", {"gpu": 12}))
    assert card.grants() == {"large": 15}
