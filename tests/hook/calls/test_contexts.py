"""Contexts are memory too: charged when they are made, corrected to what the driver takes, returned at their end."""

from collections.abc import Callable

import pytest
from hooked_program import INVALID_CONTEXT, OUT_OF_MEMORY, SUCCESS, Program, Result
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, Session, open_session, row

from convgpu.protocol.messages import Accepted, Allocate, Context, ContextSize, Rejected
from convgpu.protocol.wire import Reason

Start = Callable[..., Program]
FORMS = ("1", "2", "3", "4", "gl", "gl1", "vdpau", "vdpau1")
CREATE = ("retain 0", *(f"create{form} 0" for form in FORMS))
CALLS = {"retain": "cuDevicePrimaryCtxRetain", "creategl": "cuGLCtxCreate", "createvdpau": "cuVDPAUCtxCreate"}
HEADROOM = GIB


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler) -> Session:
    """A program without a context; one is expected to take 512 MiB; 1 GiB of headroom."""
    return open_session(start(), scheduler, row(context_size=512 * MIB), headroom=HEADROOM, context=False)


def create(session: Session, command: str, charged: int, size: int, used: int = 0) -> int:
    """Let it create a context, and say what its contexts take; returns the handle."""
    session.program.begin(command)
    request, message = session.peer.receive()
    assert message == Context(0, charged, used)
    session.peer.send(ContextSize(size), request)
    created = session.program.result()
    assert created.code == SUCCESS
    return created.number


def destroy(session: Session, command: str, charged: int, used: int = 0) -> None:
    """Let it destroy one of several contexts, which has the others measured; they take what they are charged."""
    session.program.begin(command)
    request, message = session.peer.receive()
    assert message == Context(0, charged, used)
    session.peer.send(ContextSize(charged), request)
    assert session.program.result().code == SUCCESS


def end(session: Session, command: str, context: int) -> None:
    ending = "release 0" if command.startswith("retain") else f"destroy {context}"
    assert session.program.call(ending).code == SUCCESS


@pytest.mark.parametrize("command", CREATE)
@pytest.mark.parametrize("size", [0, 512 * MIB, 300 * MIB, 700 * MIB])
def test_a_context_is_charged_and_corrected(session: Session, command: str, size: int) -> None:
    context = create(session, command, 512 * MIB, size)
    assert session.page.read(0) == HEADROOM - (size or 512 * MIB)
    end(session, command, context)
    assert session.page.read(0) == HEADROOM
    assert session.peer.silent()


@pytest.mark.parametrize("command", CREATE)
def test_a_context_can_be_paused_and_rejected(start: Start, scheduler: ScriptedScheduler, command: str) -> None:
    session = open_session(start(), scheduler, row(context_size=512 * MIB), context=False)
    session.program.begin(command)
    request, message = session.peer.receive()
    assert message == Allocate(0, 512 * MIB, CALLS.get(command.split(maxsplit=1)[0].removesuffix("1"), "cuCtxCreate"))
    session.peer.send(Rejected(Reason.LIMIT, 4 * GIB, 4 * GIB), request)
    assert session.program.result() == Result(OUT_OF_MEMORY, ("0x5a5a",))
    session.program.begin(command)
    request, _message = session.peer.receive()
    session.peer.send(Accepted(512 * MIB, 0), request)
    request, message = session.peer.receive()
    assert message == Context(0, 512 * MIB, 0)
    session.peer.send(ContextSize(0), request)
    assert session.program.result().code == SUCCESS


@pytest.mark.parametrize(
    ("limit", "why"),
    [(100 * MIB, "a CUDA context alone takes more than the limit: raise it"), (GIB, "it would exceed the limit")],
)
def test_a_limit_below_a_context_is_said(start: Start, scheduler: ScriptedScheduler, limit: int, why: str) -> None:
    session = open_session(start(), scheduler, row(context_size=512 * MIB), context=False)
    session.program.begin("retain 0")
    request, _message = session.peer.receive()
    session.peer.send(Rejected(Reason.LIMIT, limit, 0), request)
    assert session.program.result().code == OUT_OF_MEMORY
    [line] = session.program.end()
    assert line.startswith(f"convgpu: cuDevicePrimaryCtxRetain of 512MiB on device 0 rejected: {why} (limit ")


@pytest.mark.parametrize("command", CREATE)
def test_a_context_that_turns_out_too_large_is_undone(session: Session, command: str) -> None:
    session.program.begin(command)
    request, _message = session.peer.receive()
    session.peer.send(ContextSize(2 * GIB), request)
    request, message = session.peer.receive()
    assert isinstance(message, Allocate)
    assert message.size == 2 * GIB - 512 * MIB
    session.peer.send(Rejected(Reason.LIMIT, GIB, 512 * MIB), request)
    assert session.program.result() == Result(OUT_OF_MEMORY, ("0x5a5a",))
    assert session.page.read(0) == HEADROOM
    assert session.program.call("release 0").code == INVALID_CONTEXT


def test_a_primary_context_is_charged_once(session: Session) -> None:
    create(session, "retain 0", 512 * MIB, 0)
    assert session.program.call("retain 0").code == SUCCESS
    assert session.page.read(0) == HEADROOM - 512 * MIB
    assert session.program.call("release 0").code == SUCCESS
    assert session.page.read(0) == HEADROOM - 512 * MIB
    assert session.program.call("release1 0").code == SUCCESS
    assert session.page.read(0) == HEADROOM
    assert session.program.call("release 0").code == INVALID_CONTEXT
    assert session.page.read(0) == HEADROOM


def test_the_correction_is_for_all_contexts_of_the_process(session: Session) -> None:
    create(session, "retain 0", 512 * MIB, 400 * MIB)
    created = create(session, "create2 0", 912 * MIB, 600 * MIB)
    assert session.page.read(0) == HEADROOM - 600 * MIB
    destroy(session, f"destroy1 {created}", 400 * MIB)
    assert session.page.read(0) == HEADROOM - 400 * MIB


@pytest.mark.parametrize("ending", ["release 0", "release1 0", "reset 0", "reset1 0"])
def test_memory_goes_with_its_primary_context(session: Session, ending: str) -> None:
    context = create(session, "retain 0", 512 * MIB, 0)
    assert session.program.call(f"use {context}").code == SUCCESS
    for size in (512, 4096, 8 * MIB):
        assert session.program.call(f"alloc {size}").code == SUCCESS
    assert session.page.read(0) == HEADROOM - 522 * MIB
    assert session.program.call(ending).code == SUCCESS
    assert session.page.read(0) == HEADROOM


def test_memory_goes_with_the_context_it_was_made_in(session: Session) -> None:
    primary = create(session, "retain 0", 512 * MIB, 100 * MIB)
    assert session.program.call(f"use {primary}").code == SUCCESS
    assert session.program.call("alloc 4194304").code == SUCCESS
    created = create(session, "create4 0", 612 * MIB, 200 * MIB, used=4 * MIB)  # and is current now
    assert session.program.call("alloc 8388608").code == SUCCESS
    assert session.page.read(0) == HEADROOM - 212 * MIB
    destroy(session, f"destroy {created}", 100 * MIB, used=4 * MIB)
    assert session.page.read(0) == HEADROOM - 104 * MIB


def test_a_destroy_that_fails_changes_nothing(session: Session) -> None:
    primary = create(session, "retain 0", 512 * MIB, 0)
    assert session.program.call(f"use {primary}").code == SUCCESS
    address = session.program.call("alloc 512").number
    assert session.program.call(f"destroy {primary}").code == INVALID_CONTEXT
    assert session.program.call(f"free {address}").code == SUCCESS
    assert session.page.read(0) == HEADROOM - 512 * MIB


def test_the_last_detach_ends_a_context(session: Session) -> None:
    context = create(session, "create2 0", 512 * MIB, 0)
    assert session.program.call(f"alloc {8 * MIB}").code == SUCCESS
    assert session.program.call("attach").number == context
    assert session.program.call("attach").number == context
    for _time in range(2):
        assert session.program.call(f"detach {context}").code == SUCCESS
        assert session.page.read(0) == HEADROOM - 520 * MIB
    assert session.program.call(f"detach {context}").code == SUCCESS
    assert session.page.read(0) == HEADROOM
    assert session.program.call(f"detach {context}").code == INVALID_CONTEXT
    assert session.page.read(0) == HEADROOM


def test_a_context_that_is_attached_is_destroyed_at_once(session: Session) -> None:
    context = create(session, "create2 0", 512 * MIB, 0)
    assert session.program.call("attach").number == context
    assert session.program.call(f"destroy {context}").code == SUCCESS
    assert session.page.read(0) == HEADROOM


def test_a_primary_context_outlives_a_detach(session: Session) -> None:
    primary = create(session, "retain 0", 512 * MIB, 0)
    assert session.program.call(f"use {primary}").code == SUCCESS
    assert session.program.call(f"detach {primary}").code == SUCCESS
    assert session.page.read(0) == HEADROOM - 512 * MIB
    assert session.program.call("release 0").code == SUCCESS
    assert session.page.read(0) == HEADROOM


def test_a_destroy_ends_the_pause_of_another_creation(session: Session) -> None:
    first = create(session, "create2 0", 512 * MIB, 900 * MIB)
    session.program.begin("create2 0", thread=1)
    request, message = session.peer.receive()
    assert message == Allocate(0, 512 * MIB, "cuCtxCreate")
    assert session.program.call(f"destroy {first}").code == SUCCESS
    assert session.page.take_all(0) == GIB
    session.peer.send(Accepted(512 * MIB, 0), request)
    request, message = session.peer.receive()
    assert message == Context(0, 512 * MIB, 0)
    session.peer.send(ContextSize(0), request)
    assert session.program.result(thread=1).code == SUCCESS
