"""Containers whose memory can leave: who runs, who leaves for whom, and what the scheduler says to the processes."""

import pytest
from one_card import Card

from convgpu.core import events as e
from convgpu.core.residency import events as r
from convgpu.core.turns.views import ResidenceState
from convgpu.protocol.event_kinds import RejectReason, WaitReason


def test_all_fits_and_nothing_is_stopped() -> None:
    card = Card()
    a, b = card.start("a", 10), card.start("b", 10)
    assert card.allocate(a, 5) == [e.Accept(a, 1, 5, 0)]
    assert card.allocate(b, 5) == [e.Accept(b, 2, 5, 0)]
    card.now = 1000.0
    assert card.send(e.TimePassed()) == []
    assert card.machine.next_deadline() is None


def test_a_paused_container_gives_its_room_to_a_newcomer_and_comes_back() -> None:
    card = Card(switch_cost=0.0)
    a, b, c = (card.start(name, 10) for name in "abc")
    card.allocate(a, 4)
    card.allocate(b, 6)
    assert card.allocate(a, 6) == []  # needs all of the card, and waits with 4
    assert card.allocate(c, 4) == [r.Stop(a, 1, 2.0)]
    assert card.drain(a, 1) == [r.Evict(a, 1, "gpu", 4)]
    assert card.state("a") is ResidenceState.WAITING
    assert card.send(r.Evicted(a, "gpu", 4)) == [e.Accept(c, 4, 4, 0)]
    assert card.machine.out("gpu") == 4
    assert [wait.reason for wait in card.machine.explain(0.0).values()] == [WaitReason.CARD]
    assert card.send(e.SessionEnded(b, {})) == []
    assert card.send(e.SessionEnded(c, {})) == [r.Restore(a, 1, "gpu", 4)]
    assert card.send(r.Restored(a, "gpu", 4)) == [r.Go(a, 1), e.Accept(a, 3, 6, settling=10)]
    assert card.state("a") is ResidenceState.RUNNING


def test_only_as_much_leaves_as_is_lacking() -> None:
    card = Card()
    a, b = card.start("a", 10), card.start("b", 10)
    card.allocate(a, 8)
    card.send(r.Idle("a", -1.0))
    assert card.allocate(b, 5) == [r.Stop(a, 1, 2.0)]
    assert card.drain(a, 1) == [r.Evict(a, 1, "gpu", 3)]
    view = card.machine.residence("a")
    assert view is not None
    assert (view.on_card, view.out) == ({"gpu": 8}, {"gpu": 0})


def test_a_busy_container_runs_on_and_is_asked_again_later() -> None:
    card = Card()
    a, b = card.start("a", 10), card.start("b", 10)
    card.allocate(a, 8)
    card.send(r.Idle("a", -1.0))
    card.allocate(b, 5)
    assert card.send(r.SessionStopped(a, 1, r.StopOutcome.BUSY)) == [r.Go(a, 1)]
    assert card.state("a") is ResidenceState.BUSY
    card.send(r.Idle("a", -1.0))
    assert card.machine.next_deadline() == 5.0
    card.now = 5.0
    assert card.send(e.TimePassed()) == [r.Stop(a, 2, 2.0)]
    card.send(r.SessionStopped(a, 2, r.StopOutcome.CAPTURING))
    assert card.machine.next_deadline() == 15.0


def test_a_process_that_does_not_answer_counts_as_busy() -> None:
    card = Card()
    a, b = card.start("a", 10), card.start("b", 10)
    card.allocate(a, 8)
    card.send(r.Idle("a", -1.0))
    card.allocate(b, 5)
    card.now = 4.0
    assert card.send(e.TimePassed()) == [r.Go(a, 1)]
    assert card.state("a") is ResidenceState.BUSY


def test_processes_of_a_container_stop_together_and_step_for_each_other() -> None:
    card = Card()
    a = card.start("a", 10)
    second = card.sessions = card.sessions + 1
    card.send(e.SessionStarted(second, "a", {}))
    card.send(r.SessionAble(second, r.Mover.VMM))
    card.allocate(a, 4)
    assert card.send(r.SuspendAsked("a")) == [r.Stop(a, 1, 2.0), r.Stop(second, 1, 2.0)]
    assert card.drain(a, 1, waiting=1) == []
    assert card.machine.next_deadline() == 0.05
    card.now = 0.05
    assert card.send(e.TimePassed()) == [r.Step(a, 1)]
    assert card.drain(second, 1) == []
    assert card.drain(a, 1) == [r.Evict(a, 1, "gpu", 4)]


def test_suspended_by_hand_until_resumed_by_hand() -> None:
    card = Card()
    a = card.start("a", 10)
    card.allocate(a, 8)
    assert card.send(r.SuspendAsked("a")) == [r.Stop(a, 1, 2.0)]
    assert card.drain(a, 1, waiting=1) == [r.Evict(a, 1, "gpu", 8)]
    assert card.send(r.Evicted(a, "gpu", 8)) == []
    assert card.send(r.RunWanted("a")) == []
    assert card.send(r.ResumeAsked("a")) == [r.Restore(a, 1, "gpu", 8)]
    assert card.send(r.Restored(a, "gpu", 5, refused=3)) == []
    assert card.machine.next_deadline() == 0.05  # the driver is not asked all the time
    card.now = 0.05
    assert card.send(e.TimePassed()) == [r.Restore(a, 1, "gpu", 3)]
    assert card.send(r.Restored(a, "gpu", 3)) == [r.Go(a, 1)]


def test_deep_suspension_takes_the_contexts_after_the_rest_and_brings_them_back_first() -> None:
    card = Card()
    a = card.start("a", 10)
    card.allocate(a, 8)
    card.send(r.SuspendAsked("a", deep=True))
    card.send(r.SessionStopped(a, 1, r.StopOutcome.DRAINED, fixed={"gpu": 2}))
    assert card.send(r.Evicted(a, "gpu", 6)) == [r.Checkpoint(a)]
    assert card.send(r.CheckpointTaken(a)) == []
    view = card.machine.residence("a")
    assert view is not None
    assert (view.on_card, view.out) == ({"gpu": 0}, {"gpu": 8})
    assert card.send(r.ResumeAsked("a")) == [r.RestoreCheckpoint(a)]
    assert card.send(r.CheckpointRestored(a)) == [r.Restore(a, 1, "gpu", 6)]
    assert card.send(r.Restored(a, "gpu", 6)) == [r.Go(a, 1)]


def test_a_new_porter_may_say_that_contexts_are_away_before_the_process_says_what_is_out() -> None:
    card = Card()
    a = card.start("a", 10)
    card.allocate(a, 8)
    card.send(r.SuspendAsked("a", deep=True))
    card.send(e.SessionReconnected(7, a, {"gpu": 8}))
    card.send(r.SessionAble(7, r.Mover.VMM))
    card.send(r.CheckpointTaken(7))
    card.send(r.SessionState(7, 1, open=False, out={"gpu": 6}, fixed={"gpu": 2}))
    assert card.machine.out("gpu") == 8
    view = card.machine.residence("a")
    assert view is not None
    assert (view.on_card, view.out) == ({"gpu": 0}, {"gpu": 8})


def suspended(card: Card) -> int:
    """Return the process of a container `a` that was suspended by hand, with all of its 8 out."""
    a = card.start("a", 10)
    card.allocate(a, 8)
    card.send(r.SuspendAsked("a"))
    card.drain(a, 1)
    card.send(r.Evicted(a, "gpu", 8))
    return a


def test_nobody_is_restored_to_a_drained_device() -> None:
    card = Card()
    a = suspended(card)
    card.send(e.DeviceDrained("gpu", drained=True))
    assert card.send(r.ResumeAsked("a")) == []
    assert card.send(e.DeviceDrained("gpu", drained=False)) == [r.Restore(a, 1, "gpu", 8)]


def test_less_capacity_has_idle_memory_leave_instead_of_overcommitting_the_card() -> None:
    card = Card()
    a = card.start("a", 10)
    card.allocate(a, 8)
    card.send(r.Idle("a", -1.0))
    assert card.send(e.CapacityChanged("gpu", 6)) == [r.Stop(a, 1, 2.0)]
    assert card.drain(a, 1) == [r.Evict(a, 1, "gpu", 2)]


def test_a_process_that_reconnects_says_how_it_stands_before_anything_moves() -> None:
    card = Card()
    a = card.start("a", 10)
    card.allocate(a, 8)
    card.send(r.SuspendAsked("a"))
    card.drain(a, 1)
    assert card.send(e.SessionReconnected(7, a, {"gpu": 8})) == []
    assert card.send(r.SessionAble(7, r.Mover.VMM)) == []
    assert card.send(r.SessionState(7, 1, open=False, out={"gpu": 3}, fixed={})) == [r.Evict(7, 1, "gpu", 5)]


def test_what_a_process_says_before_it_hears_that_it_may_go_on_costs_no_turn() -> None:
    """It says how it stands behind its last RESTORED, where it had less out than it was told to restore."""
    card = Card()
    a, b = suspended(card), card.start("b", 10)
    card.allocate(b, 6)
    card.send(r.ResumeAsked("a"))
    card.now = 1000.0
    card.send(e.TimePassed())
    card.drain(b, 1)
    card.send(r.Evicted(b, "gpu", 6))
    card.send(r.RunWanted("b"))
    assert card.send(r.Restored(a, "gpu", 8)) == [r.Go(a, 1)]
    assert card.send(r.SessionState(a, 1, open=False, out={"gpu": 0}, fixed={})) == []
    assert card.state("a") is ResidenceState.RUNNING


def test_a_process_that_has_something_out_still_when_it_may_go_on_gets_it_back_first() -> None:
    card = Card()
    a = suspended(card)
    card.send(r.ResumeAsked("a"))
    assert card.send(r.Restored(a, "gpu", 8)) == [r.Go(a, 1)]
    assert card.send(r.SessionState(a, 1, open=False, out={"gpu": 2}, fixed={})) == [r.Restore(a, 1, "gpu", 2)]
    assert card.send(r.Restored(a, "gpu", 2)) == [r.Go(a, 1)]


def test_a_new_scheduler_learns_from_the_processes_what_is_out() -> None:
    card = Card()
    card.send(e.ContainerCreated("a", {"gpu": 10}))
    card.send(r.ElasticSet("a", {"gpu": 0}))
    card.send(e.SessionStarted(1, "a", {"gpu": 8}))
    card.send(r.SessionAble(1, r.Mover.VMM))
    state = r.SessionState(1, 5, open=False, out={"gpu": 8}, fixed={})
    assert card.send(state) == [r.Restore(1, 5, "gpu", 8)]
    assert card.send(r.Restored(1, "gpu", 8)) == [r.Go(1, 5)]


def test_a_new_scheduler_that_stops_a_stopped_process_does_not_wait_for_its_answer() -> None:
    card = Card()
    a = card.start("a", 10)
    card.allocate(a, 4)
    assert card.send(r.SuspendAsked("a")) == [r.Stop(a, 1, 2.0)]  # which a process of epoch 7 does not heed
    card.send(r.SessionState(a, 7, open=False, out={"gpu": 4}, fixed={}))
    assert card.state("a") is ResidenceState.STOPPED
    assert card.send(r.ResumeAsked("a")) == [r.Restore(a, 7, "gpu", 4)]


def test_a_process_that_runs_is_stopped_once_more_by_a_new_scheduler() -> None:
    card = Card()
    a = card.start("a", 10)
    card.allocate(a, 4)
    assert card.send(r.SuspendAsked("a")) == [r.Stop(a, 1, 2.0)]
    assert card.send(r.SessionState(a, 7, open=True, out={}, fixed={})) == [r.Stop(a, 8, 2.0)]


def test_a_second_process_that_does_not_drain_is_asked_again_after_a_while() -> None:
    card = Card()
    a = card.start("a", 10)
    card.allocate(a, 4)
    card.send(r.SuspendAsked("a"))
    card.drain(a, 1)
    card.send(r.Evicted(a, "gpu", 4))
    card.sessions += 1
    late = card.sessions
    card.send(e.SessionStarted(late, "a", {}))
    assert card.send(r.SessionAble(late, r.Mover.VMM)) == [r.Stop(a, 2, 2.0), r.Stop(late, 2, 2.0)]
    card.drain(a, 2)
    assert card.send(r.SessionStopped(late, 2, r.StopOutcome.BUSY)) == []
    assert card.send(e.TimePassed()) == []
    assert card.machine.next_deadline() == 5.0
    card.now = 5.0
    assert card.send(e.TimePassed()) == [r.Stop(a, 3, 2.0), r.Stop(late, 3, 2.0)]


def test_what_may_leave_of_a_container_that_comes_back_is_known_before_it_has_room() -> None:
    """One of its processes did not stop, so that nothing of it could leave until it got its turn."""
    card = Card(switch_cost=0.0)
    a, b = card.start("a", 10), card.start("b", 10)
    card.allocate(a, 8)
    card.send(r.Idle("a", -1.0))
    assert card.allocate(b, 5) == [r.Stop(a, 1, 2.0)]
    assert card.drain(a, 1, waiting=1) == [r.Evict(a, 1, "gpu", 3)]
    card.send(r.Evicted(a, "gpu", 3))
    card.sessions += 1
    late = card.sessions
    card.send(e.SessionStarted(late, "a", {}))
    card.send(r.SessionAble(late, r.Mover.VMM))
    card.send(r.SessionStopped(late, 2, r.StopOutcome.BUSY))
    card.now = 10.0
    assert card.send(r.Idle("b", 0.0)) == [r.Stop(b, 1, 2.0)]  # for a, which waits for this room
    assert card.state("a") is ResidenceState.RESTORING


def test_a_rigid_container_waits_while_an_elastic_one_could_not_run_beside_it() -> None:
    card = Card()
    a, b, c = card.start("a", 6), card.start("b", 5, elastic=False), card.start("c", 4, elastic=False)
    assert card.allocate(a, 6) == [e.Accept(a, 1, 6, 0)]
    assert card.allocate(b, 1) == []  # a limit of 5 beside the run slot of 6
    assert card.allocate(c, 4) == [e.Accept(c, 3, 4, 0)]
    card.send(e.SessionEnded(c, {}))
    assert card.send(e.SessionEnded(a, {})) == [e.Accept(b, 2, 1, settling=10)]


def test_an_allocation_that_waits_for_room_is_rejected_at_its_deadline() -> None:
    card = Card(switch_cost=0.0)
    a = card.start("a", 10)
    card.allocate(a, 8)
    card.send(e.ContainerCreated("b", {"gpu": 10}, wait=30.0))
    card.send(r.ElasticSet("b", {"gpu": 0}))
    card.send(e.SessionStarted(9, "b", {}))
    card.send(r.SessionAble(9, r.Mover.VMM))
    card.allocate(9, 8)
    assert card.machine.next_deadline() == 30.0
    card.now = 30.0
    assert card.send(e.TimePassed()) == [e.Reject(9, 2, RejectReason.DEADLINE)]
    assert card.machine.lease(9, "gpu") == 0


def test_who_could_make_room_says_when_it_is_idle_until_nobody_has_waited_for_a_while() -> None:
    card = Card(switch_cost=0.0)
    a, b = card.start("a", 10), card.start("b", 10)
    card.allocate(a, 8)
    assert card.watched == {}
    card.allocate(b, 8)
    assert card.watched == {a: True}
    card.now = 1.0
    card.send(e.SessionEnded(b, {}))
    assert card.watched == {a: True}
    card.now = 10.0
    card.send(e.TimePassed())
    assert card.watched == {a: False}


def test_an_idle_container_leaves_when_it_has_been_idle_for_as_long_as_that_takes() -> None:
    card = Card(switch_cost=0.0)
    a, b = card.start("a", 10), card.start("b", 10)
    card.send(r.SwitchMeasured("gpu", 4.0, 4.0))
    card.allocate(a, 8)
    card.allocate(b, 8)
    assert card.send(r.Idle("a", 0.0)) == []
    assert card.machine.next_deadline() == 4.05  # eight bytes out and in, and a drain
    card.now = 1.0
    card.send(r.Busy("a"))
    assert card.machine.next_deadline() == 240.0  # b is overdue
    card.send(r.Idle("a", 1.0))
    card.now = 5.05
    assert card.send(e.TimePassed()) == [r.Stop(a, 1, 2.0)]


def test_memory_moves_in_whole_pieces_while_more_is_left() -> None:
    card = Card(piece=4)
    a, b = card.start("a", 10), card.start("b", 10)
    card.allocate(a, 9)
    card.send(r.Idle("a", -1.0))
    card.allocate(b, 2)
    assert card.drain(a, 1, waiting=1) == [r.Evict(a, 1, "gpu", 4)]  # one is lacking
    card.send(r.Evicted(a, "gpu", 4))
    assert card.send(e.SessionEnded(b, {})) == [r.Restore(a, 1, "gpu", 4)]


def test_what_did_not_leave_is_told_so_again_when_the_host_has_more_room() -> None:
    card = Card()
    a, b = card.start("a", 10), card.start("b", 10)
    card.allocate(a, 4)
    card.allocate(b, 4)
    card.send(r.SuspendAsked("a"))
    card.drain(a, 1)
    card.send(r.Evicted(a, "gpu", 4))
    card.send(r.SuspendAsked("b"))
    card.drain(b, 1)
    assert card.send(r.Evicted(b, "gpu", 1, missing=3)) == []
    assert card.send(e.SessionEnded(a, {})) == [r.Evict(b, 1, "gpu", 3)]


@pytest.mark.parametrize("connects", [False, True])
def test_nobody_overtakes_an_overdue_container_because_another_process_of_it_connects(connects: bool) -> None:
    card = Card(switch_cost=0.0)
    a, b, c, d = (card.start(name, size) for name, size in zip("abcd", (3, 8, 4, 5), strict=True))
    card.allocate(a, 3)
    card.allocate(d, 5)
    assert card.allocate(b, 8) == []
    card.now = 100.0
    assert card.allocate(c, 4) == []
    if connects:
        card.send(e.SessionStarted(99, "b", {}))
        card.send(r.SessionAble(99, r.Mover.VMM))
    card.now = 241.0  # four starvation timeouts
    assert card.send(e.SessionEnded(a, {})) == []
    assert card.send(e.SessionEnded(d, {})) == [e.Accept(b, 3, 8, 8)]


def test_a_checkpoint_holds_nothing_of_an_allocation_that_waits_for_room() -> None:
    card = Card(switch_cost=0.0)
    a, b = card.start("a", 10), card.start("b", 10)
    card.allocate(b, 7)
    assert card.allocate(a, 5) == []
    card.send(r.SuspendAsked("a", deep=True))
    card.drain(a, 1)
    card.send(r.CheckpointTaken(a))
    assert card.machine.card("gpu")[0] == 3
