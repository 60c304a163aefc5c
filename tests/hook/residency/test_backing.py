"""Large allocations of an elastic process: addresses, charges, and the cache of freed ones."""

from collections.abc import Callable
from pathlib import Path

import pytest
from daemon import wait_until
from elastic_process import Elastic
from gpu_host import until
from hooked_program import ILLEGAL_ADDRESS, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, Result
from scripted_session import GIB, MIB

from convgpu.protocol.messages import Accepted, Allocate, Context, ContextSize, Query, Rejected, Usage
from convgpu.protocol.residency import messages as r
from convgpu.protocol.wire import AllocateFlag, Outcome, Reason

UNTOUCHED = "0x5a5a"
ALL = 4 * GIB
PIECE = 64 * MIB
SIZE = 8 * MIB


def test_large_allocations_can_leave_and_small_ones_are_fixed(elastic: Elastic) -> None:
    elastic.call(f"alloc {MIB}")
    assert (elastic.page.read(0), elastic.page.read_fixed(0)) == (ALL - 2 * MIB, ALL - 2 * MIB)
    address = elastic.call(f"alloc {MIB + 1}")
    assert address % (2 * MIB) == 0
    assert (elastic.page.read(0), elastic.page.read_fixed(0)) == (ALL - 4 * MIB, ALL - 2 * MIB)
    elastic.call(f"alloc {3 * GIB + MIB}")
    assert (elastic.page.read(0), elastic.page.read_fixed(0)) == (ALL - 3 * GIB - 6 * MIB, ALL - 2 * MIB)


def test_what_is_freed_is_kept_for_the_next_of_its_size(elastic: Elastic) -> None:
    address = elastic.call(f"alloc {10 * MIB}")
    elastic.call(f"free {address}")
    assert elastic.page.read(0) == ALL - 10 * MIB
    assert elastic.call(f"alloc {8 * MIB}") != address
    assert elastic.call(f"alloc {9 * MIB + 1}") == address
    assert elastic.page.read(0) == ALL - 18 * MIB
    assert elastic.program.call(f"free {address + 2 * MIB}").code == INVALID_VALUE
    elastic.call(f"free {address}")
    assert elastic.program.call(f"free {address}").code == INVALID_VALUE


def test_the_cache_holds_no_more_than_64_mib_and_nothing_for_long(elastic: Elastic) -> None:
    addresses = [elastic.call(f"alloc {30 * MIB}") for _allocation in range(3)]
    for address in addresses:
        elastic.call(f"free {address}")
    assert elastic.page.read(0) == ALL - 60 * MIB
    assert elastic.call(f"alloc {30 * MIB}") == addresses[2]
    large = elastic.call(f"alloc {66 * MIB}")
    elastic.call(f"free {large}")
    assert until(lambda: elastic.page.read(0), lambda room: room == ALL - 30 * MIB) == ALL - 30 * MIB
    assert elastic.peer.silent()


def test_the_cache_is_given_back_before_anybody_asks(elastic: Elastic) -> None:
    elastic.call(f"free {elastic.call(f'alloc {62 * MIB}')}")
    elastic.call(f"alloc {ALL - 2 * MIB}")
    assert elastic.page.read(0) == 2 * MIB
    assert elastic.peer.silent()


def test_while_an_allocation_waits_nothing_is_kept(elastic: Elastic) -> None:
    address = elastic.call(f"alloc {10 * MIB}")
    elastic.page.arm(0, True)
    elastic.call(f"free {address}")
    assert elastic.page.read(0) == ALL


def test_the_cache_leaves_when_the_process_stops(elastic: Elastic) -> None:
    elastic.call(f"free {elastic.call(f'alloc {10 * MIB}')}")
    elastic.drain(1)
    assert elastic.page.read(0) == ALL


def test_a_pitch_is_the_drivers(elastic: Elastic) -> None:
    backed = elastic.program.call("pitch 1000 3000")
    native = elastic.program.call("pitch 1000 1000")
    assert (backed.code, backed.numbers[1], native.numbers[1]) == (SUCCESS, 1024, 1024)
    assert (elastic.page.read(0), elastic.page.read_fixed(0)) == (ALL - 6 * MIB, ALL - 2 * MIB)


def test_a_stream_frees_it_too(elastic: Elastic) -> None:
    stream = elastic.call("stream")
    address = elastic.filled(66 * MIB, 1)
    elastic.call(f"freeasync {address} {stream}")
    assert elastic.page.read(0) == ALL


def test_what_a_capture_keeps_from_being_freed_goes_after_it(elastic: Elastic) -> None:
    """A synchronisation would break the capture."""
    stream = elastic.call("stream")
    address = elastic.filled(66 * MIB, 1)
    elastic.call(f"capture {stream}")
    elastic.call(f"free {address}")
    assert elastic.page.read(0) == ALL - 66 * MIB
    elastic.call(f"endcapture {stream}")
    assert until(lambda: elastic.page.read(0), lambda room: room == ALL) == ALL


def test_it_ends_with_its_context(elastic: Elastic) -> None:
    elastic.call(f"alloc {100 * MIB}")
    elastic.call(f"free {elastic.call(f'alloc {10 * MIB}')}")
    elastic.call("release 0")
    assert elastic.page.read(0) == ALL


def test_what_the_driver_refuses_is_given_back(elastic: Elastic) -> None:
    """A device of 16 GiB."""
    elastic.page.give(0, 20 * GIB)
    elastic.program.begin(f"alloc {17 * GIB}")
    request, message = elastic.peer.receive()
    assert message == Query(0)
    elastic.peer.send(Usage(24 * GIB, 17 * GIB, 0), request)
    request, message = elastic.peer.receive()
    assert message == Allocate(0, 17 * GIB, "cuMemAlloc", flags=int(AllocateFlag.REFUSED))
    assert elastic.page.read(0) == 24 * GIB
    elastic.peer.send(Rejected(Reason.DRIVER, 24 * GIB, 0), request)
    assert elastic.program.result() == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    assert (elastic.page.read(0), elastic.page.read_fixed(0)) == (24 * GIB, ALL)


def test_fixed_memory_beyond_the_share_is_asked_for(elastic: Elastic) -> None:
    elastic.page.give_fixed(0, -ALL)
    elastic.program.begin("alloc 1000")
    request, message = elastic.peer.receive()
    assert message == Allocate(0, 2 * MIB, "cuMemAlloc", flags=int(AllocateFlag.FIXED))
    elastic.peer.send(Accepted(2 * MIB, 0), request)
    small = elastic.program.result()
    assert (small.code, elastic.page.read(0), elastic.page.read_fixed(0)) == (SUCCESS, ALL - 2 * MIB, 0)
    elastic.call(f"free {small.number}")
    assert (elastic.page.read(0), elastic.page.read_fixed(0)) == (ALL, 2 * MIB)
    elastic.program.begin(f"managed {8 * MIB} 1")
    request, message = elastic.peer.receive()
    assert message == Allocate(0, 8 * MIB, "cuMemAllocManaged", flags=int(AllocateFlag.FIXED))
    elastic.peer.send(Rejected(Reason.LIMIT, ALL, 0), request)
    assert elastic.program.result().code == OUT_OF_MEMORY
    assert (elastic.page.read(0), elastic.page.read_fixed(0)) == (ALL, 2 * MIB)
    [line] = elastic.program.end()
    assert "raise the option `fixed`" in line


class Freeing:
    """Thread 1 stands in cuMemFree, behind a kernel and then as long as it is detained (libraries/detaining.c).

    Thread 2 has a context of its own.
    """

    def __init__(self, elastic: Elastic, folder: Path, *, fails: bool = False) -> None:
        self._elastic, self._detained = elastic, folder / "detained"
        self.address = elastic.filled(SIZE, 1)
        elastic.call("join", 1)
        elastic.program.begin("create2 0", 2)
        request, message = elastic.peer.receive()
        assert isinstance(message, Context)
        elastic.peer.send(ContextSize(0), request)
        assert elastic.program.result(2).code == SUCCESS
        self.unused = elastic.page.read(0) + SIZE
        elastic.call("hold 0 0")
        if fails:
            elastic.call("stray 0")  # behind the kernel
        (folder / "detain").touch()
        elastic.program.begin(f"free {self.address}", 1)
        assert until(self._detained.exists, bool)

    def ended_by_a_stop(self) -> None:
        self._elastic.order(r.Stop(1, 10000))
        self._elastic.call("let 0", 3)
        assert self._elastic.stopped(1).outcome == Outcome.DRAINED
        self._see_the_end()
        self._elastic.order(r.Go(1))

    def ended_with_its_context(self) -> None:
        self._elastic.call("release 0")
        self._see_the_end()

    def _see_the_end(self) -> None:
        assert until(lambda: self._elastic.page.read(0), lambda room: room == self.unused) == self.unused

    def goes_on(self) -> int:
        """Let the thread go on; return what cuMemFree says."""
        self._detained.unlink()
        return self._elastic.program.result(1).code


ENDS = [Freeing.ended_by_a_stop, Freeing.ended_with_its_context]
detaining = pytest.mark.parametrize("preload", [("libdetaining.so",)])


@detaining
@pytest.mark.parametrize("end", ENDS)
def test_what_somebody_else_has_ended_meanwhile_is_freed(
    elastic: Elastic, tmp_path: Path, end: Callable[[Freeing], None]
) -> None:
    freeing = Freeing(elastic, tmp_path)
    end(freeing)
    assert freeing.goes_on() == SUCCESS
    assert elastic.page.read(0) == freeing.unused


@detaining
@pytest.mark.parametrize("end", ENDS)
def test_a_free_that_ends_late_leaves_the_next_range_at_its_address_alone(
    elastic: Elastic, tmp_path: Path, end: Callable[[Freeing], None]
) -> None:
    freeing = Freeing(elastic, tmp_path)
    end(freeing)
    assert elastic.call(f"alloc {SIZE}", 2) == freeing.address
    elastic.call(f"fill {freeing.address} {SIZE} 3", 2)
    assert freeing.goes_on() == SUCCESS
    assert elastic.call(f"alloc {SIZE}", 2) != freeing.address  # which is live, and in no cache
    assert elastic.call(f"compare {freeing.address} {SIZE} 3", 2) == 0
    elastic.call(f"free {freeing.address}", 2)


@detaining
def test_a_free_that_fails_late_does_not_make_the_next_range_at_its_address_live(
    elastic: Elastic, tmp_path: Path
) -> None:
    freeing = Freeing(elastic, tmp_path, fails=True)
    freeing.ended_by_a_stop()
    assert elastic.call(f"alloc {SIZE}", 2) == freeing.address
    elastic.call(f"free {freeing.address}", 2)
    assert freeing.goes_on() == ILLEGAL_ADDRESS
    assert elastic.program.call(f"free {freeing.address}", 2).code == INVALID_VALUE


@pytest.mark.parametrize("share", ["syncmemops {}", "givedmabuf {} 4096", "givebind {object} {} 2097152"])
def test_a_range_that_is_shared_becomes_fixed(elastic: Elastic, share: str) -> None:
    shared, other = elastic.filled(10 * MIB, 1), elastic.filled(4 * MIB, 2)
    team = elastic.call(f"givemulticast {PIECE}")
    given = elastic.program.call(share.format(shared + 2 * MIB, object=team))
    assert given.code == SUCCESS
    assert elastic.page.read_fixed(0) == ALL - 10 * MIB
    elastic.drain(1)
    [moved] = elastic.move(r.Evict(1, 0, 14 * MIB), 1)
    assert (moved.piece, moved.size) == (other, 4 * MIB)
    elastic.move(r.Restore(1, 0, 4 * MIB), 1)
    elastic.order(r.Go(1))
    elastic.call(f"free {shared}")
    if "dmabuf" in share:
        assert elastic.page.read_fixed(0) == ALL - 10 * MIB
        elastic.call(f"closefd {given.number}")
    wait_until(lambda: elastic.page.read_fixed(0) == ALL, "it is given back")
    assert elastic.page.read(0) == ALL - 4 * MIB


@pytest.mark.parametrize(
    ("share", "call"),
    [
        ("givedmabuf {} 4096", "cuMemGetHandleForAddressRange"),
        ("givebind {object} {} 2097152", "cuMulticastBindAddr"),
    ],
)
def test_a_range_that_may_not_become_fixed_is_not_given_away(elastic: Elastic, share: str, call: str) -> None:
    address, team = elastic.filled(10 * MIB, 1), elastic.call(f"givemulticast {PIECE}")
    elastic.page.give_fixed(0, -ALL)
    elastic.program.begin(share.format(address, object=team))
    request, message = elastic.peer.receive()
    assert message == Allocate(0, 10 * MIB, call, flags=int(AllocateFlag.FIXED))
    elastic.peer.send(Rejected(Reason.LIMIT, ALL, 0), request)
    assert elastic.program.result().code == NOT_SUPPORTED
    elastic.drain(1)
    [moved] = elastic.move(r.Evict(1, 0, 10 * MIB), 1)
    assert moved.piece == address
    [line] = elastic.program.end()
    assert line.startswith(f"convgpu: {call} of 10MiB ")
    assert "raise the option `fixed`" in line


def test_memory_of_cu_mem_alloc_has_no_handle(elastic: Elastic) -> None:
    """As on a card; else the program would hold pieces that we take for freed."""
    for address in (elastic.filled(10 * MIB, 1), elastic.call("alloc 1000")):
        assert elastic.program.call(f"retainhandle {address}").code == INVALID_VALUE
    assert elastic.page.read_fixed(0) == ALL - 2 * MIB


def test_a_handle_of_the_older_ipc_is_refused_with_the_option_that_helps(elastic: Elastic) -> None:
    address = elastic.call(f"alloc {10 * MIB}")
    assert elastic.program.call(f"ipcget {address}").code == NOT_SUPPORTED
    assert elastic.program.call(f"ipcget {elastic.call('alloc 1000')}").code == SUCCESS
    [line] = elastic.program.end()
    assert line.endswith("Start the container with suspend=no.\n")
