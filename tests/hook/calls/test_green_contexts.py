"""A green context holds the primary context of its device, which is charged while anybody holds it."""

from collections.abc import Callable

import pytest
from hooked_program import INVALID_CONTEXT, INVALID_DEVICE, OUT_OF_MEMORY, SUCCESS, Program, Result
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, Session, open_session, row

from convgpu.protocol.messages import Allocate, Context, ContextSize, Rejected
from convgpu.protocol.wire import Reason

Start = Callable[..., Program]


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler) -> Session:
    """A program without a context; one is expected to take 512 MiB; 1 GiB of headroom."""
    return open_session(start(), scheduler, row(context_size=512 * MIB), headroom=GIB, context=False)


def make(session: Session) -> int:
    """Let it make a green context, and with it the primary one."""
    session.program.begin("newgreen 0")
    request, message = session.peer.receive()
    assert message == Context(0, 512 * MIB, 0)
    session.peer.send(ContextSize(0), request)
    made = session.program.result()
    assert made.code == SUCCESS
    return made.number


def test_the_primary_context_begins_and_ends_with_green_ones(session: Session) -> None:
    first = make(session)
    second = session.program.call("newgreen 0").number
    assert session.page.read(0) == 512 * MIB
    assert session.program.call(f"destroygreen {first}").code == SUCCESS
    assert session.page.read(0) == 512 * MIB
    assert session.program.call(f"destroygreen {second}").code == SUCCESS
    assert session.page.read(0) == GIB
    assert session.program.call(f"destroygreen {second}").code == INVALID_CONTEXT
    assert session.page.read(0) == GIB


def test_it_outlives_the_programs_own_reference(session: Session) -> None:
    green = make(session)
    assert session.program.call("retain 0").code == SUCCESS
    assert session.program.call("release 0").code == SUCCESS
    assert session.page.read(0) == 512 * MIB
    assert session.program.call(f"destroygreen {green}").code == SUCCESS
    assert session.page.read(0) == GIB


def test_memory_in_a_green_context_goes_with_the_primary_one(session: Session) -> None:
    green = make(session)
    context = session.program.call(f"fromgreen {green}").number
    assert session.program.call(f"use {context}").code == SUCCESS
    assert session.program.call("alloc 4194304").code == SUCCESS
    assert session.page.read(0) == 508 * MIB
    assert session.program.call(f"destroygreen {green}").code == SUCCESS
    assert session.page.read(0) == GIB


def test_a_rejection_is_cudas_out_of_memory(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, row(context_size=512 * MIB), context=False)
    session.program.begin("newgreen 0")
    request, message = session.peer.receive()
    assert message == Allocate(0, 512 * MIB, "cuDevicePrimaryCtxRetain")
    session.peer.send(Rejected(Reason.LIMIT, GIB, GIB), request)
    assert session.program.result() == Result(OUT_OF_MEMORY, ("0x5a5a",))


def test_the_drivers_own_answers_pass_unchanged(session: Session) -> None:
    assert session.program.call("newgreen 7").code == INVALID_DEVICE
    assert session.program.call("destroygreen 4660").code == INVALID_CONTEXT
    assert session.program.call("newgreen 1").code == OUT_OF_MEMORY  # no limit there
    assert session.page.read(0) == GIB
