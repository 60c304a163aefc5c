"""Graphs are charged from their instantiation on with what their nodes could take, as launches are not hooked."""

from collections.abc import Callable

import pytest
from hooked_program import INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, Program, Result
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, Session, call, charged, open_session, row

from convgpu.protocol.messages import Accepted, Allocate, Rejected
from convgpu.protocol.wire import Reason

Start = Callable[..., Program]
UNTOUCHED = "0x5a5a"
FORMS = (1, 2, 3, 4, 5)
"""cuGraphInstantiate, _v2, WithFlags, WithParams and its per-thread twin."""


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler) -> Session:
    """A program with a context and 4 GiB of headroom."""
    return open_session(start(), scheduler, headroom=4 * GIB)


def make_graph(session: Session, size: int) -> int:
    """A graph that allocates and frees."""
    graph = call(session, "graph").number
    address = call(session, f"addalloc {graph} {size} 0").number
    call(session, f"addfree {graph} {address}")
    return graph


def instantiate(session: Session, size: int, form: int = 3) -> int:
    return call(session, f"instantiate {make_graph(session, size)} {form}").number


@pytest.mark.parametrize("form", FORMS)
def test_a_graph_is_charged_until_it_is_destroyed(session: Session, form: int) -> None:
    graph = make_graph(session, 100 * MIB)
    assert charged(session) == 0
    executable = call(session, f"instantiate {graph} {form}").number
    assert charged(session) == 128 * MIB
    call(session, f"destroyexec {executable}")
    assert charged(session) == 0
    assert session.peer.silent()


def test_what_the_driver_keeps_for_graphs_stays_charged(session: Session) -> None:
    executable = instantiate(session, 96 * MIB)
    call(session, f"launch {executable} 0")
    call(session, f"destroyexec {executable}")
    assert charged(session) == 96 * MIB
    other = instantiate(session, 60 * MIB)
    assert charged(session) == 96 * MIB  # which serves this one too
    call(session, f"destroyexec {other}")
    call(session, "trimgraphs 0")
    assert charged(session) == 0


def run_and_destroy(session: Session, size: int) -> int:
    """A graph that frees nothing is launched and destroyed; return its address."""
    graph = call(session, "graph").number
    address = call(session, f"addalloc {graph} {size} 0").number
    executable = call(session, f"instantiate {graph} 3").number
    call(session, f"launch {executable} 0")
    call(session, f"destroyexec {executable}")
    return address


def test_what_a_graph_leaves_allocated_stays_beside_others(session: Session) -> None:
    """A program had 4,366 MiB with a limit of 1,500: the next graph was taken to use what the last had left."""
    run_and_destroy(session, 96 * MIB)
    assert charged(session) == 96 * MIB
    graph = call(session, "graph").number
    call(session, f"addalloc {graph} {64 * MIB} 0")
    executable = call(session, f"instantiate {graph} 3").number
    assert charged(session) == 160 * MIB
    call(session, f"destroyexec {executable}")  # it was not launched
    assert charged(session) == 96 * MIB


def test_what_is_allocated_anew_where_a_node_freed_is_left_too(session: Session) -> None:
    """The driver gives allocations that follow each other one address: a node frees one of them."""
    graph = call(session, "graph").number
    address = call(session, f"addalloc {graph} {512 * MIB} 0").number
    call(session, f"addfree {graph} {address}")
    assert call(session, f"addalloc {graph} {512 * MIB} 0").number == address
    executable = call(session, f"instantiate {graph} 3").number
    call(session, f"launch {executable} 0")
    call(session, f"destroyexec {executable}")
    assert charged(session) == 512 * MIB
    instantiate(session, 512 * MIB)
    assert charged(session) == GIB


@pytest.mark.parametrize("is_freed", [False, True])
def test_what_graphs_left_and_is_free_is_given_back_before_one_is_refused(session: Session, is_freed: bool) -> None:
    addresses = [run_and_destroy(session, GIB) for _graph in range(3)]
    assert charged(session) == 3 * GIB
    for address in addresses if is_freed else ():
        assert call(session, f"free {address}").code == SUCCESS
    graph = call(session, "graph").number
    call(session, f"addalloc {graph} {2 * GIB} 0")
    session.program.begin(f"instantiate {graph} 3")
    if is_freed:
        assert session.program.result().code == SUCCESS
        assert charged(session) == 2 * GIB
    else:
        request, message = session.peer.receive()
        assert message == Allocate(0, 2 * GIB, "cuGraphInstantiate")
        session.peer.send(Rejected(Reason.LIMIT, 4 * GIB, 3 * GIB), request)
        assert session.program.result().code == OUT_OF_MEMORY
        assert charged(session) == 3 * GIB


def test_several_graphs_may_run_together(session: Session) -> None:
    executables = [instantiate(session, 32 * MIB) for _graph in range(3)]
    assert charged(session) == 96 * MIB
    for left, executable in zip((64, 32, 0), executables, strict=True):
        call(session, f"destroyexec {executable}")
        assert charged(session) == left * MIB


def test_many_small_nodes_are_rounded_once(session: Session) -> None:
    graph = call(session, "graph").number
    for _node in range(10):
        call(session, f"addalloc {graph} 512 0")
    call(session, f"instantiate {graph} 3")
    assert charged(session) == 32 * MIB


def test_a_captured_allocation_is_charged_with_its_graph(session: Session) -> None:
    stream = call(session, "stream").number
    call(session, f"capture {stream}")
    address = call(session, f"async {64 * MIB} {stream}").number
    call(session, f"freeasync {address} {stream}")
    assert charged(session) == 0
    graph = call(session, f"endcapture {stream}").number
    executable = call(session, f"instantiate {graph} 3").number
    assert charged(session) == 64 * MIB
    call(session, f"destroyexec {executable}")
    assert charged(session) == 0


def test_what_a_graph_left_is_charged_while_another_one_runs(session: Session) -> None:
    """What a graph allocates and does not free lives on without it, and cannot serve the next one."""
    run_and_destroy(session, 32 * MIB)
    executable = instantiate(session, 32 * MIB)
    call(session, f"launch {executable} 0")
    assert charged(session) == 64 * MIB
    call(session, f"destroyexec {executable}")
    assert charged(session) == 64 * MIB
    call(session, "trimgraphs 0")
    assert charged(session) == 32 * MIB


def test_what_is_kept_comes_back_before_anybody_is_asked(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=64 * MIB)
    executable = instantiate(session, 64 * MIB)
    call(session, f"launch {executable} 0")
    call(session, f"destroyexec {executable}")
    assert session.page.read(0) == 0
    call(session, f"alloc {64 * MIB}")
    assert session.peer.silent()


@pytest.mark.parametrize("form", FORMS)
def test_a_rejection_is_cudas_out_of_memory(start: Start, scheduler: ScriptedScheduler, form: int) -> None:
    session = open_session(start(), scheduler)
    graph = make_graph(session, 64 * MIB)
    session.program.begin(f"instantiate {graph} {form}")
    request, message = session.peer.receive()
    assert message == Allocate(0, 64 * MIB, "cuGraphInstantiate")
    session.peer.send(Rejected(Reason.LIMIT, GIB, GIB), request)
    assert session.program.result() == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    session.program.begin(f"instantiate {graph} {form}")
    request, _message = session.peer.receive()
    session.peer.send(Accepted(64 * MIB, 0), request)
    executable = session.program.result()
    assert executable.code == SUCCESS
    call(session, f"destroyexec {executable.number}")
    assert session.page.read(0) == 64 * MIB


def test_a_graph_without_allocations_costs_nothing(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler)
    graph = call(session, "graph").number
    executable = call(session, f"instantiate {graph} 3").number
    call(session, f"launch {executable} 0")
    call(session, f"destroyexec {executable}")
    assert session.program.call(f"destroyexec {executable}").code == INVALID_VALUE
    assert session.peer.silent()


def test_a_device_without_a_limit_has_no_memory(session: Session) -> None:
    graph = call(session, "graph").number
    call(session, f"addalloc {graph} 512 1")
    assert session.program.call(f"instantiate {graph} 3") == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    assert charged(session) == 0


def test_graphs_go_with_their_context(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=GIB)
    call(session, f"launch {instantiate(session, 64 * MIB)} 0")
    assert session.page.read(0) == GIB - 64 * MIB
    call(session, "release 0")
    assert session.page.read(0) == GIB


@pytest.mark.parametrize("begins", ["charged", "at once"])
def test_a_graph_that_grows_meanwhile_is_refused(start: Start, scheduler: ScriptedScheduler, begins: str) -> None:
    """It was charged as it had been read, and took 8 GiB with a limit of 4 when it was launched."""
    session = open_session(start(), scheduler, row(limit=4 * GIB))
    graph = call(session, "graph").number
    call(session, f"addalloc {graph} {32 * MIB} 0")
    session.program.begin(f"instantiate {graph} 3")
    request, message = session.peer.receive()
    assert isinstance(message, Allocate)
    if begins == "charged":
        assert session.program.call(f"addalloc {graph} {8 * GIB} 0", 1).code == SUCCESS
    session.peer.send(Accepted(message.size, 0), request)
    expected = OUT_OF_MEMORY if begins == "charged" else SUCCESS
    assert session.program.result().code == expected
    assert session.page.read(0) == (32 * MIB if begins == "charged" else 0)  # given back, or not
