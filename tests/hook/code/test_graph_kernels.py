"""Kernels of graphs are charged when they are recorded, and what executable graphs take before they are made."""

from collections.abc import Callable

from daemon import Daemon, wait_until
from grown import CONTEXT, LOCAL, STACKS, WORK, function_of, graph_of, seen, usage
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from scripted_session import GIB, MIB

Join = Callable[..., Program]
KERNEL = 2
"""The form of a graph's node that names a kernel of a library."""


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
    assert usage(daemon) == CONTEXT + GIB + 1024 * STACKS + WORK


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
    seen(daemon, CONTEXT + 1024 * STACKS + WORK)


def test_a_kernel_is_charged_in_its_functions_context(daemon: Daemon, join: Join) -> None:
    """The current one had such stacks already: those of the other came unseen with the instantiation."""
    program = join(daemon.container("a", memory="8g"))
    here = program.call("retain 0").number
    own = function_of(program, "0 0 9216")
    assert program.call(f"launchkernel {own} 0 0").code == SUCCESS
    there = program.call("create3 0").number
    others = function_of(program, "0 0 9216")
    listed = program.call(f"functions {program.call('module 0 0 9216').number} 0").number
    assert program.call(f"use {here}").code == SUCCESS
    for function in (others, listed):
        graph = graph_of(program, function, 1)
        assert usage(daemon) == 2 * (CONTEXT + 8192 * STACKS)
    assert program.call(f"launch {program.call(f'instantiate {graph} 3').number} 0").code == SUCCESS
    seen(daemon, 2 * (CONTEXT + 8192 * STACKS) + WORK)
    assert usage(daemon) == 2 * (CONTEXT + 8192 * STACKS) + WORK
    assert program.call(f"destroy {there}").code == SUCCESS
    assert usage(daemon) == CONTEXT + 8192 * STACKS + WORK
    graph_of(program, others, 1)  # of nobody any more: the current context has what it needs
    assert usage(daemon) == CONTEXT + 8192 * STACKS + WORK


def test_an_executable_graph_is_refused_before_it_takes_too_much(daemon: Daemon, join: Join) -> None:
    """On a card, 10,000 kernels side by side took 1.1 GiB, which stayed when the graph was destroyed."""
    program = join(daemon.container("a", memory="2g"))
    graph = graph_of(program, function_of(program, "0 0 0"), 40)
    assert program.call(f"alloc {2 * GIB - CONTEXT - 10 * MIB}").code == SUCCESS
    made = [program.call(f"instantiate {graph} 3") for _time in range(4)]
    assert [each.code for each in made] == [SUCCESS, SUCCESS, OUT_OF_MEMORY, OUT_OF_MEMORY]
    assert usage(daemon) == 2 * GIB
    seen(daemon, 2 * GIB)
    # It stays for the next one, in the context.
    assert program.call(f"destroyexec {made[0].number}").code == SUCCESS
    assert usage(daemon) == 2 * GIB
    assert program.call(f"launch {program.call(f'instantiate {graph} 3').number} 0").code == SUCCESS
    seen(daemon, 2 * GIB)


def test_another_context_has_nothing_for_graphs_yet(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    here = program.call("retain 0").number
    graph = graph_of(program, function_of(program, "0 0 0"), 40)
    made = program.call(f"instantiate {graph} 3").number
    assert program.call(f"destroyexec {made}").code == SUCCESS
    there = program.call("create3 0").number
    graph = graph_of(program, function_of(program, "0 0 0"), 40)
    assert program.call(f"alloc {2 * GIB - 2 * CONTEXT - 9 * MIB}").code == SUCCESS
    assert program.call(f"instantiate {graph} 3").code == OUT_OF_MEMORY
    assert program.call(f"destroy {there}").code == SUCCESS
    assert program.call(f"use {here}").code == SUCCESS
    assert usage(daemon) == CONTEXT + 6 * MIB


def test_kernels_one_after_the_other_take_little(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    function, stream = function_of(program, "0 0 0"), program.call("stream").number
    assert program.call(f"capture {stream}").code == SUCCESS
    for _kernel in range(200):
        assert program.call(f"launchkernel {function} 0 {stream}").code == SUCCESS
    captured = program.call(f"endcapture {stream}").number
    beside = graph_of(program, function, 200)
    assert program.call(f"alloc {2 * GIB - CONTEXT - 4 * MIB}").code == SUCCESS
    assert program.call(f"instantiate {beside} 3").code == OUT_OF_MEMORY
    assert program.call(f"instantiate {captured} 3").code == SUCCESS
    assert usage(daemon) == 2 * GIB - 4 * MIB + WORK


def test_no_graph_is_made_while_something_is_owed(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    function = function_of(program, "0 0 0")
    graph = graph_of(program, function, 1)
    made = program.call(f"instantiate {graph} 3").number
    assert program.call(f"destroyexec {made}").code == SUCCESS
    code = function_of(program, f"0 {92 * MIB} 0")
    held = program.call(f"alloc {2 * GIB - CONTEXT - WORK}").number
    assert program.call(f"launchkernel {code} 0 0").code == OUT_OF_MEMORY
    assert program.call(f"instantiate {graph} 3").code == OUT_OF_MEMORY
    assert program.call(f"free {held}").code == SUCCESS
    assert program.call(f"instantiate {graph} 3").code == SUCCESS


def dense(program: Program) -> int:
    """Return a graph for which 23 MiB are charged, and of which the driver takes 4."""
    graph = program.call("graph").number
    assert program.call(f"addlayers {graph} {function_of(program, '0 0 0')} 20 10").code == SUCCESS
    return graph


def nothing_more_is_had(program: Program, daemon: Daemon) -> None:
    """Fill the limit: a graph that needs 17 MiB is refused then, before the driver takes them."""
    beside = graph_of(program, function_of(program, "0 0 0"), 150)
    assert program.call(f"alloc {2 * GIB - usage(daemon)}").code == SUCCESS
    assert program.call(f"instantiate {beside} 3").code == OUT_OF_MEMORY
    seen(daemon, 2 * GIB)


def test_what_was_charged_and_not_taken_is_not_there_for_the_next_graph(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    made = program.call(f"instantiate {dense(program)} 3").number
    assert usage(daemon) == CONTEXT + 4 * MIB
    assert program.call(f"destroyexec {made}").code == SUCCESS
    nothing_more_is_had(program, daemon)


def test_graphs_that_lie_too_deep_in_each_other_are_refused(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    graph = graph_of(program, function_of(program, "0 0 0"), 1)
    for _level in range(16):
        outer = program.call("graph").number
        assert program.call(f"addchild {outer} {graph}").code == SUCCESS
        graph = outer
    assert program.call(f"instantiate {graph} 3").code == SUCCESS
    outer = program.call("graph").number
    assert program.call(f"addchild {outer} {graph}").code == SUCCESS
    assert program.call(f"instantiate {outer} 3").code == OUT_OF_MEMORY


def test_bodies_of_conditional_nodes_are_charged_before(daemon: Daemon, join: Join) -> None:
    """The driver names them once, when their node is made."""
    program = join(daemon.container("a", memory="2g"))
    function = function_of(program, "0 0 0")
    assert program.call(f"alloc {2 * GIB - CONTEXT - 10 * MIB}").code == SUCCESS
    for form in (1, 2):
        graph = program.call("graph").number
        body = program.call(f"conditional {graph} 3 {form}").number
        inner = program.call(f"conditional {body} 1 {form}").number
        for _kernel in range(200):
            assert program.call(f"addkernel {inner} {function} 0").code == SUCCESS
        assert program.call(f"instantiate {graph} 3").code == OUT_OF_MEMORY
        assert usage(daemon) == 2 * GIB - 10 * MIB
    seen(daemon, 2 * GIB - 10 * MIB)
    graph = program.call("graph").number
    body = program.call(f"conditional {graph} 1 1").number
    assert program.call(f"addkernel {body} {function} 0").code == SUCCESS
    assert program.call(f"instantiate {graph} 3").code == SUCCESS
    assert usage(daemon) == 2 * GIB - 10 * MIB + WORK


def test_empty_nodes_leave_nothing_for_the_next_graph(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    kernels = graph_of(program, function_of(program, "0 0 0"), 500)
    made = []
    for _graph in range(3):
        empty = program.call("graph").number
        assert program.call(f"addempties {empty} 1000").code == SUCCESS
        made.append(program.call(f"instantiate {empty} 3").number)
    assert [program.call(f"destroyexec {each}").code for each in made] == [SUCCESS] * 3
    assert usage(daemon) == CONTEXT
    assert program.call(f"alloc {2 * GIB - CONTEXT}").code == SUCCESS
    assert program.call(f"instantiate {kernels} 3").code == OUT_OF_MEMORY
    seen(daemon, 2 * GIB)


def test_what_is_charged_for_a_launch_hides_no_growth(daemon: Daemon, join: Join) -> None:
    """Of 1 GiB that a graph would allocate, streams and graphs took 0.7, and then it was launched."""
    program = join(daemon.container("a", memory="2g"))
    graph = program.call("graph").number
    assert program.call(f"addalloc {graph} {GIB} 0").code == SUCCESS
    made = program.call(f"instantiate {graph} 3").number
    kernels = graph_of(program, function_of(program, "0 0 0"), 300)
    before = usage(daemon)
    assert program.call(f"instantiate {kernels} 3").code == SUCCESS
    taken = usage(daemon) - before
    assert 33 * MIB <= taken <= 36 * MIB
    assert program.call(f"alloc {2 * GIB - usage(daemon)}").code == SUCCESS
    answers = [program.call("stream").code for _stream in range(100)]
    assert answers[-1] == OUT_OF_MEMORY
    assert program.call(f"launch {made} 0").code == SUCCESS
    seen(daemon, 2 * GIB + WORK)


def test_work_stays_charged_while_its_graphs_memory_is(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    graph = graph_of(program, function_of(program, "0 0 0"), 600)
    assert program.call(f"addalloc {graph} {100 * MIB} 0").code == SUCCESS
    assert program.call(f"alloc {2 * GIB - CONTEXT - 140 * MIB}").code == SUCCESS
    assert program.call(f"instantiate {graph} 3").code == OUT_OF_MEMORY
    assert usage(daemon) == 2 * GIB - 140 * MIB
    seen(daemon, 2 * GIB - 140 * MIB)


def test_a_kernel_that_is_launched_meanwhile_lets_no_graph_grow(daemon: Daemon, join: Join) -> None:
    holder = join(daemon.container("b", memory="14g"))
    held = holder.call(f"alloc {13 * GIB}").number
    program = join(daemon.container("a", memory="4g"))
    context = program.call("retain 0").number
    graph = graph_of(program, function_of(program, "0 0 0"), 10)
    assert program.call(f"addalloc {graph} {5 * GIB // 2} 0").code == SUCCESS
    large = function_of(program, "0 0 0 0 0 5000")
    program.begin(f"instantiate {graph} 3")
    wait_until(lambda: daemon.state("a")["waiting"], "it is paused")
    assert program.call(f"use {context}", 1).code == SUCCESS
    assert program.call(f"launchkernel {large} 0 0", 1).code == SUCCESS
    assert holder.call(f"free {held}").code == SUCCESS
    assert program.result().code == SUCCESS


def test_a_graph_stays_charged_while_another_thread_is_busy(daemon: Daemon, join: Join) -> None:
    """What that one took during the measurement was taken for the graph's: 336 MiB were given back."""
    program = join(daemon.container("a", memory="2g"))
    context = program.call("retain 0").number
    graph = graph_of(program, function_of(program, "0 0 0"), 1000)
    before = usage(daemon)
    assert program.call(f"use {context}", 1).code == SUCCESS
    program.begin("bench 300000 0", 1)
    wait_until(lambda: usage(daemon) > before, "it has begun")
    made = [program.call(f"instantiate {graph} 3").code for _time in range(3)]
    assert program.result(1).code == SUCCESS
    assert made == [SUCCESS] * 3
    assert 330 * MIB <= usage(daemon) - before <= 350 * MIB
    while program.call(f"alloc {64 * MIB}").code == SUCCESS:
        pass
    wait_until(lambda: daemon.state("a")["devices"][0]["seen"] > 2 * GIB - 128 * MIB, "it is full")
    assert daemon.state("a")["devices"][0]["seen"] <= 2 * GIB


def test_what_a_neighbour_takes_meanwhile_is_not_there_for_graphs(daemon: Daemon, join: Join) -> None:
    holder = join(daemon.container("b", memory="12g"))
    assert holder.call("alloc 1").code == SUCCESS
    program = join(daemon.container("a", memory="2g"))
    graph = dense(program)
    program.begin(f"instantiate {graph} 3")
    for _time in range(100):
        holder.begin(f"alloc {50 * MIB}")
    assert program.call(f"destroyexec {program.result().number}").code == SUCCESS
    nothing_more_is_had(program, daemon)


def test_the_parameters_of_a_handle_that_comes_again_are_asked_for_again(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    before = set()
    for _time in range(20):  # malloc keeps some blocks back
        module = program.call("module 0 0 0").number
        before.add(program.call(f"function {module}").number)
        graph_of(program, program.call(f"function {module}").number, 1)
        assert program.call(f"unload {module}").code == SUCCESS
    wide = function_of(program, "0 0 0 0 0 30000")
    assert wide in before
    graph = graph_of(program, wide, 200)
    assert program.call(f"alloc {2 * GIB - CONTEXT - 24 * MIB}").code == SUCCESS
    assert program.call(f"instantiate {graph} 3").code == OUT_OF_MEMORY
    seen(daemon, 2 * GIB - 24 * MIB)
