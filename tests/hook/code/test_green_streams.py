"""What runs in a green context's streams grows the primary context, as the green one itself does."""

from collections.abc import Callable

from daemon import Daemon
from grown import CONTEXT, STACKS, WORK, function_of, seen, usage
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from scripted_session import GIB, MIB

Join = Callable[..., Program]


def test_stacks_in_its_stream_are_the_primary_contexts(daemon: Daemon, join: Join) -> None:
    """They were charged a second time, and never given back."""
    program = join(daemon.container("a", memory="8g"))
    function = function_of(program, "0 0 9216")
    green = program.call("newgreen 0").number
    assert program.call(f"launchkernel {function} 0 {program.call(f'greenstream {green}').number}").code == SUCCESS
    assert program.call(f"launchkernel {function} 0 0").code == SUCCESS
    assert usage(daemon) == CONTEXT + 8192 * STACKS + WORK
    assert program.call(f"use {program.call(f'fromgreen {green}').number}").code == SUCCESS
    assert program.call("stack 13312").code == SUCCESS
    assert usage(daemon) == CONTEXT + 12288 * STACKS + WORK
    seen(daemon, CONTEXT + 12288 * STACKS + WORK)


def test_memory_in_it_goes_with_the_primary_context(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    green = program.call("newgreen 0").number
    assert program.call(f"use {green}").code == SUCCESS
    assert program.call(f"alloc {GIB}").code == SUCCESS
    assert program.call("release 0").code == SUCCESS
    assert usage(daemon) == CONTEXT + GIB + WORK
    assert program.call(f"destroygreen {green}").code == SUCCESS
    assert usage(daemon) == 0
    seen(daemon, 0)


def test_one_that_cannot_be_had_is_undone(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    held = program.call(f"alloc {2 * GIB - CONTEXT}").number
    assert program.call("newgreen 0").code == OUT_OF_MEMORY
    assert program.call(f"alloc {MIB}").code == OUT_OF_MEMORY
    assert program.call(f"free {held}").code == SUCCESS
    assert program.call("newgreen 0").code == SUCCESS
    assert usage(daemon) == CONTEXT + 2 * WORK
