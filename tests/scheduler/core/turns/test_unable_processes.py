"""Processes that nobody can stop, in containers whose memory may leave: their hook is older than that.

It is what they hold that runs on. A process that holds nothing, as any does before it has said that it can be stopped,
keeps nobody from counting as stopped.
"""

from one_card import Card

from convgpu.core import events as e
from convgpu.core.residency import events as r
from convgpu.core.turns.views import ResidenceState
from convgpu.protocol.event_kinds import EventKind


def start_old(card: Card, name: str) -> int:
    """Another process of a container, which never says that it can be stopped."""
    card.sessions += 1
    card.send(e.SessionStarted(card.sessions, name, {}))
    return card.sessions


def kinds(card: Card) -> list[EventKind]:
    """What is written about containers from now on, when time passes."""
    step = card.machine.handle(e.TimePassed(), card.now)
    return [effect.kind for effect in step.effects if isinstance(effect, e.HistoryEntry)]


def old_container(card: Card, name: str, size: int) -> int:
    """A container with the option and one process without the ability."""
    card.send(e.ContainerCreated(name, {"gpu": 10}))
    card.send(r.ElasticSet(name, {"gpu": 0}))
    session = start_old(card, name)
    assert card.allocate(session, size) == [e.Accept(session, card.requests, size, 0)]
    return session


def test_a_container_of_an_older_hook_that_is_suspended_is_busy_and_asked_again_later() -> None:
    """It was said to be stopped, and ran on."""
    card = Card()
    old_container(card, "a", 8)
    assert card.send(r.SuspendAsked("a")) == []
    assert card.state("a") is ResidenceState.STOPPING
    card.now = 4.0
    assert kinds(card) == [EventKind.BUSY]
    assert card.state("a") is ResidenceState.BUSY
    view = card.machine.residence("a")
    assert view is not None
    assert (view.switches, view.out, view.fixed) == (0, {"gpu": 0}, view.on_card)
    assert card.machine.next_deadline() == 9.0
    card.now = 9.0
    card.send(e.TimePassed())
    assert card.state("a") is ResidenceState.STOPPING


def test_what_another_process_holds_does_not_leave_while_one_of_an_older_hook_runs() -> None:
    """They may wait for each other's work."""
    card = Card()
    a = card.start("a", 10)
    old = start_old(card, "a")
    card.allocate(a, 4)
    card.allocate(old, 4)
    assert card.send(r.SuspendAsked("a")) == [r.Stop(a, 1, 2.0)]
    assert card.drain(a, 1) == []
    card.now = 4.0
    assert card.send(e.TimePassed()) == [r.Go(a, 1)]
    assert card.state("a") is ResidenceState.BUSY


def test_nobody_waits_for_a_process_of_an_older_hook_that_ends_or_holds_nothing() -> None:
    card = Card()
    a = card.start("a", 10)
    start_old(card, "a")
    old = start_old(card, "a")
    card.allocate(a, 4)
    card.allocate(old, 4)
    assert card.send(r.SuspendAsked("a")) == [r.Stop(a, 1, 2.0)]
    assert card.drain(a, 1) == []
    assert card.send(e.SessionEnded(old, {})) == [r.Evict(a, 1, "gpu", 4)]
    assert card.state("a") is ResidenceState.STOPPED


def test_a_process_that_says_later_that_it_can_be_stopped_is_stopped() -> None:
    """It was granted memory before that was read."""
    card = Card()
    session = old_container(card, "a", 8)
    card.send(r.SuspendAsked("a"))
    assert card.send(r.SessionAble(session, r.Mover.VMM)) == [r.Stop(session, 2, 2.0)]
    assert card.drain(session, 2) == [r.Evict(session, 2, "gpu", 8)]


def test_one_of_an_older_hook_that_comes_back_to_a_stopped_container_is_no_secret() -> None:
    """It was away when the others were stopped, as after a new start of the scheduler."""
    card = Card()
    a = card.start("a", 10)
    card.allocate(a, 4)
    card.send(r.SuspendAsked("a"))
    card.drain(a, 1)
    card.send(r.Evicted(a, "gpu", 4))
    assert card.state("a") is ResidenceState.STOPPED
    card.sessions += 1
    assert card.send(e.SessionStarted(card.sessions, "a", {"gpu": 3})) == [r.Stop(a, 2, 2.0)]
    assert card.drain(a, 2) == []
    assert card.state("a") is ResidenceState.STOPPING
    card.now = 4.0
    assert card.send(e.TimePassed()) == []  # what is out stays there until it is resumed
    assert card.state("a") is ResidenceState.BUSY


def test_an_allocation_that_waits_for_room_is_nothing_that_runs() -> None:
    card = Card()
    b = card.start("b", 10)
    a = card.start("a", 10)
    card.allocate(b, 8)
    old = start_old(card, "a")
    card.allocate(a, 2)
    assert card.allocate(old, 2) == []
    assert card.send(r.SuspendAsked("a")) == [r.Stop(a, 1, 2.0)]
    assert card.drain(a, 1) == [r.Evict(a, 1, "gpu", 2)]
    assert card.state("a") is ResidenceState.STOPPED


def test_who_cannot_be_stopped_need_not_say_how_it_stands_when_it_connects_again() -> None:
    """Its container was stopped with what could be, and waited for ever for what such a process never says."""
    card = Card()
    a = card.start("a", 10)
    old = start_old(card, "a")
    card.send(e.SessionReconnected(9, old, {}))
    card.allocate(a, 4)
    card.send(r.SuspendAsked("a"))
    assert card.drain(a, 1) == [r.Evict(a, 1, "gpu", 4)]
    card.send(r.Evicted(a, "gpu", 4))
    assert card.send(r.ResumeAsked("a")) == [r.Restore(a, 1, "gpu", 4)]
    assert card.send(r.Restored(a, "gpu", 4)) == [r.Go(a, 1)]
