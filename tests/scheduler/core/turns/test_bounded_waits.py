"""Busy containers that never end: each gets the card again within the quanta of the others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_card import Card

from convgpu.core import events as e
from convgpu.core.residency import events as r
from convgpu.core.residency.quantum import LEAST
from convgpu.core.turns.views import ResidenceState

STEP = 0.5  # seconds


class Endless:
    """Programs that submit all the while, and a porter and a driver that need no time."""

    def __init__(self, sizes: list[int]) -> None:
        self.card = Card(pool=sum(sizes))
        self.ran: dict[int, float] = {}  # by session: when it ran last
        self.longest = 0.0
        for number, size in enumerate(sizes):
            session = self.card.start(f"c{number}", 10)
            self.answer(self.card.allocate(session, size))
            self.ran[session] = 0.0

    def answer(self, effects: list[e.Effect]) -> None:
        for effect in effects:
            match effect:
                case r.Stop(session, epoch):
                    self.answer(self.card.drain(session, epoch, waiting=1))
                case r.Evict(session, _, device, size):
                    self.answer(self.card.send(r.Evicted(session, device, size)))
                case r.Restore(session, _, device, size):
                    self.answer(self.card.send(r.Restored(session, device, size)))

    def pass_time(self) -> None:
        self.card.now += STEP
        self.answer(self.card.send(e.TimePassed()))
        waiting = {asked.container for asked in self.card.machine.waiting}
        for session in self.ran:
            name = f"c{session - 1}"
            if self.card.state(name) is ResidenceState.RUNNING and name not in waiting:
                self.ran[session] = self.card.now
        self.longest = max(self.longest, *(self.card.now - at for at in self.ran.values()))


@given(st.lists(st.integers(6, 10), min_size=2, max_size=6))
@settings(max_examples=10, deadline=None)
def test_nobody_waits_longer_than_the_quanta_of_all_others(sizes: list[int]) -> None:
    """No two of them fit at a time. One has its quantum when it is looked at next, so each may last a step longer."""
    endless = Endless(sizes)
    for _ in range(20 * len(sizes)):
        endless.pass_time()
    assert endless.longest <= (len(sizes) - 1) * (LEAST + STEP) + STEP


@pytest.mark.parametrize("small", [1, 4])
def test_small_ones_that_fit_beside_others_do_not_keep_a_large_one_away(small: int) -> None:
    endless = Endless([10, *[small] * 5])
    for _ in range(700):
        endless.pass_time()
    assert endless.longest < 300.0  # four starvation timeouts, and a quantum
