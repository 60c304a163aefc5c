"""The life of the hook in a process: one connection, pauses, fork."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hooked_program import NOT_INITIALIZED, OUT_OF_MEMORY, SUCCESS, SYSTEM_NOT_READY, Program
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, open_session, row

from convgpu.protocol.messages import Accepted, Allocate, Context, ContextSize, Failed, Freed
from convgpu.protocol.wire import Failure

Start = Callable[..., Program]


def wait_until(holds: Callable[[], bool]) -> None:
    """Let a real process come to a state; fails after many looks, each of which gives up the processor."""
    for _look in range(200_000):
        if holds():
            return
        os.sched_yield()
    pytest.fail("it did not come to that")


def test_hello_says_who_it_is(start: Start, scheduler: ScriptedScheduler) -> None:
    program = start(CONVGPU_MEMORY="2g")
    program.begin("init 0")
    _peer, hello = scheduler.accept()
    assert (hello.pid, hello.program, hello.memory, hello.held) == (program.pid, "program", "2g", ())


@pytest.mark.parametrize(
    ("environment", "memory"),
    [
        ({}, ""),
        ({"DOCKER_RESOURCE_GPUMEM": "1024"}, "1024m"),
        ({"DOCKER_RESOURCE_GPUMEM": "1024", "CONVGPU_MEMORY": "2g"}, "2g"),
        ({"DOCKER_RESOURCE_GPUMEM": "1024", "CONVGPU_MEMORY": ""}, "1024m"),
        # Swarm's other kind of generic resource is a set of names.
        ({"DOCKER_RESOURCE_GPUMEM": "one,two"}, ""),
        ({"DOCKER_RESOURCE_GPUMEM": ""}, ""),
        ({"CONVGPU_MEMORY": "9" * 100}, "9" * 63),
    ],
)
def test_the_limit_of_the_environment(start: Start, scheduler: ScriptedScheduler, environment, memory) -> None:
    start(**environment).begin("init 0")
    assert scheduler.accept()[1].memory == memory


def test_a_scheduler_that_is_gone_is_said_so(start: Start, scheduler: ScriptedScheduler) -> None:
    scheduler._listener.close()
    program = start()
    assert program.call("init 0").code == SYSTEM_NOT_READY
    assert "(nobody listens)" in program.end()[0]


def test_a_refusal_is_shown_to_the_user(start: Start, scheduler: ScriptedScheduler) -> None:
    program = start()
    program.begin("init 0")
    peer, _hello = scheduler.accept()
    peer.send(Failed(Failure.NO_LIMIT, "no limit: set CONVGPU_MEMORY\nor else"), 1)
    assert program.result().code == SYSTEM_NOT_READY
    [line] = program.end()
    reason = "no limit: set CONVGPU_MEMORY or else"
    assert line == f"convgpu: the scheduler refuses this process: {reason}. CUDA is not available to it.\n"


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"\x10",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        bytes(64),
        b"\x0f\0\0\0\x02\0\x10\0" + bytes(8),
        b"\xff\xff\xff\xff\x02\0\x10\0" + bytes(8),
        b"\x18\0\0\0\x01\0\x10\0" + bytes(16),
        b"\x18\0\0\0\x02\0\x10\0" + bytes(8) + b"\x01\0\0\0\0\x10\0\0",  # a row is missing, and the page
        b"\x18\0\0\0\x02\0\x10\0" + bytes(16),  # no page
        b"\x20\0\0\0\x02\0\x11\0" + bytes(24),  # ACCEPTED
    ],
)
def test_nonsense_instead_of_a_welcome(start: Start, scheduler: ScriptedScheduler, reply: bytes) -> None:
    program = start()
    program.begin("init 0")
    peer, _hello = scheduler.accept()
    peer.send_raw(reply)
    scheduler.close()
    assert program.result().code == SYSTEM_NOT_READY
    lines = program.end()
    assert len(lines) == 1
    assert "no scheduler at" in lines[0]


def test_a_scheduler_that_is_away_when_a_program_starts_is_waited_for(
    start: Start, scheduler: ScriptedScheduler, tmp_path: Path, hook: Path
) -> None:
    program = start()
    program.begin("init 0")
    scheduler.accept()
    scheduler.die()
    with ScriptedScheduler(tmp_path / "next.sock", hook / "libconvgpu-page.so") as restarted:
        restarted.path.rename(scheduler.path)
        peer, _hello = restarted.accept()
        peer.welcome((row(),))
        assert program.result().code == SUCCESS
        assert program.end() == []


def test_a_later_scheduler_is_found(start: Start, tmp_path: Path, hook: Path) -> None:
    program = start()
    assert program.call("init 0").code == SYSTEM_NOT_READY
    with ScriptedScheduler(tmp_path / "scheduler.sock", hook / "libconvgpu-page.so") as scheduler:
        program.begin("init 0")
        peer, _hello = scheduler.accept()
        peer.welcome((row(),))
        assert program.result().code == SUCCESS


def test_threads_pause_alone_and_a_free_ends_the_pause(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=4 * MIB)
    program, peer = session.program, session.peer
    assert program.call("join").code == SUCCESS
    held = program.call("alloc 4194304").number
    asked = []
    for thread in (1, 2):
        assert program.call("join", thread).code == SUCCESS
        program.begin("alloc 2097152", thread)
        request, message = peer.receive()
        assert message == Allocate(0, 2 * MIB, "cuMemAlloc")
        asked.append(request)
    session.page.arm(0, armed=True)
    assert program.call(f"free {held}").code == SUCCESS
    assert peer.receive() == (0, Freed(0))
    assert session.page.take_all(0) == 4 * MIB
    assert not program.returned(1)
    assert not program.returned(2)
    for thread, request in reversed(list(zip((1, 2), asked, strict=True))):  # answers come in any order
        peer.send(Accepted(2 * MIB, 0), request)
        assert program.result(thread).code == SUCCESS


def test_signal_handlers_run_in_a_paused_program(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler)
    session.program.begin("alloc 512")
    request, _message = session.peer.receive()
    for turn in range(1, 4):
        assert session.program.call("kick 0", thread=1).code == SUCCESS
        wait_until(lambda turn=turn: session.program.call("signals", thread=1).number == turn)
    tasks = Path(f"/proc/{session.program.pid}/task").iterdir()
    [service] = [task for task in tasks if (task / "comm").read_text() == "convgpu\n"]
    blocked = next(line for line in (service / "status").read_text().splitlines() if line.startswith("SigBlk:"))
    assert int(blocked.split()[1], 16) & 1 << (signal.SIGUSR1 - 1)
    assert not session.program.returned()
    session.peer.send(Accepted(512, 0), request)
    assert session.program.result().code == SUCCESS


@pytest.mark.forks
def test_a_child_has_its_own_session(start: Start, scheduler: ScriptedScheduler) -> None:
    program = start()
    program.begin("alloc 4096")  # connects, but the driver is not initialised, so that it will be in the child
    parent, _hello = scheduler.accept()
    parents_page = parent.welcome((row(),))
    assert program.result().code == NOT_INITIALIZED
    program.begin("fork 4096")
    peer, hello = scheduler.accept()
    assert hello.pid != program.pid
    assert hello.held == ()
    page = peer.welcome((row(),))
    page.give(0, 4 * MIB)
    request, message = peer.receive()
    assert message == Context(0, 0, 0)
    peer.send(ContextSize(0), request)
    assert program.result().numbers == (SUCCESS,)
    assert peer.at_end()
    assert (parents_page.read(0), page.read(0)) == (0, 2 * MIB)
    assert parent.silent()


@pytest.mark.forks
def test_a_child_of_a_cuda_process_gets_the_drivers_answer(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=GIB)
    session.program.begin("fork 4096")
    peer, hello = scheduler.accept()
    assert hello.held == ()
    peer.welcome((row(),))
    assert session.program.result().numbers == (NOT_INITIALIZED,)
    assert peer.at_end()
    assert session.program.call("alloc 4096").code == SUCCESS
    assert session.page.read(0) == GIB - 2 * MIB


@pytest.mark.forks
def test_a_child_does_not_hold_the_parents_connection(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=GIB)
    child = session.program.call("spawn 0").number
    try:
        session.program.signal(signal.SIGKILL)
        assert session.peer.at_end()
        assert Path(f"/proc/{child}").exists()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_program_that_closes_descriptors_that_it_does_not_know(
    start: Start, scheduler: ScriptedScheduler, tmp_path: Path
) -> None:
    """The number of our socket is a file of its own then; we find out within 2 s, and leave the file alone."""
    session = open_session(start(), scheduler, headroom=GIB)
    program = session.program
    assert program.call(f"alloc {100 * MIB}").code == SUCCESS
    own = tmp_path / "own"
    own.write_bytes(bytes(64))
    [stolen] = program.call(f"steal {own}").numbers
    assert stolen >= 960  # where no file of a program comes by chance
    program.begin(f"alloc {2 * GIB}")
    peer, hello = scheduler.accept()
    assert (hello.pid, [size for _uuid, size in hello.held]) == (program.pid, [100 * MIB])
    peer.welcome((row(),))
    request, message = peer.receive()
    assert message == Allocate(0, 2 * GIB, "cuMemAlloc")
    peer.send(Accepted(2 * GIB, 0), request)
    assert program.result().code == SUCCESS
    assert Path(f"/proc/{program.pid}/fd/{stolen}").readlink() == own
    assert own.read_bytes() == bytes(64)
    assert Path(f"/proc/{program.pid}/fdinfo/{stolen}").read_text().split()[:2] == ["pos:", "0"]


def test_a_rejection_after_the_container_ended(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler)
    session.program.begin("alloc 4096")
    session.peer.receive()
    session.peer.send(Failed(Failure.ORDER, "the container was removed"))
    assert session.program.result().code == OUT_OF_MEMORY
    assert session.program.end() == [
        "convgpu: the scheduler refuses this process: the container was removed. New GPU memory is rejected.\n"
    ]
