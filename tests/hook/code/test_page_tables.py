"""The device's tables of what is mapped, which no call names, stay within the limit."""

from collections.abc import Callable

import pytest
from daemon import Daemon
from grown import CONTEXT, seen, usage
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from scripted_session import GIB, MIB

Join = Callable[..., Program]
STEP = 8 * MIB
"""So much may come unmeasured."""
APART = 512 * MIB


def full(daemon: Daemon, join: Join, left: int) -> Program:
    """A program that has all but so many bytes of its limit."""
    program = join(daemon.container("a", memory="2g"))
    assert program.call(f"alloc {2 * GIB - CONTEXT - left}").code == SUCCESS
    return program


def test_pages_that_are_registered_apart_end_at_the_limit(daemon: Daemon, join: Join) -> None:
    program = full(daemon, join, 16 * MIB)
    registered = program.call(f"registertimes {2 * MIB} 20000")
    assert registered.code == OUT_OF_MEMORY
    assert 16 * MIB <= registered.number * 4096 <= 16 * MIB + STEP
    assert usage(daemon) == 2 * GIB
    assert program.call(f"alloc {2 * MIB}").code == OUT_OF_MEMORY


def test_memory_that_is_mapped_many_times_ends_at_the_limit(daemon: Daemon, join: Join) -> None:
    program = full(daemon, join, 18 * MIB)
    handle = program.call(f"create {2 * MIB} 1 0").number
    address = program.call(f"reserve {20000 * APART}").number
    mapped = program.call(f"maptimes {handle} {address} {APART} 20000")
    assert mapped.code == OUT_OF_MEMORY
    assert 16 * MIB <= mapped.number * 4096 <= 16 * MIB + STEP
    assert usage(daemon) == 2 * GIB


@pytest.mark.parametrize("call", ["pinned", "pinned2"])
def test_pinned_memory_is_measured_and_given_up_where_its_tables_cannot_be_had(
    daemon: Daemon, join: Join, call: str
) -> None:
    program = full(daemon, join, 12 * MIB)
    assert program.call(f"{call} {8 * GIB}").code == OUT_OF_MEMORY
    assert usage(daemon) == 2 * GIB - 12 * MIB
    seen(daemon, 2 * GIB - 12 * MIB)
    pinned = program.call(f"{call} {5 * GIB}")
    assert pinned.code == SUCCESS
    assert usage(daemon) == 2 * GIB - 2 * MIB
    seen(daemon, 2 * GIB - 2 * MIB)
    assert program.call(f"unpin {pinned.number}").code == SUCCESS
    assert program.call(f"alloc {12 * MIB}").code == SUCCESS


def test_small_pieces_of_pinned_memory_take_nothing(daemon: Daemon, join: Join) -> None:
    program = full(daemon, join, 0)
    for _piece in range(100):
        assert program.call("pinned 65536").code == SUCCESS
    assert usage(daemon) == 2 * GIB


def test_what_is_unpinned_is_given_back_at_once(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    pinned = program.call(f"pinned {16 * GIB}")
    assert usage(daemon) == CONTEXT + 32 * MIB
    assert program.call(f"unpin {pinned.number}").code == SUCCESS
    assert usage(daemon) == CONTEXT


def test_what_is_unmapped_counts_as_gone(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    handle = program.call(f"create {2 * MIB} 1 0").number
    address = program.call(f"reserve {80 * MIB}").number
    pinned = program.call(f"pinned {4 * GIB - 64 * MIB}").number
    assert program.call(f"maptimes {handle} {address} {2 * MIB} 40").number == 40
    assert usage(daemon) == CONTEXT + 8 * MIB
    assert program.call(f"unpin {pinned}").code == SUCCESS
    assert usage(daemon) == CONTEXT + 8 * MIB
    assert program.call(f"unmap {address} {80 * MIB}").code == SUCCESS
    assert usage(daemon) == CONTEXT + 2 * MIB


def test_a_full_program_pins_and_unpins_as_often_as_it_likes(daemon: Daemon, join: Join) -> None:
    program = full(daemon, join, 0)
    for _time in range(8):
        pinned = program.call(f"pinned {2 * GIB}")
        assert pinned.code == SUCCESS
        assert program.call(f"unpin {pinned.number}").code == SUCCESS


def test_what_was_refused_does_not_refuse_what_is_small(daemon: Daemon, join: Join) -> None:
    program = full(daemon, join, 0)
    assert program.call(f"pinned {2 * GIB}").code == SUCCESS
    assert program.call(f"pinned {2 * GIB}").code == OUT_OF_MEMORY
    for _time in range(3):
        assert program.call("pinned 65536").code == SUCCESS
