"""The driver's own code for kernels (printf, assert, malloc, launches) is charged before it is there."""

import itertools
from collections.abc import Callable

import pytest
from daemon import Daemon, wait_until
from grown import CONTEXT, seen, usage
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from scripted_session import GIB, MIB

Join = Callable[..., Program]
LAUNCH, PRINT, ASSERT, MALLOC, FREE, RESEMBLING, ENDING = (1 << bit for bit in range(7))
"""What kernels call, for the command `cubin`."""
TAKEN = {LAUNCH: 98 * MIB, PRINT: 64 * MIB, ASSERT: 92 * MIB, MALLOC: 138 * MIB, FREE: 138 * MIB}
"""What a context takes with the first code that calls it, and it alone (H200)."""
ALL = 160 * MIB
SPARE = 2 * MIB
"""What is charged too much until the code is there."""
MODULE, LIBRARY, FAT_LIBRARY, FILE, PTX_MODULE, PTX_LIBRARY = range(6)
LIBRARIES = {LIBRARY, FAT_LIBRARY, PTX_LIBRARY}
ORDERS = [*itertools.permutations((LAUNCH, PRINT, ASSERT, MALLOC)), (FREE, MALLOC), (PRINT, FREE, LAUNCH)]


def loaded(program: Program, calls: int, form: int = MODULE) -> int:
    answer = program.call(f"cubin 0 {form} {calls}")
    assert answer.code == SUCCESS
    return answer.number


def used(program: Program, calls: int, form: int = MODULE) -> int:
    """Load such code and launch a kernel of it; return what holds it."""
    handle = loaded(program, calls, form)
    kernel = program.call(f"{'kernel' if form in LIBRARIES else 'function'} {handle}").number
    assert program.call(f"launchkernel {kernel} 0 0").code == SUCCESS
    return handle


@pytest.mark.parametrize("calls", TAKEN)
@pytest.mark.parametrize("form", [MODULE, FILE, PTX_MODULE])
def test_a_module_is_refused_before_where_it_cannot_be_had(daemon: Daemon, join: Join, form: int, calls: int) -> None:
    program = join(daemon.container("a", memory=str(CONTEXT + TAKEN[calls] - MIB)))
    assert program.call(f"cubin 0 {form} {calls}").code == OUT_OF_MEMORY
    assert usage(daemon) == CONTEXT
    seen(daemon, CONTEXT)
    assert program.call(f"alloc {62 * MIB}").code == SUCCESS


@pytest.mark.parametrize("calls", TAKEN)
@pytest.mark.parametrize("form", [LIBRARY, FAT_LIBRARY, PTX_LIBRARY])
def test_a_library_is_refused_before_its_first_use(daemon: Daemon, join: Join, form: int, calls: int) -> None:
    program = join(daemon.container("a", memory=str(CONTEXT + TAKEN[calls] - MIB)))
    library = loaded(program, calls, form)
    assert usage(daemon) == CONTEXT
    for use in ("kernel", "kernels", "variable"):
        assert program.call(f"{use} {library}").code == OUT_OF_MEMORY
    assert usage(daemon) == CONTEXT
    seen(daemon, CONTEXT)


@pytest.mark.parametrize("form", range(6))
def test_names_that_only_resemble_cost_nothing(daemon: Daemon, join: Join, form: int) -> None:
    program = join(daemon.container("a", memory=str(CONTEXT)))
    used(program, RESEMBLING, form)
    assert usage(daemon) == CONTEXT
    seen(daemon, CONTEXT)


@pytest.mark.parametrize("calls", TAKEN)
@pytest.mark.parametrize("form", range(6))
def test_it_is_charged_once_and_stays_with_its_context(daemon: Daemon, join: Join, form: int, calls: int) -> None:
    program = join(daemon.container("a", memory=str(CONTEXT + TAKEN[calls] + SPARE)))
    for _time in range(3):
        handle = used(program, calls, form)
        assert usage(daemon) == CONTEXT + TAKEN[calls]
        seen(daemon, CONTEXT + TAKEN[calls])
        assert program.call(f"{'unloadlibrary' if form in LIBRARIES else 'unload'} {handle}").code == SUCCESS
    assert usage(daemon) == CONTEXT + TAKEN[calls]
    assert program.call("release 0").code == SUCCESS
    assert usage(daemon) == 0


@pytest.mark.parametrize("form", [MODULE, LIBRARY])
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "-".join(map(str, order)))
def test_what_they_share_is_charged_once_in_any_order(
    daemon: Daemon, join: Join, order: tuple[int, ...], form: int
) -> None:
    """With room for all of it and no more, none is refused, and the driver never counts more than is charged."""
    together = ALL if LAUNCH in order else TAKEN[MALLOC]
    program = join(daemon.container("a", memory=str(CONTEXT + together + SPARE)))
    for calls in order:
        used(program, calls, form)
        seen(daemon, usage(daemon))
    assert usage(daemon) == CONTEXT + together
    seen(daemon, CONTEXT + together)


@pytest.mark.parametrize("order", ORDERS[:-2], ids=lambda order: "-".join(map(str, order)))
def test_each_is_refused_where_its_part_cannot_be_had(daemon: Daemon, join: Join, order: tuple[int, ...]) -> None:
    program = join(daemon.container("a", memory="4g"))
    for calls in order[:-1]:
        used(program, calls, MODULE)
    before = usage(daemon)
    used(program, order[-1], MODULE)
    lacking = usage(daemon) - before
    other = join(daemon.container("b", memory=str(before + max(0, lacking - MIB))))
    for calls in order[:-1]:
        used(other, calls, MODULE)
    assert usage(daemon, "b") == before
    assert other.call(f"cubin 0 {MODULE} {order[-1]}").code == (OUT_OF_MEMORY if lacking else SUCCESS)
    assert usage(daemon, "b") == before
    seen(daemon, before, "b")


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "-".join(map(str, order)))
def test_libraries_are_used_in_another_order_than_promised(daemon: Daemon, join: Join, order: tuple[int, ...]) -> None:
    """What is promised for several is enough for each of them, whichever comes first, and nothing else is left."""
    program = join(daemon.container("a", memory="4g"))
    kernels = [program.call(f"kernel {loaded(program, calls, LIBRARY)}").number for calls in order]
    promised = usage(daemon)
    assert program.call(f"alloc {4 * GIB - promised}").code == SUCCESS
    for kernel in reversed(kernels):
        assert program.call(f"launchkernel {kernel} 0 0").code == SUCCESS
        assert usage(daemon) <= 4 * GIB
    assert usage(daemon) == 4 * GIB - SPARE
    seen(daemon, 4 * GIB - SPARE)


def test_one_library_of_two_gives_back_its_part_unused(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    printing, allocating = loaded(program, PRINT, LIBRARY), loaded(program, MALLOC, LIBRARY)
    kernel = program.call(f"kernel {printing}").number
    assert program.call(f"kernel {allocating}").code == SUCCESS
    assert usage(daemon) == CONTEXT + 140 * MIB + SPARE
    assert program.call(f"launchkernel {kernel} 0 0").code == SUCCESS
    assert program.call(f"unloadlibrary {allocating}").code == SUCCESS
    assert program.call(f"unloadlibrary {printing}").code == SUCCESS
    assert usage(daemon) == CONTEXT + TAKEN[PRINT]
    seen(daemon, CONTEXT + TAKEN[PRINT])
    used(program, MALLOC, MODULE)
    assert usage(daemon) == CONTEXT + 140 * MIB
    seen(daemon, CONTEXT + 140 * MIB)


def test_a_second_context_takes_it_again(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory=str(2 * (CONTEXT + TAKEN[MALLOC]) + SPARE)))
    used(program, MALLOC, MODULE)
    assert program.call("create2 0").code == SUCCESS
    for form in (MODULE, LIBRARY):
        used(program, MALLOC, form)
        assert usage(daemon) == 2 * (CONTEXT + TAKEN[MALLOC])
        seen(daemon, 2 * (CONTEXT + TAKEN[MALLOC]))


def test_it_is_promised_again_to_a_context_that_began_again(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory=str(CONTEXT + TAKEN[MALLOC] + SPARE)))
    for _life in range(3):
        used(program, MALLOC, MODULE)
        assert usage(daemon) == CONTEXT + TAKEN[MALLOC]
        assert program.call("release 0").code == SUCCESS
        assert usage(daemon) == 0
        assert program.call(f"use {program.call('retain 0').number}").code == SUCCESS


def test_other_growth_does_not_keep_what_is_promised(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    kernel = program.call(f"kernel {loaded(program, MALLOC, LIBRARY)}").number
    assert program.call(f"module {64 * MIB} 0").code == SUCCESS  # its size cannot be read before
    assert usage(daemon) == CONTEXT + TAKEN[MALLOC] + SPARE + 64 * MIB
    assert program.call(f"alloc {2 * GIB - usage(daemon)}").code == SUCCESS
    assert program.call(f"launchkernel {kernel} 0 0").code == SUCCESS
    seen(daemon, 2 * GIB - SPARE)


@pytest.mark.parametrize("form", [MODULE, LIBRARY, FAT_LIBRARY, FILE])
def test_a_name_that_only_ends_so_is_not_taken_for_the_code(daemon: Daemon, join: Join, form: int) -> None:
    program = join(daemon.container("a", memory=str(CONTEXT + TAKEN[MALLOC] + SPARE)))
    used(program, ENDING, form)
    assert usage(daemon) == CONTEXT
    assert program.call(f"alloc {4 * MIB}").code == SUCCESS
    assert program.call(f"cubin 0 {MODULE} {MALLOC}").code == OUT_OF_MEMORY
    assert usage(daemon) == CONTEXT + 4 * MIB
    seen(daemon, CONTEXT + 4 * MIB)


def test_a_name_that_only_ends_so_leaves_what_other_code_was_promised(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    kernel = program.call(f"kernel {loaded(program, MALLOC, LIBRARY)}").number
    used(program, ENDING)
    assert usage(daemon) == CONTEXT + TAKEN[MALLOC] + SPARE
    assert program.call(f"alloc {2 * GIB - usage(daemon)}").code == SUCCESS
    assert program.call(f"launchkernel {kernel} 0 0").code == SUCCESS
    seen(daemon, 2 * GIB - SPARE)


def test_a_context_that_ends_while_its_load_is_paused_leaves_nothing_charged(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="12g"))
    ended = program.call("create2 0").number
    assert program.call(f"use {program.call('retain 0', 1).number}", 1).code == SUCCESS
    holder = join(daemon.container("b", memory=str(15 * GIB - 100 * MIB)))
    held = holder.call(f"alloc {13 * GIB}").number
    program.begin(f"cubin 0 {MODULE} {MALLOC}")
    wait_until(lambda: len(daemon.state("a")["waiting"]) == 1, "the load is paused")
    assert program.call(f"destroy {ended}", 1).code == SUCCESS
    assert holder.call(f"free {held}").code == SUCCESS
    assert program.result().code != SUCCESS
    assert usage(daemon) == CONTEXT
