"""Scheduler and porter end amid a move, one or both of them, and others come: what is said afterwards is what is."""

import signal

from elastic_process import Elastic
from gpu_host import until
from scripted_porter import FILLED, HELD, IN, OUT, READY, Frame
from scripted_scheduler import ScriptedScheduler
from scripted_session import BINARY_UUIDS, MIB, row

from convgpu.protocol.residency import messages as r
from convgpu.protocol.wire import Outcome, PageFlag

PIECE = 64 * MIB


def come_back(elastic: Elastic, scheduler: ScriptedScheduler) -> r.State:
    """Let the next scheduler welcome the process; return where it says that its memory is."""
    elastic.peer, _hello = scheduler.accept()
    elastic.peer.welcome((row(),), PageFlag.ELASTIC)
    assert isinstance(elastic.told(), r.Able)
    state = elastic.told()
    assert isinstance(state, r.State)
    return state


def state(epoch: int, on_card: int, out: int) -> r.State:
    return r.State(epoch, 0, (r.StateRow(BINARY_UUIDS[0], on_card, 0, out),))


def test_a_new_scheduler_begins_anew_what_was_leaving(elastic: Elastic, scheduler: ScriptedScheduler) -> None:
    """No report of the order before is taken for one of its own, and what left before is not reported again."""
    address = elastic.filled(3 * PIECE, 5)
    elastic.drain(1)
    elastic.order(r.Evict(1, 0, 2 * PIECE))
    elastic.order(r.Evict(1, 0, PIECE))  # behind it; nobody waits for its answer any more
    elastic.porter.serve()
    assert elastic.porter.receive().kind == OUT
    elastic.peer.close()
    elastic.porter.close_carrier()
    assert come_back(elastic, scheduler) == state(1, 2 * PIECE, PIECE)
    elastic.carrier()
    assert elastic.porter.receive() == Frame(HELD, 0, address, PIECE)
    assert elastic.porter.receive() == Frame(READY)
    frames = elastic.move(r.Evict(9, 0, 2 * PIECE), 2)
    assert [frame.piece for frame in frames] == [address + PIECE, address + 2 * PIECE]
    elastic.move(r.Restore(9, 0, 3 * PIECE), 3)
    elastic.order(r.Go(9))
    assert elastic.call(f"compare {address} {3 * PIECE} 5") == 0


def test_nothing_is_said_to_a_new_scheduler_before_able(elastic: Elastic, scheduler: ScriptedScheduler) -> None:
    """The process was being stopped when the connection broke: the answer is of no use to the next one."""
    elastic.call("alloc 1000")
    elastic.call("hold 0 0")
    elastic.order(r.Stop(1, 30000))
    until(elastic.program.threads, lambda names: "convgpu-drain" in names)
    elastic.peer.close()
    elastic.peer, _hello = scheduler.accept()
    elastic.peer.welcome((row(),), PageFlag.ELASTIC)
    elastic.call("let 0", thread=1)
    assert isinstance(elastic.told(), r.Able)
    stands = elastic.told()
    assert isinstance(stands, r.State)
    assert (stands.epoch, stands.open) == (1, 0)
    assert elastic.stop(2).outcome == Outcome.DRAINED


def test_an_order_back_without_a_porter_waits_for_the_one_that_takes_memory_out(elastic: Elastic) -> None:
    address = elastic.filled(2 * PIECE, 5)
    elastic.drain(1)
    elastic.order(r.Evict(1, 0, 2 * PIECE))
    elastic.porter.serve()
    assert elastic.porter.receive().kind == OUT
    elastic.porter.close_carrier()
    until(lambda: elastic.program.waits("convgpu-mover"), bool)
    elastic.order(r.Restore(1, 0, PIECE))
    elastic.carrier()
    assert elastic.porter.receive() == Frame(HELD, 0, address, PIECE)
    assert elastic.porter.serve().kind == OUT
    assert elastic.porter.receive() == Frame(READY)
    assert elastic.told() == r.Evicted(1, 0, 2 * PIECE, 1)
    assert elastic.porter.serve() == Frame(IN, 0, address, PIECE)
    assert elastic.told() == r.Restored(1, 0, PIECE)
    elastic.move(r.Restore(1, 0, PIECE), 1)
    elastic.order(r.Go(1))
    assert elastic.call(f"compare {address} {2 * PIECE} 5") == 0


def test_an_order_out_without_a_porter_waits_for_the_one_that_takes_memory_back(elastic: Elastic) -> None:
    address = elastic.filled(2 * PIECE, 5)
    elastic.drain(1)
    elastic.move(r.Evict(1, 0, 2 * PIECE), 2)
    elastic.order(r.Restore(1, 0, 2 * PIECE))
    elastic.porter.serve()
    assert elastic.porter.receive().kind == IN
    elastic.porter.close_carrier()
    until(lambda: elastic.program.waits("convgpu-mover"), bool)
    elastic.order(r.Evict(1, 0, PIECE))
    elastic.carrier()
    assert elastic.porter.serve() == Frame(IN, 0, address + PIECE, PIECE)
    assert elastic.porter.receive() == Frame(READY)
    assert elastic.told() == r.Restored(1, 0, 2 * PIECE)
    assert elastic.porter.serve() == Frame(OUT, 0, address, PIECE)
    assert elastic.told() == r.Evicted(1, 0, PIECE, 1)


def test_answers_of_a_porter_that_has_ended_are_read_before_the_next_one_is_asked(
    elastic: Elastic, scheduler: ScriptedScheduler
) -> None:
    """The first piece is back and its copy gone, which only the old porter and the old scheduler knew."""
    address = elastic.filled(2 * PIECE, 5)
    elastic.drain(1)
    elastic.move(r.Evict(1, 0, 2 * PIECE), 2)
    elastic.order(r.Restore(1, 0, 2 * PIECE))
    frame = elastic.porter.receive()
    elastic.porter.copy(frame)
    elastic.porter.wait()  # the second IN is there, and stays unread: the other end sees ECONNRESET
    elastic.program.signal(signal.SIGSTOP)
    elastic.porter.send(Frame(FILLED, 0, frame.piece, frame.size))
    elastic.porter.forget(frame)
    elastic.porter.close_carrier()
    elastic.peer.close()
    elastic.program.signal(signal.SIGCONT)
    assert come_back(elastic, scheduler) == state(1, PIECE, PIECE)
    elastic.carrier()
    assert elastic.porter.serve() == Frame(IN, 0, address + PIECE, PIECE)
    assert elastic.porter.receive() == Frame(READY)
    assert elastic.told() == r.Restored(1, 0, PIECE)
    elastic.order(r.Go(1))
    assert elastic.call(f"compare {address} {2 * PIECE} 5") == 0


def test_a_scheduler_that_believes_more_to_be_out_than_is_learns_where_it_is(elastic: Elastic) -> None:
    elastic.filled(PIECE, 5)
    elastic.drain(1)
    elastic.move(r.Evict(1, 0, PIECE), 1)
    elastic.order(r.Restore(1, 0, 2 * PIECE))
    elastic.porter.serve()
    assert elastic.told() == r.Restored(1, 0, PIECE, 999)
    assert elastic.told() == state(1, PIECE, 0)
