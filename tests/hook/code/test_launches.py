"""The first launch of a function is looked at: what it takes is charged before it runs, or it does not run."""

from collections.abc import Callable

import pytest
from daemon import Daemon, wait_until
from grown import CONTEXT, LOCAL, STACKS, function_of, seen, usage
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from scripted_session import GIB, MIB

Join = Callable[..., Program]
KERNEL = 2
"""The form of a graph's node that names a kernel of a library."""
FORMS = range(6)
"""cuLaunchKernel, cuLaunchKernelEx, cuLaunchCooperativeKernel, each with its per-thread twin."""


@pytest.mark.parametrize("library", [False, True])
def test_a_kernel_whose_stacks_pass_the_limit_does_not_run(daemon: Daemon, join: Join, library: bool) -> None:
    program = join(daemon.container("a", memory="2g"))
    function = function_of(program, f"0 0 {LOCAL}", library)
    for form in [*FORMS, *FORMS]:
        assert program.call(f"launchkernel {function} {form} 0").code == OUT_OF_MEMORY
    assert usage(daemon) == CONTEXT
    seen(daemon, CONTEXT)
    assert program.call(f"alloc {GIB}").code == SUCCESS


def test_what_a_launch_takes_is_charged_once(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="4g"))
    small = function_of(program, "0 0 5120")
    large = function_of(program, "0 0 9216", library=True)
    for function in (small, large, small, large):
        for form in FORMS:
            assert program.call(f"launchkernel {function} {form} 0").code == SUCCESS
    assert usage(daemon) == CONTEXT + 8192 * STACKS
    seen(daemon, CONTEXT + 8192 * STACKS)
    assert program.call("release 0").code == SUCCESS
    assert usage(daemon) == 0


def test_a_kernel_in_a_graph_is_refused_when_it_is_recorded(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    graph = program.call("graph").number
    for form in range(4):
        function = function_of(program, f"0 0 {LOCAL}", library=form == KERNEL)
        assert program.call(f"addkernel {graph} {function} {form}").code == OUT_OF_MEMORY
        fitting = function_of(program, "0 0 2048", library=form == KERNEL)
        assert program.call(f"addkernel {graph} {fitting} {form}").code == SUCCESS
        assert usage(daemon) == CONTEXT + 1024 * STACKS
    assert program.call(f"launch {program.call(f'instantiate {graph} 3').number} 0").code == SUCCESS
    assert program.call(f"alloc {GIB}").code == SUCCESS  # measured by the way: what was promised is not charged again
    assert usage(daemon) == CONTEXT + GIB + 1024 * STACKS


def test_a_captured_kernel_is_charged_when_it_is_captured(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    stream = program.call("stream").number
    large, small = function_of(program, f"0 0 {LOCAL}"), function_of(program, "0 0 2048")
    assert program.call(f"capture {stream}").code == SUCCESS
    assert program.call(f"launchkernel {large} 0 {stream}").code == OUT_OF_MEMORY
    assert program.call(f"launchkernel {small} 0 {stream}").code == SUCCESS
    graph = program.call(f"endcapture {stream}").number
    assert usage(daemon) == CONTEXT + 1024 * STACKS
    assert program.call(f"launch {program.call(f'instantiate {graph} 3').number} 0").code == SUCCESS
    seen(daemon, CONTEXT + 1024 * STACKS)


def test_a_second_context_has_stacks_of_its_own(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="4g"))
    first = function_of(program, "0 0 5120")
    assert program.call(f"launchkernel {first} 0 0").code == SUCCESS
    context = program.call("create3 0").number
    assert program.call(f"use {context}").code == SUCCESS
    second = function_of(program, "0 0 5120", library=True)
    assert program.call(f"launchkernel {second} 0 0").code == SUCCESS
    assert usage(daemon) == 2 * (CONTEXT + 4096 * STACKS)
    assert program.call(f"destroy {context}").code == SUCCESS
    assert usage(daemon) == CONTEXT + 4096 * STACKS


def test_a_handle_that_comes_again_is_looked_at_again(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    for local, expected in ((0, SUCCESS), (LOCAL, OUT_OF_MEMORY)):
        module = program.call(f"module 0 0 {local}").number
        function = program.call(f"function {module}").number
        assert program.call(f"launchkernel {function} 0 0").code == expected
        assert program.call(f"unload {module}").code == SUCCESS


def test_a_function_stays_its_modules_when_another_list_is_written_over_a_part_of_the_handles(
    daemon: Daemon, join: Join
) -> None:
    program = join(daemon.container("a", memory="2g"))
    assert program.call(f"launchkernel {function_of(program, '0 0 0')} 0 0").code == SUCCESS  # later ones pass at once
    module, library = program.call(f"module 0 0 {LOCAL}").number, program.call("library 0 0 0").number
    second = program.call(f"functions {module} 1").number
    assert program.call(f"kernels {library} 0").number != second
    assert program.call(f"unloadlibrary {library}").code == SUCCESS
    assert program.call(f"launchkernel {second} 0 0").code == OUT_OF_MEMORY


def test_stacks_that_others_hold_are_waited_for(daemon: Daemon, join: Join) -> None:
    holder = join(daemon.container("b", memory="14g"))
    held = holder.call(f"alloc {13 * GIB}").number
    program = join(daemon.container("a", memory="4g"))
    program.begin(f"launchkernel {function_of(program, '0 0 9216')} 0 0")
    wait_until(lambda: daemon.state("a")["waiting"], "the launch is paused")
    assert holder.call(f"free {held}").code == SUCCESS
    assert program.result().code == SUCCESS
    assert usage(daemon) == CONTEXT + 8192 * STACKS


def test_code_that_passes_a_full_limit_is_not_launched(daemon: Daemon, join: Join) -> None:
    """It is loaded before, and stays until its module is unloaded: owed, and refused."""
    program = join(daemon.container("a", memory="2g"))
    module = program.call(f"module 0 {92 * MIB}").number
    function = program.call(f"function {module}").number
    assert program.call(f"alloc {2 * GIB - CONTEXT}").code == SUCCESS
    assert program.call(f"launchkernel {function} 0 0").code == OUT_OF_MEMORY
    seen(daemon, 2 * GIB + 92 * MIB)
    assert program.call(f"unload {module}").code == SUCCESS
    seen(daemon, 2 * GIB)
