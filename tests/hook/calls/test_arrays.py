"""Arrays are charged by what a card lays out for them at most; a table of shapes as measured on one."""

from collections.abc import Callable

import pytest
from hooked_program import INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, Program, Result
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, Session, call, charged, open_session

from convgpu.protocol.messages import Accepted, Allocate, Rejected
from convgpu.protocol.wire import Reason

Start = Callable[..., Program]
UNTOUCHED = "0x5a5a"
BYTE, HALF, FLOAT = 0x01, 0x10, 0x20
LAYERED, CUBEMAP, SPARSE, DEFERRED = 0x01, 0x04, 0x40, 0x80


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler) -> Session:
    """A program with a context and 4 GiB of headroom."""
    return open_session(start(), scheduler, headroom=4 * GIB)


@pytest.mark.parametrize(
    ("shape", "charge", "card"),
    [
        (f"131072 0 0 {FLOAT} 4 0", 16, 16),
        (f"1024 1024 0 {FLOAT} 1 0", 4, 4),
        (f"4096 4096 0 {FLOAT} 4 0", 256, 256),
        (f"5000 5000 0 {FLOAT} 1 0", 98, 98),
        (f"3 60000 0 {FLOAT} 1 0", 4, 4),
        (f"60000 3 0 {FLOAT} 1 0", 2, 2),
        (f"70 30000 0 {BYTE} 1 0", 4, 4),
        (f"130 130 130 {FLOAT} 1 0", 14, 12),
        (f"9 9 9000 {FLOAT} 4 0", 28, 28),
        (f"1000 9 100 {HALF} 2 {LAYERED}", 8, 8),
        (f"9 9 2000 {FLOAT} 4 {LAYERED}", 6, 6),
        (f"16000 16000 0 {BYTE} 1 2", 246, 246),
    ],
)
def test_an_array_is_charged_by_its_shape(session: Session, shape: str, charge: int, card: int) -> None:
    """`card`: MiB that each of eight such arrays took of an H200 with driver 580.159."""
    assert card <= charge <= card * 1.2
    array = call(session, f"solid {shape}").number
    assert charged(session) == charge * MIB
    call(session, f"destroyarray {array}")
    assert charged(session) == 0
    assert session.peer.silent()


@pytest.mark.parametrize(
    ("shape", "charge", "card"),
    [(f"2048 2048 0 {FLOAT} 4 12", 86, 86), (f"100 100 100 {FLOAT} 4 7", 26, 22), (f"1024 1024 0 {FLOAT} 1 0", 4, 4)],
)
def test_a_mipmapped_array_is_charged_with_its_levels(session: Session, shape: str, charge: int, card: int) -> None:
    assert card <= charge <= card * 1.2
    array = call(session, f"mipmapped {shape}").number
    assert charged(session) == charge * MIB
    call(session, f"destroymipmapped {array}")
    assert charged(session) == 0


@pytest.mark.parametrize("create", ["flat", "flat1"])
def test_a_flat_array(session: Session, create: str) -> None:
    array = call(session, f"{create} 1024 1024 {FLOAT} 1").number
    assert charged(session) == 4 * MIB
    call(session, f"destroyarray {array}")
    assert charged(session) == 0


def test_the_first_form_of_a_solid_one(session: Session) -> None:
    array = call(session, f"solid1 64 64 64 {BYTE} 4 0").number
    assert charged(session) == 2 * MIB
    call(session, f"destroyarray {array}")
    assert charged(session) == 0


@pytest.mark.parametrize("flags", [SPARSE, DEFERRED])
def test_an_array_without_memory_of_its_own_is_not_charged(session: Session, flags: int) -> None:
    call(session, f"solid 4096 4096 0 {FLOAT} 4 {flags}")
    assert charged(session) == 0


def test_a_cube_has_six_faces(session: Session) -> None:
    call(session, f"solid 1024 1024 6 {FLOAT} 1 {CUBEMAP}")
    assert charged(session) == 24 * MIB


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (f"flat 1024 1024 {FLOAT} 1", "cuArrayCreate"),
        (f"flat1 1024 1024 {FLOAT} 1", "cuArrayCreate"),
        (f"solid 1024 1024 0 {FLOAT} 1 0", "cuArray3DCreate"),
        (f"solid1 1024 1024 0 {FLOAT} 1 0", "cuArray3DCreate"),
        (f"mipmapped 1024 1024 0 {FLOAT} 1 1", "cuMipmappedArrayCreate"),
    ],
)
def test_a_rejection_is_cudas_out_of_memory(
    start: Start, scheduler: ScriptedScheduler, command: str, name: str
) -> None:
    session = open_session(start(), scheduler)
    session.program.begin(command)
    request, message = session.peer.receive()
    assert message == Allocate(0, 4 * MIB, name)
    session.peer.send(Rejected(Reason.LIMIT, GIB, GIB), request)
    assert session.program.result() == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    session.program.begin(command)
    request, _message = session.peer.receive()
    session.peer.send(Accepted(4 * MIB, 0), request)
    assert session.program.result().code == SUCCESS
    assert session.page.read(0) == 0


def test_arrays_go_with_their_context(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=GIB)
    call(session, f"flat 1024 1024 {FLOAT} 1")
    call(session, f"mipmapped 1024 1024 0 {FLOAT} 1 1")
    assert session.page.read(0) == GIB - 8 * MIB
    call(session, "release 0")
    assert session.page.read(0) == GIB


@pytest.mark.parametrize(
    "command",
    [
        f"flat 0 0 {FLOAT} 1",
        f"flat 1024 1024 {FLOAT} 3",
        f"solid {2**60} 1024 1024 {FLOAT} 4 0",
        f"mipmapped 1024 1024 0 {FLOAT} 3 1",
    ],
)
def test_the_drivers_own_answers_pass_unchanged(session: Session, start: Start, command: str) -> None:
    alone = start(LD_PRELOAD="")
    assert alone.call("init 0").code == SUCCESS
    assert alone.call(f"use {alone.call('retain 0').number}").code == SUCCESS
    hooked = session.program.call(command)
    assert hooked == alone.call(command)
    assert hooked.code == INVALID_VALUE
    assert charged(session) == 0
    assert session.peer.silent()
