"""What a program is told about memory: the container's figures, from the page where that is possible."""

from collections.abc import Callable
from pathlib import Path

import pytest
from daemon import Daemon, wait_until
from hooked_program import SUCCESS, Program, Result
from scripted_scheduler import POLL, ScriptedScheduler
from scripted_session import GIB, MIB, Session, open_session

from convgpu.protocol.messages import Query, Usage

Start = Callable[..., Program]
Join = Callable[[Path], Program]
CONTEXT = 526 * MIB


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler) -> Session:
    return open_session(start(), scheduler, headroom=GIB)


def test_a_process_that_is_alone_asks_nobody(session: Session) -> None:
    session.page.publish_limit(0, 3 * GIB, alone=True)
    assert session.program.call(f"alloc {100 * MIB}").code == SUCCESS
    assert session.program.call("info").numbers == (3 * GIB - 100 * MIB, 3 * GIB)
    session.page.publish_limit(0, 2 * GIB, alone=True)  # the limit was changed meanwhile
    assert session.program.call("info").numbers == (2 * GIB - 100 * MIB, 2 * GIB)
    assert session.program.call("total 0").numbers == (2 * GIB,)
    session.page.publish_limit(0, 64 * MIB, alone=True)  # below what is used
    assert session.program.call("info").numbers == (0, 64 * MIB)
    assert session.peer.silent()


def test_what_the_others_use_is_asked_for_seldom(session: Session) -> None:
    session.page.publish_limit(0, 4 * GIB, alone=False)
    session.program.begin("infos 20000")
    questions = 0
    while not session.program.returned():
        if not session.peer.silent(POLL):
            request, message = session.peer.receive()
            assert message == Query(0)
            session.peer.send(Usage(4 * GIB, GIB, 0), request)
            questions += 1
    unused, total, milliseconds = session.program.result().numbers
    assert (unused, total) == (3 * GIB, 4 * GIB)
    assert 1 <= questions <= milliseconds / 10 + 1


def test_a_question_that_is_never_answered_is_given_up(session: Session, scheduler: ScriptedScheduler) -> None:
    """After 5 s, and the connection with it; also in a program to which signals come all the time, as of a profiler."""

    def is_given_up() -> bool:
        assert session.program.call("kick 0", thread=1).code == SUCCESS
        return session.program.returned()

    session.program.begin("info")
    assert session.peer.receive()[1] == Query(0)
    wait_until(is_given_up, "the program goes on", seconds=60)
    assert session.program.result() == Result(SUCCESS, (str(4 * GIB), str(4 * GIB)))
    assert session.peer.at_end()
    _peer, hello = scheduler.accept()
    assert hello.pid == session.program.pid


def test_processes_of_a_container_see_each_other(daemon: Daemon, join: Join) -> None:
    folder = daemon.container("a", memory="4g")
    first = join(folder)
    assert first.call("info").numbers == (4 * GIB - CONTEXT, 4 * GIB)
    second = join(folder)
    assert first.call("info").numbers == (4 * GIB - 2 * CONTEXT, 4 * GIB)
    assert second.call(f"alloc {GIB}").code == SUCCESS
    join(daemon.container("b", memory="4g"))  # of which they see nothing
    first.call("infos 20000")  # more than the 10 ms for which an answer is kept
    assert [one.call("info").numbers for one in (first, second)] == [(3 * GIB - 2 * CONTEXT, 4 * GIB)] * 2
    second.kill()
    wait_until(lambda: first.call("info").numbers == (4 * GIB - CONTEXT, 4 * GIB), "the first is alone again")
