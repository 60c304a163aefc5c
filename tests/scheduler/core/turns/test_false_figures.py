"""What a process says of its memory may be false: it gains no room by that, and takes none of others (decision 160)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_card import Card

from convgpu.core import events as e
from convgpu.core.residency import events as r


@pytest.mark.parametrize("size", [6, 1 << 62])
def test_no_more_of_a_container_is_out_than_its_limit(size: int) -> None:
    card = Card()
    liar = card.start("liar", 5)
    card.allocate(liar, 5)
    card.send(r.SuspendAsked("liar"))
    card.drain(liar, 1)
    card.send(r.Evicted(liar, "gpu", size))
    assert card.machine.out("gpu") == 5
    card.send(r.SessionState(liar, 1, open=False, out={"gpu": size}, fixed={}))
    assert card.machine.out("gpu") == 5


def test_what_is_out_beyond_what_is_leased_makes_no_room() -> None:
    card = Card()
    liar, honest = card.start("liar", 10), card.start("honest", 10)
    card.allocate(liar, 2)
    card.allocate(honest, 4)
    card.send(r.SessionState(liar, 1, open=False, out={"gpu": 10}, fixed={}))
    assert card.machine.out("gpu") == 10
    assert card.machine.card("gpu")[0] == 10 - card.machine.lease(honest, "gpu")  # as if all it was leased were out


FIGURES = st.sampled_from([0, 1, 3, 9, 11, 1 << 40, 1 << 63])
EPOCHS = st.integers(0, 6)
LIES = st.one_of(
    st.builds(r.SessionStopped, st.just(1), EPOCHS, st.sampled_from(r.StopOutcome), st.integers(0, 2), st.just(0.0)),
    st.builds(r.SessionState, st.just(1), EPOCHS, st.booleans(), st.just({}) | FIGURES.map(lambda n: {"gpu": n})),
    st.builds(r.Evicted, st.just(1), st.just("gpu"), FIGURES, FIGURES),
    st.builds(r.Restored, st.just(1), st.just("gpu"), FIGURES, FIGURES),
    st.builds(r.Discarded, st.just(1), st.just("gpu"), FIGURES),
    st.builds(r.RunWanted, st.just("liar")),
    st.builds(r.SuspendAsked, st.just("liar"), st.just(False)),
    st.builds(r.ResumeAsked, st.just("liar")),
)


@given(st.lists(LIES | st.sampled_from([1.0, 100.0]), max_size=40), st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=200)
def test_whatever_a_process_says_another_is_served_when_it_has_ended(lies: list[object], mine: int, other: int) -> None:
    """`Card.send` checks all invariants after each event."""
    card = Card()
    liar, honest = card.start("liar", 10), card.start("honest", 10)
    card.allocate(liar, mine)
    asked = card.allocate(honest, other)
    for lie in lies:
        if isinstance(lie, float):
            card.now += lie
            asked += card.send(e.TimePassed())
        else:
            asked += card.send(lie)  # type: ignore[arg-type] # an event
        assert card.machine.card("gpu")[0] <= 10
    asked += card.send(e.SessionEnded(liar, {}))
    assert [effect for effect in asked if isinstance(effect, e.Accept) and effect.session == honest]
    assert (card.machine.out("gpu"), sum(card.machine.card("gpu"))) == (0, 10)
