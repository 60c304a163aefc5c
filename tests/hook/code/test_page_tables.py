"""The device's tables of what is mapped, which the driver counts for no process, stay within the limit."""

from collections.abc import Callable

import pytest
from daemon import Daemon, wait_until
from grown import CONTEXT, seen, usage
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, open_session, row

from convgpu.protocol.messages import Allocate, Context, ContextSize, Rejected
from convgpu.protocol.wire import Reason

Join = Callable[..., Program]
Start = Callable[..., Program]
STEP = 8 * MIB
"""They are charged in such steps: less than that is not."""
TABLE = 4096
APART = 512 * MIB
"""So much lies under one table, where pages are large."""
HOST = 2
SPARSE = "32768 32768 0 32 4 64"
"""A sparse array of 16 GiB, which has 2 MiB of tables."""


def full(daemon: Daemon, join: Join, left: int) -> Program:
    """A program that has all but so many bytes of its limit."""
    program = join(daemon.container("a", memory="2g"))
    assert program.call(f"alloc {2 * GIB - CONTEXT - left}").code == SUCCESS
    return program


def test_pages_that_are_registered_apart_end_at_the_limit(daemon: Daemon, join: Join) -> None:
    program = full(daemon, join, 2 * STEP)
    registered = program.call(f"registertimes {2 * MIB} 20000")
    assert registered.code == OUT_OF_MEMORY
    assert 2 * STEP < registered.number * TABLE < 3 * STEP
    assert usage(daemon) == 2 * GIB
    seen(daemon, 2 * GIB - 2 * STEP)
    assert program.call(f"alloc {2 * MIB}").code == OUT_OF_MEMORY


def test_memory_that_is_mapped_many_times_ends_at_the_limit(daemon: Daemon, join: Join) -> None:
    program = full(daemon, join, 2 * STEP + 2 * MIB)
    handle = program.call(f"create {2 * MIB} 1 0").number
    address = program.call(f"reserve {20000 * APART}").number
    mapped = program.call(f"maptimes {handle} {address} {APART} 20000")
    assert mapped.code == OUT_OF_MEMORY
    assert mapped.number * TABLE == 3 * STEP - TABLE
    assert usage(daemon) == 2 * GIB


def test_pages_beside_each_other_share_a_table(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    assert program.call(f"registertimes {MIB} 3800").code == SUCCESS
    assert usage(daemon) == CONTEXT
    assert program.call(f"registertimes {2 * MIB} 3800").code == SUCCESS
    assert usage(daemon) == CONTEXT + 2 * STEP


def test_mappings_beside_each_other_share_a_table(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    handle = program.call(f"create {2 * MIB} 1 0").number
    address = program.call(f"reserve {3000 * 2 * MIB}").number
    assert program.call(f"maptimes {handle} {address} {2 * MIB} 3000").code == SUCCESS
    assert usage(daemon) == CONTEXT + 2 * MIB


def test_mapped_pieces_of_the_host_have_small_pages(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    handle = program.call(f"create {2 * MIB} {HOST} 0").number
    address = program.call(f"reserve {3000 * 2 * MIB}").number
    assert program.call(f"maptimes {handle} {address} {2 * MIB} 3000").code == SUCCESS
    assert usage(daemon) == CONTEXT + STEP
    assert program.call(f"unmap {address} {1500 * 2 * MIB}").code == SUCCESS
    assert usage(daemon) == CONTEXT


def test_pools_of_the_host_end_at_the_limit(daemon: Daemon, join: Join) -> None:
    program = full(daemon, join, STEP)
    pool = program.call(f"newpool {HOST} 0 0").number
    first = program.call(f"frompool {5 * GIB} {pool} 0")
    assert first.code == SUCCESS
    assert usage(daemon) == 2 * GIB
    assert program.call(f"frompool {5 * GIB} {pool} 0").code == OUT_OF_MEMORY
    assert program.call(f"frompool {2 * GIB} {pool} 0").code == SUCCESS
    assert program.call(f"freeasync {first.number} 0").code == SUCCESS
    assert program.call("syncall").code == SUCCESS
    assert usage(daemon) == 2 * GIB - STEP
    assert program.call(f"destroypool {pool}").code == SUCCESS


@pytest.mark.parametrize("call", ["pinned", "pinned2"])
def test_pinned_memory_is_given_up_where_its_tables_cannot_be_had(daemon: Daemon, join: Join, call: str) -> None:
    program = full(daemon, join, STEP)
    assert program.call(f"{call} {8 * GIB}").code == OUT_OF_MEMORY
    assert usage(daemon) == 2 * GIB - STEP
    pinned = program.call(f"{call} {5 * GIB}")
    assert pinned.code == SUCCESS
    assert usage(daemon) == 2 * GIB
    seen(daemon, 2 * GIB - STEP)
    assert program.call(f"unpin {pinned.number}").code == SUCCESS
    assert program.call(f"alloc {STEP}").code == SUCCESS


def test_small_pieces_of_pinned_memory_take_nothing(daemon: Daemon, join: Join) -> None:
    program = full(daemon, join, 0)
    for _piece in range(100):
        assert program.call("pinned 65536").code == SUCCESS
    assert usage(daemon) == 2 * GIB


def test_what_is_unpinned_is_given_back_at_once(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    pinned = program.call(f"pinned {17 * GIB}")
    assert usage(daemon) == CONTEXT + 4 * STEP
    assert program.call(f"unpin {pinned.number}").code == SUCCESS
    assert usage(daemon) == CONTEXT


def test_what_is_unmapped_is_given_back_at_once(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    handle = program.call(f"create {2 * MIB} 1 0").number
    address = program.call(f"reserve {2100 * APART}").number
    assert program.call(f"maptimes {handle} {address} {APART} 2100").code == SUCCESS
    assert usage(daemon) == CONTEXT + 2 * MIB + STEP
    assert program.call(f"unmap {address} {100 * APART}").code == SUCCESS
    assert usage(daemon) == CONTEXT + 2 * MIB


def test_a_full_program_pins_and_unpins_as_often_as_it_likes(daemon: Daemon, join: Join) -> None:
    program = full(daemon, join, 0)
    for _time in range(8):
        pinned = program.call(f"pinned {3 * GIB}")
        assert pinned.code == SUCCESS
        assert program.call(f"unpin {pinned.number}").code == SUCCESS


def test_what_was_refused_does_not_refuse_what_is_small(daemon: Daemon, join: Join) -> None:
    program = full(daemon, join, 0)
    assert program.call(f"pinned {3 * GIB}").code == SUCCESS
    assert program.call(f"pinned {2 * GIB}").code == OUT_OF_MEMORY
    for _time in range(3):
        assert program.call("pinned 65536").code == SUCCESS


def test_sparse_arrays_end_at_the_limit(daemon: Daemon, join: Join) -> None:
    program = full(daemon, join, STEP)
    made = []
    while (array := program.call(f"solid {SPARSE}")).code == SUCCESS:
        made.append(array.number)
    assert array.code == OUT_OF_MEMORY
    assert len(made) == 2 * STEP // (2 * MIB + TABLE)
    assert usage(daemon) == 2 * GIB
    for number in made:
        assert program.call(f"destroyarray {number:#x}").code == SUCCESS
    assert usage(daemon) == 2 * GIB - STEP


def test_tables_go_with_what_dies_with_its_context(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="4g"))
    context = program.call("create2 0").number
    before = usage(daemon)
    assert program.call(f"pinned {9 * GIB}").code == SUCCESS
    for _array in range(6):
        assert program.call(f"solid {SPARSE}").code == SUCCESS
    assert usage(daemon) == before + 3 * STEP
    assert program.call(f"destroy {context:#x}").code == SUCCESS
    wait_until(lambda: usage(daemon) == CONTEXT, "all of the context has been given back")


def test_what_cannot_be_mapped_takes_no_tables_from_the_others(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="4g"))
    large = program.call(f"create {2 * GIB} 1 0").number
    handle = program.call(f"create {2 * MIB} 1 0").number
    address = program.call(f"reserve {2100 * APART}").number // APART * APART + APART
    tables = STEP // TABLE
    assert program.call(f"alloc {2 * GIB - CONTEXT - 2 * MIB}").code == SUCCESS
    assert program.call(f"maptimes {handle} {address + 4 * MIB} {APART} {tables - 2}").code == SUCCESS
    end = address + (tables - 2) * APART
    for _time in range(3):
        assert program.call(f"map {end - 2 * MIB} {2 * GIB} 0 {large}").code == OUT_OF_MEMORY
    assert program.call(f"maptimes {handle} {end} {APART} 3").number == 1


def test_what_waits_for_its_tables_holds_up_nothing_small(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, row(2 * GIB), headroom=STEP)
    session.program.begin(f"pinned {8 * GIB}")
    request, message = session.peer.receive()
    assert message == Allocate(0, 2 * STEP, "cuMemHostAlloc")
    assert session.program.call("join", thread=1).code == SUCCESS
    small = session.program.call("pinned 65536", thread=1)
    assert small.code == SUCCESS
    assert session.program.call(f"unpin {small.number}", thread=1).code == SUCCESS
    session.peer.send(Rejected(Reason.LIMIT, 2 * GIB, 2 * GIB), request)
    assert session.program.result().code == OUT_OF_MEMORY


def test_the_first_context_gives_back_what_other_devices_were_charged(
    start: Start, scheduler: ScriptedScheduler
) -> None:
    rows = row(2 * GIB), row(2 * GIB, device=1)
    session = open_session(start(), scheduler, *rows, headroom=GIB, context=False)
    session.page.give(1, GIB)
    handle = session.program.call(f"create {2 * MIB} 1 0").number
    address = session.program.call(f"reserve {2100 * APART}").number
    assert session.program.call(f"maptimes {handle} {address} {APART} 2100").code == SUCCESS
    assert [session.page.read(0), session.page.read(1)] == [GIB - 2 * MIB - STEP, GIB - STEP]
    session.program.begin("retain 0")
    request, message = session.peer.receive()
    assert message == Context(0, 0, 2 * MIB)
    session.peer.send(ContextSize(0), request)
    assert session.program.result().code == SUCCESS
    assert [session.page.read(0), session.page.read(1)] == [GIB - 2 * MIB - STEP, GIB]
