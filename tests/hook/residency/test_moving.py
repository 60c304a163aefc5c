"""Memory leaves the device and comes back at the same addresses with the same contents, whatever fails meanwhile."""

import pytest
from elastic_process import Elastic
from gpu_host import until
from hooked_program import OUT_OF_MEMORY, SUCCESS
from scripted_porter import COPIED, FAILED, FORGET, HELD, IN, NO_COPY, NO_ROOM, OUT, READY, Frame
from scripted_scheduler import ScriptedScheduler
from scripted_session import BINARY_UUIDS, GIB, MIB, row

from convgpu.protocol.residency import messages as r
from convgpu.protocol.wire import Outcome, PageFlag

PIECE = 64 * MIB
ALL = 4 * GIB


def test_all_of_an_allocation_leaves_and_comes_back(elastic: Elastic) -> None:
    size = 2 * PIECE + 6 * MIB
    address = elastic.filled(size, 7)
    assert elastic.page.read(0) == ALL - size
    elastic.drain(1)
    pieces = [(address, PIECE), (address + PIECE, PIECE), (address + 2 * PIECE, 6 * MIB)]
    assert elastic.move(r.Evict(1, 0, size), 3) == [Frame(OUT, 0, piece, length) for piece, length in pieces]
    assert elastic.page.read(0) == ALL - size
    assert elastic.move(r.Restore(1, 0, size), 3) == [Frame(IN, 0, piece, length) for piece, length in pieces]
    elastic.order(r.Go(1))
    assert elastic.call(f"compare {address} {size} 7") == 0
    elastic.call(f"free {address}")


def test_what_leaves_is_the_devices_again(elastic: Elastic) -> None:
    free = elastic.porter.free_memory()
    elastic.filled(10 * MIB, 1)
    assert elastic.porter.free_memory() == free - 10 * MIB
    elastic.drain(1)
    elastic.move(r.Evict(1, 0, 10 * MIB), 1)
    assert elastic.porter.free_memory() == free
    elastic.move(r.Restore(1, 0, 10 * MIB), 1)
    assert elastic.porter.free_memory() == free - 10 * MIB


def test_only_as_much_leaves_as_is_asked_for(elastic: Elastic) -> None:
    ranges = {elastic.filled(size * MIB, size): size * MIB for size in (4, 6, 66, 8)}
    elastic.call("alloc 1000")
    elastic.drain(1)
    pieces = [*elastic.move(r.Evict(1, 0, MIB), 1), *elastic.move(r.Evict(1, 0, ALL), 4)]
    assert sum(piece.size for piece in pieces) == 84 * MIB
    elastic.move(r.Restore(1, 0, MIB), 1)
    elastic.move(r.Restore(1, 0, ALL), 4)
    elastic.order(r.Go(1))
    assert [elastic.call(f"compare {address} {size} {size // MIB}") for address, size in ranges.items()] == [0] * 4


def test_an_order_that_cannot_be_carried_out_is_answered_by_how_the_process_stands(elastic: Elastic) -> None:
    elastic.call("alloc 1000")
    elastic.drain(1)
    elastic.order(r.Evict(1, 0, GIB))
    assert elastic.told() == r.Evicted(1, 0, 0, 1)
    elastic.order(r.Evict(1, 7, GIB))  # a row that there is not
    stands = elastic.told()
    assert isinstance(stands, r.State)
    assert (stands.epoch, stands.open) == (1, 0)
    elastic.order(r.Go(1))
    for order in (r.Evict(1, 0, GIB), r.Restore(1, 0, GIB)):  # not stopped
        elastic.order(order)
        stands = elastic.told()
        assert isinstance(stands, r.State)
        assert (stands.epoch, stands.open) == (1, 1)
    elastic.drain(2)


def test_what_is_freed_while_it_is_out_is_forgotten(elastic: Elastic) -> None:
    address = elastic.filled(PIECE + 2 * MIB, 1)
    elastic.drain(1)
    [first] = elastic.move(r.Evict(1, 0, 2 * MIB), 1)
    assert (first.piece, first.size) == (address, PIECE)
    elastic.call(f"free {address}")
    assert elastic.porter.receive() == Frame(FORGET, 0, address, PIECE)
    assert until(lambda: elastic.page.read(0), lambda room: room == ALL) == ALL
    elastic.order(r.Go(1))
    elastic.call("alloc 1000")


def test_what_is_freed_while_it_moves_is_forgotten_when_it_has_moved(elastic: Elastic) -> None:
    address = elastic.filled(10 * MIB, 1)
    elastic.drain(1)
    elastic.order(r.Evict(1, 0, 10 * MIB))
    frame = elastic.porter.receive()
    elastic.call(f"free {address}")
    elastic.porter.copy(frame)
    assert elastic.page.read(0) == ALL - 10 * MIB
    elastic.porter.send(Frame(COPIED, 0, address, 10 * MIB))
    assert elastic.porter.receive() == Frame(FORGET, 0, address, 10 * MIB)
    assert elastic.told() == r.Evicted(1, 0, 10 * MIB, 1)
    assert until(lambda: elastic.page.read(0), lambda room: room == ALL) == ALL


def test_it_ends_with_its_context_while_it_is_out(elastic: Elastic) -> None:
    address = elastic.filled(10 * MIB, 1)
    elastic.drain(1)
    elastic.move(r.Evict(1, 0, 10 * MIB), 1)
    elastic.call("release 0")
    assert elastic.porter.receive() == Frame(FORGET, 0, address, 10 * MIB)
    assert until(lambda: elastic.page.read(0), lambda room: room == ALL) == ALL


def test_what_the_porter_has_no_room_for_stays(elastic: Elastic) -> None:
    address = elastic.filled(10 * MIB, 3)
    elastic.drain(1)
    elastic.order(r.Evict(1, 0, 10 * MIB))
    assert elastic.porter.receive() == Frame(OUT, 0, address, 10 * MIB)
    elastic.porter.send(Frame(FAILED, 0, address, 10 * MIB, OUT, NO_ROOM))
    assert elastic.told() == r.Evicted(1, 0, 0, 1)
    elastic.order(r.Go(1))
    assert elastic.call(f"compare {address} {10 * MIB} 3") == 0


@pytest.mark.parametrize("copied", [False, True])
def test_a_porter_that_dies_while_pieces_leave_is_asked_again(elastic: Elastic, copied: bool) -> None:
    """Whether it had copied the second piece or not: the original is still there."""
    address = elastic.filled(2 * PIECE, 5)
    elastic.drain(1)
    elastic.order(r.Evict(1, 0, 2 * PIECE))
    elastic.porter.serve()
    frame = elastic.porter.receive()
    if copied:
        elastic.porter.copy(frame)
    elastic.carrier()
    assert elastic.porter.receive() == Frame(HELD, 0, address, PIECE)
    assert elastic.porter.serve() == frame == Frame(OUT, 0, address + PIECE, PIECE)
    assert elastic.porter.receive() == Frame(READY)
    assert elastic.told() == r.Evicted(1, 0, 2 * PIECE, 1)
    elastic.move(r.Restore(1, 0, 2 * PIECE), 2)
    elastic.order(r.Go(1))
    assert elastic.call(f"compare {address} {2 * PIECE} 5") == 0


def test_what_a_dead_porter_was_asked_for_does_not_leave_after_the_process_went_on(elastic: Elastic) -> None:
    address = elastic.filled(2 * PIECE, 5)
    elastic.drain(1)
    elastic.order(r.Evict(1, 0, 2 * PIECE))
    frames = [elastic.porter.receive(), elastic.porter.receive()]
    assert [frame.kind for frame in frames] == [OUT, OUT]
    elastic.porter.close_carrier()
    elastic.order(r.Go(1))  # of a scheduler that knows of no order, before it has a porter
    assert elastic.call(f"compare {address} {2 * PIECE} 5") == 0
    elastic.carrier()
    assert elastic.porter.receive() == Frame(READY)
    elastic.order(r.Evict(1, 0, PIECE))
    stands = elastic.told()
    if isinstance(stands, r.Run):  # the program called while GO was on its way
        stands = elastic.told()
    assert isinstance(stands, r.State)
    assert (stands.open, stands.rows[0].out) == (1, 0)
    elastic.drain(2)
    assert elastic.move(r.Evict(2, 0, 2 * PIECE), 2) == frames
    elastic.move(r.Restore(2, 0, 2 * PIECE), 2)
    elastic.order(r.Go(2))
    assert elastic.call(f"compare {address} {2 * PIECE} 5") == 0


@pytest.mark.parametrize("filled", [False, True])
def test_a_porter_that_dies_while_pieces_come_back_is_asked_again(elastic: Elastic, filled: bool) -> None:
    """An answer that was lost has left no copy: then the memory is filled."""
    address = elastic.filled(2 * PIECE, 5)
    elastic.drain(1)
    elastic.move(r.Evict(1, 0, 2 * PIECE), 2)
    elastic.order(r.Restore(1, 0, 2 * PIECE))
    elastic.porter.serve()
    frame = elastic.porter.receive()
    if filled:
        elastic.porter.copy(frame)
        elastic.porter.forget(frame)
    elastic.carrier()
    if filled:
        assert elastic.porter.receive() == frame
        elastic.porter.send(Frame(FAILED, 0, frame.piece, frame.size, IN, NO_COPY))
    else:
        assert elastic.porter.serve() == frame
    assert elastic.porter.receive() == Frame(READY)
    assert elastic.told() == r.Restored(1, 0, 2 * PIECE)
    elastic.order(r.Go(1))
    assert elastic.call(f"compare {address} {2 * PIECE} 5") == 0


def test_a_program_whose_copy_is_lost_ends(elastic: Elastic) -> None:
    """It would compute with something else."""
    elastic.filled(10 * MIB, 1)
    elastic.drain(1)
    elastic.move(r.Evict(1, 0, 10 * MIB), 1)
    elastic.carrier()
    held = elastic.porter.receive()
    elastic.porter.send(Frame(FAILED, 0, held.piece, held.size, HELD, NO_COPY))
    elastic.order(r.Restore(1, 0, GIB))
    assert elastic.peer.at_end()
    [line] = elastic.program.end()
    assert line.startswith("convgpu: 10485760 bytes of this program's GPU memory were lost on the host")


def test_a_device_without_room_is_told_and_tried_again(elastic: Elastic) -> None:
    address = elastic.filled(PIECE, 9)
    elastic.drain(1)
    elastic.move(r.Evict(1, 0, PIECE), 1)
    outsider = elastic.porter.take_all_but(MIB)
    elastic.order(r.Restore(1, 0, PIECE))
    assert elastic.told() == r.Restored(1, 0, 0, OUT_OF_MEMORY)
    elastic.porter.give_back(outsider)
    elastic.move(r.Restore(1, 0, PIECE), 1)
    elastic.order(r.Go(1))
    assert elastic.call(f"compare {address} {PIECE} 9") == 0


def test_the_gate_does_not_open_before_everything_is_back(elastic: Elastic) -> None:
    address = elastic.filled(PIECE, 9)
    elastic.call("alloc 1000")
    elastic.drain(1)
    elastic.move(r.Evict(1, 0, PIECE), 1)
    elastic.order(r.Go(1))
    assert elastic.told() == r.State(1, 0, (r.StateRow(BINARY_UUIDS[0], 0, 2 * MIB, PIECE),))
    elastic.program.begin(f"compare {address} {PIECE} 9")
    assert elastic.told() == r.Run(1)
    elastic.order(r.Step(1, 1))  # would kill it
    elastic.move(r.Restore(1, 0, PIECE), 1)
    assert elastic.program.result().numbers == (0,)


def test_a_scheduler_that_comes_back_learns_where_the_memory_is(elastic: Elastic, scheduler: ScriptedScheduler) -> None:
    address = elastic.filled(PIECE + 4 * MIB, 9)
    elastic.drain(3)
    elastic.move(r.Evict(3, 0, PIECE), 1)
    elastic.peer.close()
    elastic.peer, hello = scheduler.accept()
    assert hello.held[0] == (BINARY_UUIDS[0], PIECE + 4 * MIB)
    elastic.peer.welcome((row(),), PageFlag.ELASTIC)
    assert isinstance(elastic.told(), r.Able)
    assert elastic.told() == r.State(3, 0, (r.StateRow(BINARY_UUIDS[0], 4 * MIB, 0, PIECE),))
    elastic.move(r.Restore(3, 0, PIECE), 1)
    elastic.order(r.Go(3))
    assert elastic.call(f"compare {address} {PIECE} 9") == 0
    assert elastic.stop(4).outcome == Outcome.DRAINED


def test_a_graph_that_was_captured_before_runs_after_it(elastic: Elastic) -> None:
    address = elastic.filled(4 * MIB, 1)
    stream = elastic.call("stream")
    elastic.call(f"capture {stream}")
    elastic.call(f"fillasync {address} {4 * MIB} 2 {stream}")
    executable = elastic.call(f"instantiate {elastic.call(f'endcapture {stream}')} 1")
    elastic.drain(1)
    elastic.move(r.Evict(1, 0, 4 * MIB), 1)
    elastic.move(r.Restore(1, 0, 4 * MIB), 1)
    elastic.order(r.Go(1))
    assert elastic.program.call(f"launch {executable} {stream}").code == SUCCESS
    elastic.call(f"sync {stream}")
    assert elastic.call(f"compare {address} {4 * MIB} 2") == 0
