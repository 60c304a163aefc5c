"""A paused call holds its own thread and nothing else, whatever happens meanwhile."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, Session, open_session, row

from convgpu.protocol.inspection.messages import Withdraw
from convgpu.protocol.messages import Accepted, Allocate, Freed, Rejected
from convgpu.protocol.wire import PageFlag, Reason

Start = Callable[..., Program]
CALLS = {
    "alloc 67108864": ("cuMemAlloc", 64 * MIB),
    "managed 67108864 1": ("cuMemAllocManaged", 64 * MIB),
    "pitch 1024 65536": ("cuMemAllocPitch", 64 * MIB),
    "async 67108864 0": ("cuMemAllocAsync", 64 * MIB),
    "create 67108864 1 0": ("cuMemCreate", 64 * MIB),
    "stack 1280": ("cuCtxSetLimit", 256 * 132 * 2048),
}


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler) -> Session:
    """A program with 32 MiB of headroom, less than what is asked for below."""
    return open_session(start(), scheduler, row(limit=GIB), headroom=32 * MIB)


def pause(session: Session, command: str, thread: int = 0) -> int:
    """Let a thread ask for what is not there; returns the number of its request."""
    session.program.begin(command, thread)
    request, message = session.peer.receive()
    assert message == Allocate(0, CALLS[command][1], CALLS[command][0])
    assert not session.program.returned(thread)
    return request


@pytest.mark.parametrize("command", CALLS)
def test_signals_are_handled_and_the_call_goes_on_waiting(session: Session, command: str) -> None:
    request = pause(session, command)
    for turn in range(1, 4):
        assert session.program.call("kick 0", thread=1).code == SUCCESS  # SIGUSR1, which the program handles
        while session.program.call("signals", thread=1).number < turn:
            assert not session.program.returned()
    assert session.peer.silent()  # it was not asked again
    session.peer.send(Accepted(CALLS[command][1], 0), request)
    assert session.program.result().code == SUCCESS


def test_a_stopped_process_finds_its_answer_when_it_goes_on(session: Session) -> None:
    request = pause(session, "alloc 67108864")
    session.program.signal(signal.SIGSTOP)
    os.waitid(os.P_PID, session.program.pid, os.WSTOPPED | os.WNOWAIT)  # the signal only begins to stop it
    session.peer.send(Accepted(64 * MIB, 0), request)
    assert not session.program.returned()
    session.program.signal(signal.SIGCONT)
    assert session.program.result().code == SUCCESS


@pytest.mark.parametrize("command", CALLS)
def test_other_threads_go_on_and_one_that_frees_ends_the_pause(session: Session, command: str) -> None:
    held = session.program.call("alloc 33554432").number
    request = pause(session, command)
    assert session.program.call("join", thread=1).code == SUCCESS
    assert session.program.call("sync 0", thread=1).code == SUCCESS
    session.page.arm(0, armed=True)
    assert session.program.call(f"free {held}", thread=1).code == SUCCESS
    assert session.peer.receive() == (0, Freed(0))
    assert session.page.take_all(0) == 32 * MIB
    session.peer.send(Accepted(CALLS[command][1], 0), request)
    assert session.program.result().code == SUCCESS


@pytest.mark.parametrize("twin", ["", "p"])
def test_the_order_of_a_stream_is_that_of_its_calls(session: Session, twin: str) -> None:
    """What a thread calls after a paused allocation reaches the driver after it: the free frees what it was given."""
    stream = session.program.call("stream").number
    pool = session.program.call("defaultpool 0").number
    session.program.begin(f"async{twin} 67108864 {stream}")
    session.program.begin(f"event {stream}")
    request, message = session.peer.receive()
    assert message == Allocate(0, 64 * MIB, "cuMemAllocAsync")
    assert session.program.call(f"reserved {pool}", thread=1).number == 0  # the driver has not seen it
    assert not session.program.returned()
    session.peer.send(Accepted(64 * MIB, 0), request)
    assert session.program.result().code == SUCCESS
    event = session.program.result()
    assert event.code == SUCCESS
    assert session.program.call(f"reserved {pool}", thread=1).number == 64 * MIB


def test_pauses_of_several_threads_end_in_any_order(session: Session) -> None:
    threads = range(1, 5)
    for thread in threads:
        assert session.program.call("join", thread).code == SUCCESS
    requests = [pause(session, "alloc 67108864", thread) for thread in threads]
    for thread, request in reversed(list(zip(threads, requests, strict=True))):
        even = thread % 2 == 0
        session.peer.send(Accepted(64 * MIB, 0) if even else Rejected(Reason.DEADLINE, GIB, GIB), request)
        assert session.program.result(thread).code == (SUCCESS if even else OUT_OF_MEMORY)
    assert session.page.read(0) == 32 * MIB


def test_an_interrupt_that_a_scheduler_did_not_answer_ends_the_pause_when_it_goes(
    start: Start, scheduler: ScriptedScheduler
) -> None:
    session = open_session(start(), scheduler, row(limit=GIB), headroom=32 * MIB, flags=PageFlag.WITHDRAW)
    program = session.program
    assert program.call(f"kickby {int(signal.SIGINT)}", thread=1).code == SUCCESS
    request = pause(session, "alloc 67108864")
    while session.peer.silent():
        assert program.call("kick 0", thread=1).code == SUCCESS
    assert session.peer.receive() == (request, Withdraw())
    assert not program.returned()
    session.peer.close()
    assert program.result().code == OUT_OF_MEMORY
    peer, _hello = scheduler.accept()
    peer.welcome((row(limit=GIB),))
    assert program.call("join", thread=1).code == SUCCESS
    program.begin(f"alloc {2 * MIB}", thread=1)
    assert peer.receive()[1] == Allocate(0, 2 * MIB, "cuMemAlloc")  # and not what was interrupted


def test_an_interrupt_between_a_call_and_its_wait_ends_the_pause(
    start: Start, scheduler: ScriptedScheduler, programs: Path
) -> None:
    program = start(preload=(programs / "libinterrupting.so",))
    session = open_session(program, scheduler, row(limit=GIB), headroom=32 * MIB, flags=PageFlag.WITHDRAW)
    assert program.call(f"kickby {int(signal.SIGINT)}", thread=1).code == SUCCESS
    request = pause(session, "alloc 67108864")
    assert session.peer.receive() == (request, Withdraw())
    session.peer.send(Rejected(Reason.INTERRUPTED, GIB, 0), request)
    assert program.result().code == OUT_OF_MEMORY
    assert program.call("signals").number == 1  # the program has handled it
