"""A connection ends while an order is under way: what is answered under the old number reaches nobody."""

from one_card import Card

from convgpu.core import events as e
from convgpu.core.residency import events as r


def reconnect(card: Card, session: int, replaced: int, epoch: int) -> list[e.Effect]:
    """Connect again, stopped, with 2 bytes that cannot leave."""
    card.send(e.SessionReconnected(session, replaced, {"gpu": 2}))
    card.send(r.SessionAble(session, r.Mover.VMM))
    return card.send(r.SessionState(session, epoch, open=False, out={}, fixed={"gpu": 2}))


def suspend_deeply(card: Card) -> int:
    a = card.start("a", 10)
    card.allocate(a, 2)
    card.send(r.SuspendAsked("a", deep=True))
    assert card.send(r.SessionStopped(a, 1, r.StopOutcome.DRAINED, fixed={"gpu": 2})) == [r.Checkpoint(a)]
    return a


def test_contexts_that_were_to_leave_are_told_so_again() -> None:
    card = Card()
    a = suspend_deeply(card)
    assert reconnect(card, 7, a, 1) == [r.Checkpoint(7)]
    assert card.send(r.CheckpointTaken(7)) == []
    assert card.send(r.ResumeAsked("a")) == [r.RestoreCheckpoint(7)]
    assert card.send(r.CheckpointRestored(7)) == [r.Go(7, 1)]


def test_who_is_resumed_before_contexts_have_left_goes_on() -> None:
    """It was to wait for ever: for an answer under the number of its last connection."""
    card = Card()
    a = suspend_deeply(card)
    card.send(r.ResumeAsked("a"))
    assert reconnect(card, 7, a, 1) == [r.Go(7, 1)]


def test_contexts_that_were_to_come_back_are_told_so_again() -> None:
    card = Card()
    a = suspend_deeply(card)
    card.send(r.CheckpointTaken(a))
    assert card.send(r.ResumeAsked("a")) == [r.RestoreCheckpoint(a)]
    assert reconnect(card, 7, a, 1) == [r.RestoreCheckpoint(7)]
    assert card.send(r.CheckpointRestored(7)) == [r.Go(7, 1)]


def test_no_contexts_leave_while_another_process_of_the_container_runs() -> None:
    card = Card()
    suspend_deeply(card)
    card.sessions += 1
    second = card.sessions
    card.send(e.SessionStarted(second, "a", {}))
    assert r.Stop(second, 2, 2.0) in card.send(r.SessionAble(second, r.Mover.VMM))
    card.now = 5.0
    assert r.Checkpoint(second) not in card.send(e.TimePassed())  # it did not stop in time


def test_contexts_that_left_all_the_same_come_back_at_once() -> None:
    """The porter said so when the process had been let go: it ran, without its contexts, for ever."""
    card = Card()
    a = suspend_deeply(card)
    card.send(r.ResumeAsked("a"))
    assert reconnect(card, 7, a, 1) == [r.Go(7, 1)]
    assert card.send(r.CheckpointTaken(7)) == [r.RestoreCheckpoint(7)]
    assert card.send(r.CheckpointRestored(7)) == []
    assert card.machine.out("gpu") == 0
