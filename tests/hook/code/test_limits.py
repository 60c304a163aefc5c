"""Heaps and buffers of printf are charged when their limit is set, though the driver takes them later."""

from collections.abc import Callable

import pytest
from daemon import Daemon, wait_until
from grown import CONTEXT, LOCAL, STACKS, function_of, seen, usage
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from scripted_session import GIB, MIB

Join = Callable[..., Program]
FIRST = {"heap": 8 * MIB, "printf": 8650752}
IMAGE = {"heap": "0 0 0 1", "printf": "0 0 0 0 1"}


@pytest.mark.parametrize("limit", FIRST)
def test_a_limit_that_cannot_be_had_is_refused(daemon: Daemon, join: Join, limit: str) -> None:
    program = join(daemon.container("a", memory="2g"))
    assert program.call(f"{limit} {6 * GIB}").code == OUT_OF_MEMORY
    assert usage(daemon) == CONTEXT
    function = function_of(program, IMAGE[limit])
    assert program.call(f"launchkernel {function} 0 0").code == SUCCESS
    assert usage(daemon) == CONTEXT + FIRST[limit]
    seen(daemon, CONTEXT + FIRST[limit])


@pytest.mark.parametrize("limit", FIRST)
def test_what_is_promised_is_charged_once_and_given_back(daemon: Daemon, join: Join, limit: str) -> None:
    program = join(daemon.container("a", memory="4g"))
    assert program.call(f"{limit} {2 * GIB}").code == SUCCESS
    assert usage(daemon) == CONTEXT + 2 * GIB - FIRST[limit]
    assert program.call(f"{limit} {GIB}").code == SUCCESS
    assert usage(daemon) == CONTEXT + GIB - FIRST[limit]
    assert program.call(f"free {program.call(f'alloc {2 * GIB}').number}").code == SUCCESS  # measured: not given back
    assert usage(daemon) == CONTEXT + GIB - FIRST[limit]
    function = function_of(program, IMAGE[limit])
    assert program.call(f"launchkernel {function} 0 0").code == SUCCESS
    assert usage(daemon) == CONTEXT + GIB
    seen(daemon, CONTEXT + GIB)
    assert program.call("release 0").code == SUCCESS
    assert usage(daemon) == 0


@pytest.mark.parametrize("limit", FIRST)
def test_two_threads_that_set_one_limit_are_charged_for_one(daemon: Daemon, join: Join, limit: str) -> None:
    holder = join(daemon.container("b", memory="15g"))
    held = holder.call(f"alloc {13 * GIB}").number
    program = join(daemon.container("a", memory="12g"))
    assert program.call(f"use {program.call('retain 0').number}", 1).code == SUCCESS
    for thread, size in enumerate((5, 4)):
        program.begin(f"{limit} {size * GIB}", thread)
        wait_until(lambda count=thread + 1: len(daemon.state("a")["waiting"]) == count, "the thread is paused")
    assert holder.call(f"free {held}").code == SUCCESS
    assert [program.result(thread).code for thread in range(2)] == [SUCCESS, SUCCESS]
    assert usage(daemon) in {CONTEXT + size * GIB - FIRST[limit] for size in (4, 5)}
    assert program.call(f"{limit} {2 * GIB}").code == SUCCESS
    assert usage(daemon) == CONTEXT + 2 * GIB - FIRST[limit]


def test_small_growth_does_not_keep_a_large_promise(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="4g"))
    assert program.call(f"heap {2 * GIB}").code == SUCCESS
    assert program.call(f"module {64 * MIB} 0").code == SUCCESS
    assert usage(daemon) == CONTEXT + 2 * GIB - FIRST["heap"] + 64 * MIB
    function = function_of(program, IMAGE["heap"])
    assert program.call(f"launchkernel {function} 0 0").code == SUCCESS
    assert usage(daemon) == CONTEXT + 2 * GIB + 64 * MIB


def test_stacks_by_limit_and_by_launch_are_one(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="4g"))
    function = function_of(program, "0 0 5120")
    assert program.call("stack 3072").code == SUCCESS
    assert program.call(f"launchkernel {function} 0 0").code == SUCCESS
    assert usage(daemon) == CONTEXT + 4096 * STACKS
    assert program.call("stack 5120").code == SUCCESS
    assert program.call("stack 9216").code == SUCCESS
    assert usage(daemon) == CONTEXT + 8192 * STACKS
    assert program.call("stack 1024").code == SUCCESS
    assert usage(daemon) == CONTEXT
    seen(daemon, CONTEXT)
    assert program.call(f"launchkernel {function} 0 0").code == SUCCESS  # known, and looked at again
    assert usage(daemon) == CONTEXT + 4096 * STACKS
    seen(daemon, CONTEXT + 4096 * STACKS)
    assert program.call(f"stack {LOCAL}").code == OUT_OF_MEMORY
