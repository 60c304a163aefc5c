"""Memory settles while the scheduler is away, and nobody can tell that this is over: a call does not wait for ever."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from daemon import wait_until
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, Session, open_session, row

from convgpu.protocol.messages import Accepted, Allocate

Start = Callable[..., Program]
SIZE = 8 * GIB


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler, holder: Program) -> Session:
    """A program whose allocation was accepted and waits for what settles; then the scheduler was killed."""
    session = open_session(start(), scheduler, row(limit=16 * GIB))
    assert session.program.call(f"kickby {int(signal.SIGINT)}", thread=1).code == SUCCESS
    session.program.begin(f"alloc {SIZE}")
    request, message = session.peer.receive()
    assert message == Allocate(0, SIZE, "cuMemAlloc")
    session.peer.send(Accepted(SIZE, 10 * GIB), request)
    session.peer.receive()  # it asks what settles, so it waits
    scheduler.die()
    assert not session.program.returned()
    assert not holder.returned()
    return session


def test_an_interrupt_ends_the_wait(session: Session) -> None:
    def is_interrupted() -> bool:
        assert session.program.call("kick 0", thread=1).code == SUCCESS
        return session.program.returned()

    wait_until(is_interrupted, "the call ends", seconds=60)
    assert session.program.result().code == OUT_OF_MEMORY


def test_an_interrupt_is_not_seen_in_the_timer_of_a_profiler(session: Session) -> None:
    """Every handler ends a sleep, and this one lets calls go on."""
    program = session.program
    assert program.call(f"kickby {int(signal.SIGPROF)} 1", thread=1).code == SUCCESS
    for turn in range(1, 10):
        assert program.call("kick 0", thread=1).code == SUCCESS
        wait_until(lambda turn=turn: program.call("signals", thread=1).number == turn, "it is handled")
    assert not program.returned()


def test_after_ten_seconds_the_scheduler_is_waited_for(
    session: Session, scheduler: ScriptedScheduler, holder: Program, tmp_path: Path, hook: Path
) -> None:
    """As for any memory that the driver does not have: what is paused is seen, and ends with the option `wait`."""
    program = session.program
    # While it waits for what settles it stands in a futex for moments only.
    wait_until(lambda: program.stands_in_futex(1), "it asks the scheduler", seconds=60)
    with ScriptedScheduler(tmp_path / "next.sock", hook / "libconvgpu-page.so") as restarted:
        restarted.path.rename(scheduler.path)
        peer, _hello = restarted.accept()
        peer.welcome((row(limit=16 * GIB),))
        request, message = peer.receive()
        assert message == Allocate(0, SIZE, "cuMemAlloc", flags=1)
        holder.kill()
        peer.send(Accepted(SIZE, 0), request)
        assert program.result().code == SUCCESS
