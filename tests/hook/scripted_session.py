"""A program and the scripted scheduler, brought to the point where the program has a context."""

from dataclasses import dataclass
from uuid import UUID

from hooked_program import SUCCESS, Program, Result
from scripted_scheduler import Page, Peer, ScriptedScheduler

from convgpu.protocol.messages import Context, ContextSize, DeviceRow
from convgpu.protocol.residency.messages import Able
from convgpu.protocol.wire import AbleFlag, Mover, PageFlag

MIB = 1 << 20
GIB = 1 << 30
UUIDS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{ordinal + 1}" for ordinal in range(2))
BINARY_UUIDS = tuple(UUID(uuid.removeprefix("GPU-")).bytes for uuid in UUIDS)


def row(limit: int = 4 * GIB, context_size: int = 0, device: int = 0) -> DeviceRow:
    """A row of WELCOME for one of the simulated devices."""
    return DeviceRow(BINARY_UUIDS[device], limit, context_size)


@dataclass
class Session:
    """Both ends: the program, and what the scheduler sees of it."""

    program: Program
    peer: Peer
    page: Page
    context: int


def open_session(
    program: Program,
    scheduler: ScriptedScheduler,
    *rows: DeviceRow,
    headroom: int = 0,
    context: bool = True,
    flags: int = 0,
) -> Session:
    """Let the program call cuInit and retain its primary context, whose size nobody knows."""
    program.begin("init 0")
    peer, hello = scheduler.accept()
    assert (hello.pid, hello.held) == (program.pid, ())
    page = peer.welcome(rows or (row(),), flags)
    page.give(0, headroom)
    if flags & PageFlag.ELASTIC:
        page.give_fixed(0, headroom)
    assert program.result().code == SUCCESS
    if flags & PageFlag.ELASTIC:
        _request, able = peer.receive()
        assert isinstance(able, Able)
        assert (able.mover, able.flags & AbleFlag.CAPTURES) == (Mover.VMM, AbleFlag.CAPTURES)
    if not context:
        return Session(program, peer, page, 0)
    program.begin("retain 0")
    request, message = peer.receive()
    assert message == Context(0, 0, 0)
    peer.send(ContextSize(0), request)
    retained = program.result()
    assert retained.code == SUCCESS
    assert program.call(f"use {retained.number}").code == SUCCESS
    return Session(program, peer, page, retained.number)


def call(session: Session, command: str) -> Result:
    """Let the program carry out a command, which must succeed."""
    result = session.program.call(command)
    assert result.code == SUCCESS, command
    return result


def charged(session: Session, headroom: int = 4 * GIB) -> int:
    """The bytes of the first device that the program took of its headroom."""
    return headroom - session.page.read(0)
