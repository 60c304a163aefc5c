"""What no call should be given: the program sees the driver's own answer, and the account stays right."""

import re
from collections.abc import Callable

import pytest
from compiled import ROOT
from hooked_program import INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, Program, Result
from scripted_scheduler import POLL, ScriptedScheduler
from scripted_session import GIB, MIB, Session, open_session

from convgpu.protocol.messages import Allocate, Query, Rejected, Usage
from convgpu.protocol.wire import Reason

Start = Callable[..., Program]
SYMBOLS = re.findall(r"X\((\w+),\s+\w+,\s+\d+,", (ROOT / "hook/src/tables/hooked_calls.h").read_text())
LARGEST = 2**64 - 1
FLOAT = 0x20


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler) -> Session:
    """A program with a context and 4 GiB of headroom."""
    return open_session(start(), scheduler, headroom=4 * GIB)


@pytest.fixture
def alone(start: Start) -> Program:
    """The same program without the hook."""
    program = start(LD_PRELOAD="")
    assert program.call("init 0").code == SUCCESS
    assert program.call(f"use {program.call('retain 0').number}").code == SUCCESS
    return program


def answer(session: Session, command: str) -> Result:
    """Run a command; the scheduler rejects whatever is asked for."""
    session.program.begin(command)
    while not session.program.returned():
        if session.peer.silent(POLL):
            continue
        request, message = session.peer.receive()
        if isinstance(message, Query):
            session.peer.send(Usage(4 * GIB, 0, 0), request)
        else:
            assert isinstance(message, Allocate)
            session.peer.send(Rejected(Reason.LIMIT, 4 * GIB, 0), request)
    return session.program.result()


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_null_and_zero_everywhere(session: Session, alone: Program, symbol: str) -> None:
    """Each hooked call with NULL and 0 for all arguments."""
    hooked = answer(session, f"zero {symbol}")
    assert hooked == alone.call(f"zero {symbol}")
    if symbol == "cuStreamBeginCapture_v2_ptsz":  # it can: of the thread's default stream
        assert session.program.call("endcapture 2").code == SUCCESS
    ends = symbol.startswith(("cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxRelease"))
    assert session.page.read(0) == 4 * GIB
    if not ends:
        address = session.program.call(f"alloc {4 * MIB}").number
        assert session.page.read(0) == 4 * GIB - 4 * MIB
        assert session.program.call(f"free {address}").code == SUCCESS
        assert session.page.read(0) == 4 * GIB


@pytest.mark.parametrize(
    "command",
    [
        f"alloc {LARGEST}",
        f"alloc {LARGEST - 511}",
        f"managed {LARGEST} 1",
        f"pitch {LARGEST} {LARGEST}",
        f"pitch 1 {LARGEST}",
        f"async {LARGEST} 0",
        f"asyncp {LARGEST} 0",
        f"create {2**64 - 2 * MIB} 1 0",
        f"flat {2**40} {2**40} {FLOAT} 4",
        f"solid {2**20} {2**20} {2**20} {FLOAT} 4 0",
        f"mipmapped {2**20} {2**20} {2**20} {FLOAT} 4 30",
    ],
)
def test_sizes_that_nothing_has(session: Session, alone: Program, command: str) -> None:
    expected = alone.call(command)
    for _turn in range(2):
        hooked = answer(session, command)
        assert hooked.code in {expected.code, OUT_OF_MEMORY}
        assert hooked.values == expected.values
        assert session.page.read(0) == 4 * GIB


KINDS = {
    "linear": ("alloc 4194304", "free {}"),
    "small": ("alloc 100", "free {}"),
    "managed": ("managed 4194304 1", "free {}"),
    "linear, in a stream": ("alloc 4194304", "freeasync {} 0"),
    "pool": ("async 4194304 0", "freeasync {} 0"),
    "pool, not in a stream": ("async 4194304 0", "free {}"),
    "physical": ("create 4194304 1 0", "releasehandle {}"),
    "array": (f"flat 1024 1024 {FLOAT} 1", "destroyarray {}"),
    "mipmapped": (f"mipmapped 1024 1024 0 {FLOAT} 1 3", "destroymipmapped {}"),
    "module": ("module 0 0", "unload {}"),
    "library": ("library 0 0", "unloadlibrary {}"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_freed_twice(session: Session, alone: Program, kind: str) -> None:
    make, free = KINDS[kind]
    answers = []
    for program in (session.program, alone):
        made = program.call(make).number
        answers.append([program.call(free.format(made)).code for _turn in range(3)])
        assert program.call("syncall").code == SUCCESS
        assert program.call(f"trim {program.call('defaultpool 0').number} 0").code == SUCCESS
    assert answers[0] == answers[1]
    assert answers[0][0] == SUCCESS
    assert SUCCESS not in answers[0][1:]
    assert session.page.read(0) == 4 * GIB


EITHER = {"free {}", "freeasync {} 0"}
WRONG = [
    (make, own, free)
    for make, own in KINDS.values()
    for free in sorted({free for _make, free in KINDS.values()})
    if free != own and not {free, own} <= EITHER
]


@pytest.mark.parametrize(("make", "own", "free"), WRONG)
def test_what_is_freed_as_something_else(session: Session, alone: Program, make: str, own: str, free: str) -> None:
    """A foreign pointer or handle: of another kind of memory, within an allocation, or of nothing."""
    answers = []
    for program in (session.program, alone):
        made = program.call(make).number
        held = session.page.read(0)
        answers.append([program.call(free.format(value)).code for value in (made, made + 1, 4660)])
        assert session.page.read(0) == held
        assert program.call(own.format(made)).code == SUCCESS
        assert program.call("syncall").code == SUCCESS
        assert program.call(f"trim {program.call('defaultpool 0').number} 0").code == SUCCESS
    assert answers[0] == answers[1]
    assert SUCCESS not in answers[0]
    assert session.page.read(0) == 4 * GIB


def test_a_foreign_pointer_stays_the_drivers(session: Session) -> None:
    """The nearest peer answers -1 here, and leaks."""
    assert session.program.call(f"free {LARGEST}").code == INVALID_VALUE
    assert session.program.call(f"freeasync {LARGEST} 0").code == INVALID_VALUE
    assert session.page.read(0) == 4 * GIB
