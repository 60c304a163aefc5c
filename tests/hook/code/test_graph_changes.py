"""Executable graphs that are changed: kernels of larger parameters take more, in the graph's own context."""

from collections.abc import Callable

import pytest
from daemon import Daemon, wait_until
from grown import function_of, graph_of, seen, usage
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from scripted_session import GIB, MIB

Join = Callable[..., Program]
UPDATE_FAILURE = 910
WIDE = "0 0 0 0 0 30000"


@pytest.mark.parametrize("form", [1, 2])
def test_an_update_to_larger_parameters_is_refused_before(daemon: Daemon, join: Join, form: int) -> None:
    program = join(daemon.container("a", memory="2g"))
    small = graph_of(program, function_of(program, "0 0 0"), 100)
    made = program.call(f"instantiate {small} 3").number
    large = graph_of(program, function_of(program, WIDE), 100)
    before = usage(daemon)
    held = program.call(f"alloc {2 * GIB - before - 4 * MIB}").number
    assert program.call(f"update {made} {large} {form}").code == OUT_OF_MEMORY
    seen(daemon, 2 * GIB - 4 * MIB)
    assert program.call(f"free {held}").code == SUCCESS
    assert program.call(f"update {made} {large} {form}").code == SUCCESS
    assert usage(daemon) == before + 6 * MIB
    seen(daemon, before + 6 * MIB)


def test_an_update_that_the_driver_refuses_takes_nothing(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    made = program.call(f"instantiate {graph_of(program, function_of(program, '0 0 0'), 2)} 3").number
    larger = graph_of(program, function_of(program, "0 0 0 0 0 4000"), 800)
    before = usage(daemon)
    assert program.call(f"update {made} {larger} 2").code == UPDATE_FAILURE
    assert usage(daemon) == before


def test_no_node_is_given_larger_parameters_while_something_is_owed(daemon: Daemon, join: Join) -> None:
    """A program that went on after it was refused took 4.3 GiB of a card with a limit of 2."""
    program = join(daemon.container("a", memory="2g"))
    small, graph = function_of(program, "0 0 0"), program.call("graph").number
    nodes = [program.call(f"addkernel {graph} {small} 0").number for _kernel in range(400)]
    made = program.call(f"instantiate {graph} 3").number
    wide = function_of(program, WIDE)
    graph_of(program, wide, 1)
    assert program.call(f"alloc {2 * GIB - usage(daemon) - 6 * MIB}").code == SUCCESS
    answers = [program.call(f"setkernel {made} {node} {wide}").code for node in nodes]
    assert (answers[0], answers[-1], answers.count(OUT_OF_MEMORY) > 200) == (SUCCESS, OUT_OF_MEMORY, True)
    device = daemon.state("a")["devices"][0]
    assert program.call("alloc 1").code == OUT_OF_MEMORY
    wait_until(lambda: 2 * GIB < daemon.state("a")["devices"][0]["seen"] <= 2 * GIB + 4 * MIB, f"{device}")


def at_the_limit(program: Program, daemon: Daemon) -> tuple[int, list[int], int]:
    """An executable graph of 400 kernels, its nodes, and a kernel of large parameters; nothing more can be had."""
    small, graph = function_of(program, "0 0 0"), program.call("graph").number
    nodes = [program.call(f"addkernel {graph} {small} 0").number for _kernel in range(400)]
    made = program.call(f"instantiate {graph} 3").number
    wide = function_of(program, WIDE)
    assert program.call(f"alloc {2 * GIB - usage(daemon)}").code == SUCCESS
    return made, nodes, wide


def test_nodes_are_counted_where_their_graph_is(daemon: Daemon, join: Join) -> None:
    """Without a context, or with another device's, nothing was measured."""
    program = join(daemon.container("a", memory="2g"))
    program.call("retain 0")
    made, nodes, wide = at_the_limit(program, daemon)
    for index, node in enumerate(nodes):
        context = program.call("retain 1").number if index % 2 else 0
        assert program.call(f"use {context}").code == SUCCESS
        program.call(f"setkernel {made} {node} {wide}")
    wait_until(lambda: 2 * GIB < daemon.state("a")["devices"][0]["seen"] <= 2 * GIB + 4 * MIB, "one step is above")


def test_an_update_is_charged_in_the_graphs_context(daemon: Daemon, join: Join) -> None:
    """In the current one it left the other less than nothing: no graph could be made there any more."""
    program = join(daemon.container("a", memory="8g"))
    here = program.call("retain 0").number
    graph = graph_of(program, function_of(program, "0 0 0"), 10)
    made = program.call(f"instantiate {graph} 3").number
    wide = graph_of(program, function_of(program, WIDE), 10)
    assert program.call("create3 0").code == SUCCESS
    assert program.call(f"update {made} {wide} 2").code == SUCCESS
    assert program.call(f"use {here}").code == SUCCESS
    assert program.call(f"destroyexec {made}").code == SUCCESS
    assert program.call(f"instantiate {graph} 3").code == SUCCESS


def test_another_child_of_large_parameters_is_refused_before(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    outer, small = program.call("graph").number, graph_of(program, function_of(program, "0 0 0"), 100)
    node = program.call(f"addchild {outer} {small}").number
    made = program.call(f"instantiate {outer} 3").number
    wide = graph_of(program, function_of(program, WIDE), 100)
    before = usage(daemon)
    held = program.call(f"alloc {2 * GIB - before}").number
    assert program.call(f"setchild {made} {node} {wide}").code == OUT_OF_MEMORY
    seen(daemon, 2 * GIB)
    assert program.call(f"free {held}").code == SUCCESS
    assert program.call(f"setchild {made} {node} {wide}").code == SUCCESS
    assert usage(daemon) == before + 6 * MIB


def test_an_update_is_charged_though_such_kernels_were_there_before(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    large = graph_of(program, function_of(program, WIDE), 200)
    made = program.call(f"instantiate {graph_of(program, function_of(program, '0 0 0'), 200)} 3").number
    assert program.call(f"alloc {2 * GIB - usage(daemon)}").code == SUCCESS
    assert program.call(f"update {made} {large} 2").code == OUT_OF_MEMORY
    seen(daemon, 2 * GIB)


def test_the_same_kernels_need_nothing_more(daemon: Daemon, join: Join) -> None:
    """Whatever other kernels there are: 39 KiB were asked for each, by an update, another child, and once more."""
    program = join(daemon.container("a", memory="2g"))
    small = function_of(program, "0 0 0")
    assert program.call(f"launchkernel {function_of(program, '0 0 0 0 0 5000')} 0 0").code == SUCCESS
    graph, outer = graph_of(program, small, 200), program.call("graph").number
    node = program.call(f"addchild {outer} {graph}").number
    made, nested = (program.call(f"instantiate {each} 3").number for each in (graph, outer))
    other = program.call(f"instantiate {graph} 3").number
    assert program.call(f"destroyexec {other}").code == SUCCESS
    assert program.call(f"alloc {2 * GIB - usage(daemon) - 4 * MIB}").code == SUCCESS
    assert program.call(f"update {made} {graph} 2").code == SUCCESS
    assert program.call(f"setchild {nested} {node} {graph}").code == SUCCESS
    assert program.call(f"instantiate {graph} 3").code == SUCCESS
