"""Memory that ended processes held comes back to the driver late: the hook waits for it, and no longer."""

from collections.abc import Callable

import pytest
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program, Result
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, Session, open_session, row

from convgpu.protocol.messages import Accepted, Allocate, Context, ContextSize, Query, Rejected, Usage
from convgpu.protocol.wire import Reason

Start = Callable[..., Program]


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler) -> Session:
    return open_session(start(), scheduler, row(limit=16 * GIB))


def answer_queries(session: Session, count: int, settling: int) -> None:
    for _turn in range(count):
        request, message = session.peer.receive()
        assert message == Query(0)
        session.peer.send(Usage(16 * GIB, 8 * GIB, settling), request)


def test_an_accepted_call_waits_until_the_driver_has_room(session: Session, holder: Program) -> None:
    session.program.begin(f"alloc {8 * GIB}")
    request, _message = session.peer.receive()
    session.peer.send(Accepted(8 * GIB, 10 * GIB), request)
    answer_queries(session, 3, 10 * GIB)
    assert not session.program.returned()
    holder.kill()
    allocated = session.program.result()
    assert allocated.code == SUCCESS


def test_a_refused_call_waits_while_something_settles(session: Session, holder: Program) -> None:
    session.page.give(0, 8 * GIB)
    session.program.begin(f"alloc {8 * GIB}")
    answer_queries(session, 3, 10 * GIB)
    assert not session.program.returned()
    holder.kill()
    assert session.program.result().code == SUCCESS
    assert session.page.read(0) == 0


@pytest.mark.usefixtures("holder")
def test_when_nothing_settles_any_more_the_drivers_word_counts(session: Session) -> None:
    session.program.begin(f"alloc {8 * GIB}")
    request, _message = session.peer.receive()
    session.peer.send(Accepted(8 * GIB, GIB), request)
    answer_queries(session, 2, GIB)
    answer_queries(session, 1, 0)
    request, message = session.peer.receive()
    assert message == Allocate(0, 8 * GIB, "cuMemAlloc", flags=1)
    assert session.page.read(0) == 8 * GIB  # given back before it asks whether external memory is the reason
    session.peer.send(Rejected(Reason.DRIVER, 16 * GIB, 0), request)
    assert session.program.result() == Result(OUT_OF_MEMORY, ("0x5a5a",))
    assert session.page.read(0) == 8 * GIB


@pytest.mark.usefixtures("holder")
def test_a_scheduler_that_accepts_again_and_again_is_not_believed_for_ever(session: Session) -> None:
    session.page.give(0, 8 * GIB)
    session.program.begin(f"alloc {8 * GIB}")
    for _round in range(15):
        answer_queries(session, 1, 0)
        request, message = session.peer.receive()
        assert message == Allocate(0, 8 * GIB, "cuMemAlloc", flags=1)
        assert session.page.take_all(0) == 8 * GIB
        session.peer.send(Accepted(8 * GIB, 0), request)
    answer_queries(session, 1, 0)
    assert session.program.result() == Result(OUT_OF_MEMORY, ("0x5a5a",))
    assert session.page.read(0) == 8 * GIB


def test_settling_that_leaves_room_delays_nothing(session: Session) -> None:
    session.program.begin(f"alloc {8 * GIB}")
    request, _message = session.peer.receive()
    session.peer.send(Accepted(8 * GIB, GIB), request)
    assert session.program.result().code == SUCCESS


def test_a_context_waits_too(start: Start, scheduler: ScriptedScheduler, holder: Program) -> None:
    assert holder.call(f"alloc {5 * GIB + 400 * MIB}").code == SUCCESS
    session = open_session(start(), scheduler, row(context_size=512 * MIB), headroom=GIB, context=False)
    session.program.begin("create2 0")
    answer_queries(session, 3, 10 * GIB)
    assert not session.program.returned()
    holder.kill()
    while True:  # until it has tried again, it asks what settles
        request, message = session.peer.receive()
        if message == Context(0, 512 * MIB, 0):
            break
        assert message == Query(0)
        session.peer.send(Usage(16 * GIB, 0, 10 * GIB), request)
    session.peer.send(ContextSize(0), request)
    assert session.program.result().code == SUCCESS
