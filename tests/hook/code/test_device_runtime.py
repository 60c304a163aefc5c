"""The device runtime, by which kernels launch kernels, is charged before the code that calls it is there."""

from collections.abc import Callable

import pytest
from daemon import Daemon, wait_until
from grown import CONTEXT, seen, usage
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from scripted_session import GIB, MIB

Join = Callable[..., Program]
RUNTIME = 98 * MIB
"""What the simulated driver takes, with room for 2,048 pending launches."""
PROMISED = 100 * MIB
"""What is charged for it until it is there."""
EACH = 9399
MANY = 100_000
MODULE, LIBRARY, FAT_LIBRARY, FILE, PTX_MODULE, PTX_LIBRARY = range(6)


def launches(count: int) -> int:
    """Bytes that so many pending launches take beyond the first."""
    return (count * EACH + 2 * MIB - 1) // (2 * MIB) * 2 * MIB - 20 * MIB


def loaded(program: Program, form: int) -> int:
    answer = program.call(f"cubin 0 {form} 1")
    assert answer.code == SUCCESS
    return answer.number


@pytest.mark.parametrize("form", [MODULE, FILE, PTX_MODULE])
def test_a_module_that_calls_it_is_refused_before_where_it_cannot_be_had(daemon: Daemon, join: Join, form: int) -> None:
    program = join(daemon.container("a", memory=str(CONTEXT + RUNTIME - MIB)))
    assert program.call(f"cubin 0 {form} 1").code == OUT_OF_MEMORY
    assert usage(daemon) == CONTEXT
    seen(daemon, CONTEXT)
    assert program.call(f"alloc {64 * MIB}").code == SUCCESS


@pytest.mark.parametrize("use", ["kernel", "kernels", "variable"])
@pytest.mark.parametrize("form", [LIBRARY, FAT_LIBRARY, PTX_LIBRARY])
def test_a_library_that_calls_it_is_refused_at_its_first_use(daemon: Daemon, join: Join, form: int, use: str) -> None:
    program = join(daemon.container("a", memory=str(CONTEXT + RUNTIME - MIB)))
    library = loaded(program, form)
    assert usage(daemon) == CONTEXT
    assert program.call(f"{use} {library}").code == OUT_OF_MEMORY
    assert usage(daemon) == CONTEXT
    seen(daemon, CONTEXT)


@pytest.mark.parametrize("use", ["launchkernel {kernel} 0 0", "load {kernel}", "addkernel {graph} {kernel} 2"])
def test_a_library_is_refused_at_its_first_use_in_another_context(daemon: Daemon, join: Join, use: str) -> None:
    program = join(daemon.container("a", memory="4g"))
    kernel, graph = program.call(f"kernel {loaded(program, LIBRARY)}").number, program.call("graph").number
    assert program.call(f"launchkernel {kernel} 0 0").code == SUCCESS
    assert program.call("create2 0").code == SUCCESS
    left = 4 * GIB - 2 * CONTEXT - RUNTIME
    assert program.call(f"alloc {left - RUNTIME + 2 * MIB}").code == SUCCESS
    assert program.call(use.format(kernel=kernel, graph=graph)).code == OUT_OF_MEMORY
    assert usage(daemon) == 4 * GIB - RUNTIME + 2 * MIB


@pytest.mark.parametrize("form", range(6))
def test_it_is_charged_once_and_stays_with_its_context(daemon: Daemon, join: Join, form: int) -> None:
    program = join(daemon.container("a", memory="1g"))
    for _time in range(3):
        handle = loaded(program, form)
        library = form in {LIBRARY, FAT_LIBRARY, PTX_LIBRARY}
        function = program.call(f"{'kernel' if library else 'function'} {handle}").number
        assert program.call(f"launchkernel {function} 0 0").code == SUCCESS
        assert usage(daemon) == CONTEXT + RUNTIME
        seen(daemon, CONTEXT + RUNTIME)
        assert program.call(f"{'unloadlibrary' if library else 'unload'} {handle}").code == SUCCESS
    assert usage(daemon) == CONTEXT + RUNTIME
    assert program.call("release 0").code == SUCCESS
    assert usage(daemon) == 0


def test_pending_launches_that_cannot_be_had_are_refused_at_the_limit(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    assert program.call("pending 500000").code == OUT_OF_MEMORY
    loaded(program, MODULE)
    assert usage(daemon) == CONTEXT + RUNTIME
    assert program.call("pending 500000").code == OUT_OF_MEMORY
    assert usage(daemon) == CONTEXT + RUNTIME
    seen(daemon, CONTEXT + RUNTIME)


def test_pending_launches_are_charged_before_the_code_comes(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    assert program.call(f"pending {MANY}").code == SUCCESS
    promised = usage(daemon) - CONTEXT
    assert launches(MANY) <= promised < launches(MANY) * 1.05
    seen(daemon, CONTEXT)
    loaded(program, MODULE)
    assert usage(daemon) >= CONTEXT + RUNTIME + launches(MANY)
    seen(daemon, CONTEXT + RUNTIME + launches(MANY))
    assert program.call("pending 2048").code == SUCCESS
    assert usage(daemon) == CONTEXT + RUNTIME
    seen(daemon, CONTEXT + RUNTIME)


def test_pending_launches_of_code_that_never_came_are_given_back(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    assert program.call(f"pending {MANY}").code == SUCCESS
    assert program.call("pending 1000").code == SUCCESS
    assert usage(daemon) == CONTEXT


def test_more_than_the_driver_allows_is_charged_as_what_it_allows(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="12g"))
    assert program.call("pending 1000000").code == SUCCESS
    assert launches(599_186) <= usage(daemon) - CONTEXT < 5.6 * GIB
    loaded(program, MODULE)
    seen(daemon, CONTEXT + RUNTIME + launches(599_186))


def test_code_that_could_not_be_loaded_leaves_nothing_promised(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    assert program.call(f"cubin {3 * GIB} {MODULE} 1").code == OUT_OF_MEMORY
    assert usage(daemon) == CONTEXT
    loaded(program, MODULE)
    assert usage(daemon) == CONTEXT + RUNTIME


def test_of_a_library_that_was_not_used_nothing_stays(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    first, second = loaded(program, LIBRARY), loaded(program, LIBRARY)
    assert program.call(f"kernel {first}").code == SUCCESS
    assert program.call(f"unloadlibrary {first}").code == SUCCESS
    assert usage(daemon) == CONTEXT + PROMISED
    assert program.call(f"unloadlibrary {second}").code == SUCCESS
    assert usage(daemon) == CONTEXT


def test_code_that_could_not_be_loaded_leaves_what_others_were_promised(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    assert program.call(f"kernel {loaded(program, LIBRARY)}").code == SUCCESS
    assert program.call(f"cubin {3 * GIB} {MODULE} 1").code == OUT_OF_MEMORY
    assert usage(daemon) == CONTEXT + PROMISED


def test_what_nobody_measures_stays_charged(daemon: Daemon, join: Join) -> None:
    daemon.ail("0 no_figures=1")
    program = join(daemon.container("a", memory="2g"))
    before = usage(daemon)
    loaded(program, MODULE)
    assert program.call(f"cubin {3 * GIB} {MODULE} 1").code == OUT_OF_MEMORY
    assert usage(daemon) == before + PROMISED


def test_what_the_driver_took_before_it_refused_is_charged(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="16g"))
    stranger = join(daemon.container("b", memory="16g"), LD_PRELOAD="")
    assert stranger.call(f"alloc {14 * GIB}").code == SUCCESS
    assert program.call(f"cubin {GIB} {MODULE} 1").code == OUT_OF_MEMORY
    seen(daemon, CONTEXT + RUNTIME)
    assert usage(daemon) == CONTEXT + RUNTIME


def paused(daemon: Daemon, join: Join) -> tuple[Program, int, Program]:
    """Return a program, what it has to free, and one that is paused by that while it loads such a module."""
    holder = join(daemon.container("b", memory="15g"))
    held = holder.call(f"alloc {13 * GIB}").number
    program = join(daemon.container("a", memory="12g"))
    assert program.call(f"alloc {448 * MIB}").code == SUCCESS
    program.begin(f"cubin 0 {MODULE} 1")
    wait_until(lambda: len(daemon.state("a")["waiting"]) == 1, "the load is paused")
    return holder, held, program


def test_it_is_charged_though_others_freed_memory_meanwhile(daemon: Daemon, join: Join) -> None:
    holder, held, program = paused(daemon, join)
    assert holder.call(f"free {held}").code == SUCCESS
    assert program.result().code == SUCCESS
    assert usage(daemon) == CONTEXT + 448 * MIB + RUNTIME
    seen(daemon, CONTEXT + 448 * MIB + RUNTIME)


def test_a_load_that_is_paused_keeps_none_on_another_device(daemon: Daemon, join: Join) -> None:
    holder, held, program = paused(daemon, join)
    assert program.call(f"use {program.call('retain 1', 1).number}", 1).code == SUCCESS
    assert program.call(f"cubin 0 {MODULE} 1", 1).code == SUCCESS
    assert not program.returned()
    assert holder.call(f"free {held}").code == SUCCESS
    assert program.result().code == SUCCESS


def test_pending_launches_can_be_lowered_while_something_is_owed(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    assert program.call(f"pending {MANY}").code == SUCCESS
    loaded(program, MODULE)
    function = program.call(f"function {program.call(f'module 0 {3 * GIB}').number}").number
    assert program.call(f"launchkernel {function} 0 0").code == OUT_OF_MEMORY
    assert program.call("pending 2048").code == SUCCESS
    seen(daemon, CONTEXT + RUNTIME + 3 * GIB)


def test_other_growth_does_not_keep_what_is_promised(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory=str(CONTEXT + 150 * MIB)))
    kernel = program.call(f"kernel {loaded(program, LIBRARY)}").number
    assert usage(daemon) == CONTEXT + PROMISED
    assert program.call(f"module {64 * MIB} 0").code == OUT_OF_MEMORY  # its size cannot be read before
    assert usage(daemon) == CONTEXT + PROMISED
    assert program.call(f"launchkernel {kernel} 0 0").code == SUCCESS
    assert usage(daemon) == CONTEXT + RUNTIME
    seen(daemon, CONTEXT + RUNTIME)


def two_contexts(program: Program, pending: int = 2048) -> tuple[int, int, int]:
    """Promise the runtime to two contexts; return the first, its kernel, and that of the second, which is current."""
    first = program.call("retain 0").number
    assert program.call(f"pending {pending}").code == SUCCESS
    kernel = program.call(f"kernel {loaded(program, LIBRARY)}").number
    assert program.call("create2 0").code == SUCCESS
    assert program.call(f"pending {pending}").code == SUCCESS
    return first, kernel, program.call(f"kernel {loaded(program, LIBRARY)}").number


def test_one_context_does_not_use_up_what_another_was_promised(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="4g"))
    first, kernel, other = two_contexts(program)
    assert program.call(f"launchkernel {other} 0 0").code == SUCCESS
    assert usage(daemon) == 2 * CONTEXT + RUNTIME + PROMISED
    assert program.call(f"alloc {4 * GIB - usage(daemon)}").code == SUCCESS
    assert program.call(f"use {first}").code == SUCCESS
    assert program.call(f"launchkernel {kernel} 0 0").code == SUCCESS
    seen(daemon, 4 * GIB - PROMISED + RUNTIME)


def test_pending_launches_of_one_context_are_not_given_back_by_another(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="4g"))
    first, kernel, other = two_contexts(program, MANY)
    assert program.call(f"launchkernel {other} 0 0").code == SUCCESS
    assert program.call("pending 2048").code == SUCCESS
    assert usage(daemon) >= 2 * (CONTEXT + RUNTIME) + launches(MANY)
    assert program.call(f"alloc {(4 * GIB - usage(daemon)) // (2 * MIB) * 2 * MIB}").code == SUCCESS
    assert program.call(f"use {first}").code == SUCCESS
    assert program.call(f"launchkernel {kernel} 0 0").code == SUCCESS
    assert usage(daemon) <= 4 * GIB


def test_launches_and_the_code_come_within_what_was_promised(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory=str(CONTEXT + PROMISED + (MANY - 2048) * 9600)))
    assert program.call(f"pending {MANY}").code == SUCCESS
    loaded(program, MODULE)
    assert usage(daemon) == CONTEXT + RUNTIME + launches(MANY)
    seen(daemon, CONTEXT + RUNTIME + launches(MANY))


def test_a_launch_for_which_the_card_had_no_room_leaves_it_promised(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    kernel = program.call(f"kernel {loaded(program, LIBRARY)}").number
    stranger = join(daemon.container("b", memory="16g"), LD_PRELOAD="")
    taken = stranger.call(f"alloc {stranger.call('info').numbers[0] - 40 * MIB}").number
    assert program.call(f"launchkernel {kernel} 0 0").code == OUT_OF_MEMORY
    assert usage(daemon) == CONTEXT + PROMISED
    assert stranger.call(f"free {taken}").code == SUCCESS
    assert program.call(f"launchkernel {kernel} 0 0").code == SUCCESS
    assert usage(daemon) == CONTEXT + RUNTIME
