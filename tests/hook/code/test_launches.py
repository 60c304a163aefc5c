"""The first launch of a function is looked at: what it takes is charged before it runs, or it does not run."""

from collections.abc import Callable

import pytest
from daemon import Daemon, wait_until
from grown import CONTEXT, LOCAL, STACKS, function_of, seen, usage
from hooked_program import INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, Program
from scripted_session import GIB, MIB

Join = Callable[..., Program]
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


def test_a_library_goes_from_a_device_that_is_not_current(daemon: Daemon, join: Join) -> None:
    """Its variables stayed charged there until the next measurement, and others waited for them."""
    program = join(daemon.container("a", memory="4g"))
    there = program.call("create3 1").number
    library = program.call(f"cubin {GIB} 5").number
    kernel = program.call(f"kernel {library}").number
    assert program.call(f"launchkernel {kernel} 0 0").code == SUCCESS
    assert program.call(f"alloc {2 * GIB}").code == SUCCESS  # measured by the way
    assert program.call("create3 0").code == SUCCESS
    used = [device["usage"] for device in daemon.state("a")["devices"]]
    assert used[1] >= CONTEXT + 3 * GIB
    assert program.call(f"unloadlibrary {library}").code == SUCCESS
    assert [device["usage"] for device in daemon.state("a")["devices"]] == [2 * CONTEXT, CONTEXT + 2 * GIB]
    assert program.call(f"use {there}").code == SUCCESS
    assert program.call(f"alloc {GIB}").code == SUCCESS


def test_a_library_that_is_loaded_eagerly_is_charged_once_in_each_context(daemon: Daemon, join: Join) -> None:
    """With the first launch in another context, its variables were promised there a second time."""
    program = join(daemon.container("a", memory="4g"), CUDA_MODULE_LOADING="EAGER")
    there = program.call("create3 0").number
    assert program.call(f"cubin {2 * GIB} 5").code == OUT_OF_MEMORY
    assert usage(daemon) == 2 * CONTEXT
    kernel = program.call(f"kernel {program.call(f'cubin {GIB} 5').number}").number
    assert usage(daemon) == 2 * (CONTEXT + GIB)
    for context in (there, program.call("retain 0").number):
        assert program.call(f"use {context}").code == SUCCESS
        assert program.call(f"launchkernel {kernel} 0 0").code == SUCCESS
    assert usage(daemon) == 2 * (CONTEXT + GIB)
    seen(daemon, 2 * (CONTEXT + GIB))


def test_a_kernel_is_not_launched_while_its_code_cannot_be_had(daemon: Daemon, join: Join) -> None:
    """The second launch ran: its code was there, so that nothing was taken any more."""
    program = join(daemon.container("a", memory="2g"))
    function = function_of(program, f"0 {92 * MIB} 0")
    held = program.call(f"alloc {2 * GIB - CONTEXT}").number
    assert [program.call(f"launchkernel {function} 0 0").code for _time in range(3)] == [OUT_OF_MEMORY] * 3
    assert program.call(f"free {held}").code == SUCCESS
    assert program.call(f"launchkernel {function} 0 0").code == SUCCESS


def test_code_that_comes_with_its_function_is_owed_until_it_is_had(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"), CUDA_MODULE_LOADING="LAZY")
    held = program.call(f"alloc {2 * GIB - CONTEXT}").number
    function = function_of(program, f"0 {92 * MIB} 0")
    assert [program.call(f"launchkernel {function} 0 0").code for _time in range(2)] == [OUT_OF_MEMORY] * 2
    assert program.call("module 0 0 0").code == OUT_OF_MEMORY
    assert program.call(f"free {held}").code == SUCCESS
    assert program.call(f"launchkernel {function} 0 0").code == SUCCESS
    assert usage(daemon) == CONTEXT + 92 * MIB


def test_a_smaller_stack_is_had_while_another_context_waits_for_a_larger_one(daemon: Daemon, join: Join) -> None:
    """It may be what the other waits for."""
    holder = join(daemon.container("b", memory="12g"))
    held = holder.call(f"alloc {11 * GIB}").number
    program = join(daemon.container("a", memory="7g"))
    one = program.call("retain 0").number
    assert program.call("stack 9216").code == SUCCESS
    assert program.call("create3 0").code == SUCCESS
    function = function_of(program, "0 0 13312")
    program.begin(f"launchkernel {function} 0 0")
    wait_until(lambda: daemon.state("a")["waiting"], "the launch waits")
    assert program.call(f"use {one}", 1).code == SUCCESS
    assert program.call("stack 1024", 1).code == SUCCESS
    assert holder.call(f"free {held}").code == SUCCESS
    assert program.result().code == SUCCESS


def test_a_launch_that_fails_has_taken_no_stacks(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="6g"))
    function = function_of(program, "0 0 9216")
    assert program.call(f"launchkernel {function} 6 0").code == INVALID_VALUE
    assert usage(daemon) == CONTEXT
    assert program.call(f"launchkernel {function} 0 0").code == SUCCESS
    assert usage(daemon) == CONTEXT + 8192 * STACKS
    # What another kernel had is not taken back with this one.
    smaller = function_of(program, "0 0 4096")
    assert program.call(f"launchkernel {smaller} 6 0").code == INVALID_VALUE
    assert usage(daemon) == CONTEXT + 8192 * STACKS
