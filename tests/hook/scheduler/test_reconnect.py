"""A scheduler that goes away and comes back: nothing is lost, nothing is counted twice."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from compiled import ROOT, SOURCES, compile_c
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program, Result
from scripted_scheduler import Page, Peer, ScriptedScheduler
from scripted_session import BINARY_UUIDS, GIB, MIB, Session, open_session, row

from convgpu.protocol.messages import Accepted, Allocate, Failed, Hello
from convgpu.protocol.wire import Failure

Start = Callable[..., Program]
ACCOUNT = ROOT / "hook/src/scheduler/account.c"


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler) -> Session:
    """A program with 100 MiB in use and 900 MiB of headroom."""
    session = open_session(start(), scheduler, headroom=1000 * MIB)
    assert session.program.call(f"alloc {100 * MIB}").code == SUCCESS
    return session


def come_back(scheduler: ScriptedScheduler, limit: int = 4 * GIB) -> tuple[Peer, Hello, Page]:
    peer, hello = scheduler.accept()
    return peer, hello, peer.welcome((row(limit),))


def ask(program: Program, peer: Peer, size: int) -> None:
    """Let it allocate what no headroom holds: afterwards it works with the new page."""
    program.begin(f"alloc {size}")
    request, message = peer.receive()
    assert message == Allocate(0, size, "cuMemAlloc")
    peer.send(Accepted(size, 0), request)
    assert program.result().code == SUCCESS


def held(hello: Hello) -> int:
    [(device, size)] = hello.held
    assert device == BINARY_UUIDS[0]
    return size


def test_usage_is_told_and_the_old_headroom_is_gone(session: Session, scheduler: ScriptedScheduler) -> None:
    session.peer.close()
    peer, hello, page = come_back(scheduler)
    assert held(hello) == 100 * MIB
    session.program.begin(f"alloc {2 * MIB}")
    request, message = peer.receive()
    assert message == Allocate(0, 2 * MIB, "cuMemAlloc")
    peer.send(Accepted(2 * MIB, 0), request)
    allocated = session.program.result()
    assert (allocated.code, page.read(0)) == (SUCCESS, 0)
    assert session.program.call(f"free {allocated.number}").code == SUCCESS
    assert (page.read(0), session.page.read(0)) == (2 * MIB, 900 * MIB)


def test_open_requests_are_asked_again(session: Session, scheduler: ScriptedScheduler) -> None:
    for thread, size in ((1, 1000 * MIB), (2, 2000 * MIB)):
        assert session.program.call("join", thread).code == SUCCESS
        session.program.begin(f"alloc {size}", thread)
        session.peer.receive()
    session.peer.close()
    peer, hello, _page = come_back(scheduler)
    assert held(hello) == 100 * MIB
    asked = dict(peer.receive() for _request in range(2))
    assert sorted(message.size for message in asked.values()) == [1000 * MIB, 2000 * MIB]
    for request, message in asked.items():
        peer.send(Accepted(message.size, 0), request)
    assert [session.program.result(thread).code for thread in (1, 2)] == [SUCCESS, SUCCESS]
    peer.close()
    _peer, hello, _page = come_back(scheduler)
    assert held(hello) == 3100 * MIB


def test_a_request_that_comes_while_away_waits(session: Session, scheduler: ScriptedScheduler) -> None:
    session.peer.close()
    peer, _hello = scheduler.accept()  # and is not welcomed yet
    session.program.begin(f"alloc {2 * MIB}")
    peer.welcome((row(),))
    request, message = peer.receive()
    assert message == Allocate(0, 2 * MIB, "cuMemAlloc")
    peer.send(Accepted(2 * MIB, 0), request)
    assert session.program.result().code == SUCCESS


def test_frees_while_away_reach_the_new_page(session: Session, scheduler: ScriptedScheduler) -> None:
    first = session.program.call(f"alloc {10 * MIB}").number
    second = session.program.call(f"alloc {20 * MIB}").number
    session.peer.close()
    peer, hello = scheduler.accept()
    assert held(hello) == 130 * MIB
    assert session.program.call(f"free {first}").code == SUCCESS
    assert session.program.call(f"free {second}").code == SUCCESS
    assert session.program.call(f"alloc {6 * MIB}").code == SUCCESS  # of what it has just given back
    page = peer.welcome((row(),))
    ask(session.program, peer, 2 * GIB)
    assert page.read(0) == 24 * MIB  # 130 held, 106 used


def test_a_second_try_tells_the_present_usage(session: Session, scheduler: ScriptedScheduler) -> None:
    address = session.program.call(f"alloc {10 * MIB}").number
    session.peer.close()
    peer, hello = scheduler.accept()
    assert held(hello) == 110 * MIB
    assert session.program.call(f"free {address}").code == SUCCESS
    peer.close()
    _peer, hello, page = come_back(scheduler)
    assert held(hello) == 100 * MIB
    assert page.read(0) == 0


def test_while_away_a_program_sees_its_own_usage(session: Session, scheduler: ScriptedScheduler) -> None:
    session.peer.close()
    scheduler.accept()
    assert session.program.call("info") == Result(SUCCESS, (str(4 * GIB - 100 * MIB), str(4 * GIB)))


def test_a_question_is_not_left_open(session: Session, scheduler: ScriptedScheduler) -> None:
    session.program.begin("info")
    session.peer.receive()
    session.peer.close()
    assert session.program.result() == Result(SUCCESS, (str(4 * GIB - 100 * MIB), str(4 * GIB)))
    scheduler.accept()


@pytest.mark.parametrize("part", [1, 15, 16, 20, 31])
def test_a_scheduler_that_dies_in_mid_reply(session: Session, scheduler: ScriptedScheduler, part: int) -> None:
    session.program.begin(f"alloc {GIB}")
    request, message = session.peer.receive()
    reply = b"\x20\0\0\0\x02\0\x11\0" + request.to_bytes(8, "little") + GIB.to_bytes(8, "little") + bytes(8)
    session.peer.send_raw(reply[:part])
    session.peer.close()
    peer, hello, _page = come_back(scheduler)
    assert held(hello) == 100 * MIB
    assert peer.receive() == (request, message)
    peer.send_raw(reply)
    assert session.program.result().code == SUCCESS


@pytest.mark.parametrize(
    "nonsense",
    [
        bytes(16),
        b"\x20\0\0\0\x01\0\x11\0" + bytes(24),
        b"\x20\0\0\0\x03\0\x11\0" + bytes(24),
        b"\x20\0\0\0\x02\0\x63\0" + bytes(24),
        b"\x18\0\0\0\x02\0\x11\0" + bytes(16),
        b"\x20\0\0\0\x02\0\x11\0" + b"\xff" * 24,
        b"\xff" * 64,
    ],
)
def test_nonsense_ends_the_connection_and_nothing_else(
    session: Session, scheduler: ScriptedScheduler, nonsense: bytes
) -> None:
    session.peer.send_raw(nonsense)
    assert session.peer.at_end()
    peer, hello, _page = come_back(scheduler)
    assert held(hello) == 100 * MIB
    ask(session.program, peer, GIB)


def test_a_refusal_on_coming_back(session: Session, scheduler: ScriptedScheduler) -> None:
    session.program.begin(f"alloc {GIB}")
    session.peer.receive()
    session.peer.close()
    for _turn in range(2):
        peer, _hello = scheduler.accept()
        peer.send(Failed(Failure.VERSION, "update the hook"), 1)
    assert session.program.result() == Result(OUT_OF_MEMORY, ("0x5a5a",))
    assert session.program.call("alloc 512").code == OUT_OF_MEMORY
    _peer, _hello, page = come_back(scheduler)  # a scheduler that knows this hook again
    page.give(0, MIB)
    assert session.program.end() == [
        "convgpu: the scheduler refuses this process: update the hook. New GPU memory is rejected.\n"
    ]


def test_a_refusal_that_stderr_has_no_room_for_holds_nobody_up(session: Session, scheduler: ScriptedScheduler) -> None:
    program = session.program
    assert program.call("join", thread=1).code == SUCCESS
    assert program.call("mute", thread=1).code == SUCCESS
    program.begin(f"alloc {GIB}")
    session.peer.receive()
    session.peer.send(Failed(Failure.ORDER, "not now"))
    assert program.result().code == OUT_OF_MEMORY
    assert program.call("info", thread=1).code == SUCCESS
    assert program.call(f"alloc {GIB}", thread=1).code == OUT_OF_MEMORY
    assert session.peer.at_end()
    scheduler.accept()  # and nobody has read it by then


def test_devices_in_another_order(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, row(device=0), row(device=1), headroom=GIB)
    assert session.program.call(f"alloc {100 * MIB}").code == SUCCESS
    session.program.begin(f"alloc {2 * GIB}")
    assert session.peer.receive()[1] == Allocate(0, 2 * GIB, "cuMemAlloc")
    session.peer.close()
    peer, hello = scheduler.accept()
    assert held(hello) == 100 * MIB
    page = peer.welcome((row(device=1), row(device=0)))
    request, message = peer.receive()
    assert message == Allocate(1, 2 * GIB, "cuMemAlloc")
    peer.send(Accepted(2 * GIB, 0), request)
    allocated = session.program.result()
    assert session.program.call(f"free {allocated.number}").code == SUCCESS
    assert (page.read(0), page.read(1)) == (0, 2 * GIB)


def test_a_device_that_has_no_limit_any_more(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler)
    session.program.begin("alloc 512")
    session.peer.receive()
    session.peer.close()
    peer, _hello = scheduler.accept()
    peer.welcome((row(device=1),))
    assert session.program.result() == Result(OUT_OF_MEMORY, ("0x5a5a",))


def test_a_device_never_seems_gone_while_a_scheduler_is_met(tmp_path: Path) -> None:
    """Who asked for memory just then was refused it."""
    program = compile_c(tmp_path / "rows", SOURCES / "standalone/rows_over_welcomes.c", ACCOUNT)
    assert subprocess.check_output([program], text=True) == "gone 0, read 1, second 1\n"
