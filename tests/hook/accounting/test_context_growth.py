"""What contexts grow (code, stacks, heaps) is charged before the last memory is handed out."""

import time
from collections.abc import Callable

import pytest
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program, Result
from scripted_scheduler import POLL, ScriptedScheduler
from scripted_session import GIB, MIB, Session, open_session, row

from convgpu.protocol.messages import Accepted, Allocate, Context, ContextSize, Rejected
from convgpu.protocol.wire import Reason

Start = Callable[..., Program]
CONTEXT = 512 * MIB
LIMIT = 2 * GIB
ALLOCATE = "alloc {}"
SPARED = 0.004  # seconds: a look is spared for 5 ms after one, by a clock that may be 1 ms ahead
MAKE = [ALLOCATE, "async {} 0", "create {} 1 0"]


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler) -> Session:
    """A program whose context takes 512 of 2,048 MiB by the driver's own count."""
    session = open_session(start(), scheduler, row(LIMIT, CONTEXT), headroom=LIMIT, context=False)
    session.program.begin("retain 0")
    measured(session, charged=CONTEXT, used=0, size=CONTEXT)
    assert session.program.call(f"use {session.program.result().number}").code == SUCCESS
    return session


def measured(session: Session, *, charged: int, used: int, size: int) -> None:
    """Expect the question what the contexts take, and answer it."""
    request, message = session.peer.receive()
    assert message == Context(0, charged, used)
    session.peer.send(ContextSize(size), request)


def fill(session: Session, size: int) -> int:
    """Allocate without a question."""
    allocated = session.program.call(ALLOCATE.format(size))
    assert allocated.code == SUCCESS
    assert session.peer.silent()
    return allocated.number


def test_few_questions_come_before_the_limit_and_none_after(session: Session) -> None:
    used, questions = 0, 0
    while True:
        session.program.begin(ALLOCATE.format(2 * MIB))
        if used == LIMIT - CONTEXT:
            break
        while not session.program.returned():
            if not session.peer.silent(POLL):
                measured(session, charged=CONTEXT, used=used, size=CONTEXT)
                questions += 1
        assert session.program.result().code == SUCCESS
        used += 2 * MIB
    assert questions == 9  # of 768, 384, 192, ... 4 MiB
    request, message = session.peer.receive()
    assert message == Allocate(0, 2 * MIB, "cuMemAlloc")
    session.peer.send(Rejected(Reason.LIMIT, LIMIT, LIMIT), request)
    assert session.program.result().code == OUT_OF_MEMORY


@pytest.mark.parametrize("command", MAKE)
def test_growth_is_charged_before_memory_is_handed_out(session: Session, command: str) -> None:
    session.program.begin(command.format(GIB))
    measured(session, charged=CONTEXT, used=0, size=CONTEXT + 100 * MIB)
    assert session.program.result().code == SUCCESS
    assert session.page.read(0) == LIMIT - CONTEXT - GIB - 100 * MIB
    assert session.peer.silent()


@pytest.mark.parametrize("command", MAKE)
def test_what_growth_has_taken_is_not_handed_out(session: Session, command: str) -> None:
    session.program.begin(command.format(LIMIT - CONTEXT))
    answered = 0
    while not session.program.returned():
        if session.peer.silent(POLL):
            continue
        request, message = session.peer.receive()
        if isinstance(message, Context):
            assert message == Context(0, CONTEXT, 0) if answered == 0 else Context(0, CONTEXT + 92 * MIB, 0)
            session.peer.send(ContextSize(CONTEXT + 92 * MIB), request)
        else:
            assert isinstance(message, Allocate)
            session.peer.send(Rejected(Reason.LIMIT, LIMIT, CONTEXT), request)
        answered += 1
    assert session.program.result().code == OUT_OF_MEMORY
    assert session.page.read(0) in {LIMIT - CONTEXT, LIMIT - CONTEXT - 92 * MIB}


def test_growth_that_cannot_be_had_is_owed(session: Session) -> None:
    """A full limit, and launches that loaded code: what is freed pays for that first."""
    first = fill(session, 700 * MIB)
    session.program.begin(ALLOCATE.format(LIMIT - CONTEXT - 700 * MIB))
    measured(session, charged=CONTEXT, used=700 * MIB, size=CONTEXT)
    assert session.program.result().code == SUCCESS
    assert session.page.read(0) == 0
    session.program.begin(ALLOCATE.format(4 * MIB))
    used = LIMIT - CONTEXT
    measured(session, charged=CONTEXT, used=used, size=CONTEXT + 88 * MIB)
    request, message = session.peer.receive()
    assert message == Allocate(0, 88 * MIB, "cuMemAlloc")
    session.peer.send(Rejected(Reason.LIMIT, LIMIT, LIMIT), request)
    assert session.program.result() == Result(OUT_OF_MEMORY, ("0x5a5a",))
    assert session.program.call(f"free {first}").code == SUCCESS
    assert session.page.read(0) == 700 * MIB
    session.program.begin(ALLOCATE.format(2 * MIB))
    measured(session, charged=CONTEXT, used=used - 700 * MIB, size=CONTEXT + 88 * MIB)
    assert session.program.result().code == SUCCESS
    assert session.page.read(0) == 700 * MIB - 90 * MIB


def test_growth_can_be_waited_for(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, row(LIMIT, CONTEXT), headroom=GIB, context=False)
    session.program.begin("retain 0")
    measured(session, charged=CONTEXT, used=0, size=CONTEXT)
    session.program.call(f"use {session.program.result().number}")
    session.program.begin(ALLOCATE.format(512 * MIB))
    measured(session, charged=CONTEXT, used=0, size=CONTEXT + 88 * MIB)
    request, message = session.peer.receive()
    assert message == Allocate(0, 88 * MIB, "cuMemAlloc")
    assert not session.program.returned()
    session.peer.send(Accepted(88 * MIB, 0), request)
    assert session.program.result().code == SUCCESS
    assert session.page.read(0) == 0


def test_a_fall_of_what_had_grown_is_given_back(session: Session) -> None:
    session.program.begin(ALLOCATE.format(GIB))
    measured(session, charged=CONTEXT, used=0, size=CONTEXT + 100 * MIB)
    session.program.result()
    session.program.begin(ALLOCATE.format(300 * MIB))
    measured(session, charged=CONTEXT + 100 * MIB, used=GIB, size=CONTEXT - 100 * MIB)
    assert session.program.result().code == SUCCESS
    assert session.page.read(0) == LIMIT - CONTEXT - GIB - 300 * MIB  # what it took when it was made stays
    session.program.begin(ALLOCATE.format(2 * MIB))  # and the next look is soon
    measured(session, charged=CONTEXT, used=GIB + 300 * MIB, size=CONTEXT)
    assert session.program.result().code == SUCCESS


def test_growth_goes_with_the_last_context(session: Session) -> None:
    session.program.begin(ALLOCATE.format(GIB))
    measured(session, charged=CONTEXT, used=0, size=CONTEXT + 100 * MIB)
    session.program.result()
    assert session.program.call("release 0").code == SUCCESS
    assert session.page.read(0) == LIMIT
    assert session.peer.silent()


def test_what_nobody_can_count_is_not_asked_for(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, row(LIMIT, CONTEXT), headroom=LIMIT, context=False)
    session.program.begin("retain 0")
    measured(session, charged=CONTEXT, used=0, size=0)
    session.program.call(f"use {session.program.result().number}")
    fill(session, LIMIT - CONTEXT)
    assert session.page.read(0) == 0


def test_a_block_that_comes_and_goes_is_not_measured_each_time(session: Session) -> None:
    questions, begin = 0, time.monotonic()
    for _turn in range(200):
        session.program.begin(ALLOCATE.format(GIB))
        while not session.program.returned():
            if not session.peer.silent(POLL):
                measured(session, charged=CONTEXT, used=0, size=CONTEXT)
                questions += 1
        assert session.program.call(f"free {session.program.result().number}").code == SUCCESS
    assert 0 < questions <= 2 + (time.monotonic() - begin) / SPARED


def asked_to_grow(session: Session, command: str, *, used: int, more: int, charged: int = CONTEXT) -> Result:
    """Let it do what makes the context grow by `more`, and say so."""
    session.program.begin(command)
    measured(session, charged=charged, used=used, size=charged + more)
    return session.program.result()


@pytest.mark.parametrize("load", ["module {} 0", "moduleex {} 0", "modulefat {} 0"])
def test_a_modules_variables_are_charged_when_it_is_loaded(session: Session, load: str) -> None:
    loaded = asked_to_grow(session, load.format(64 * MIB), used=0, more=64 * MIB)
    assert loaded.code == SUCCESS
    assert session.page.read(0) == LIMIT - CONTEXT - 64 * MIB
    session.program.begin(f"unload {loaded.number}")
    measured(session, charged=CONTEXT + 64 * MIB, used=0, size=CONTEXT)
    assert session.program.result().code == SUCCESS
    assert session.page.read(0) == LIMIT - CONTEXT


def test_a_module_beyond_the_limit_is_unloaded_again(session: Session) -> None:
    session.program.begin(f"module {4 * GIB} 0")
    measured(session, charged=CONTEXT, used=0, size=CONTEXT + 4 * GIB)
    request, message = session.peer.receive()
    assert message == Allocate(0, 4 * GIB, "cuModuleLoadData")
    session.peer.send(Rejected(Reason.LIMIT, LIMIT, CONTEXT), request)
    assert session.program.result() == Result(OUT_OF_MEMORY, ("0x5a5a",))
    assert session.page.read(0) == LIMIT - CONTEXT
    fill_up = asked_to_grow(session, ALLOCATE.format(2 * MIB), used=0, more=0)  # it was unloaded: nothing is owed
    assert fill_up.code == SUCCESS


@pytest.mark.parametrize("take", ["load {kernel}", "variable {library}"])
def test_a_librarys_variables_are_charged_when_they_come(session: Session, take: str) -> None:
    library = session.program.call(f"library {64 * MIB} 0").number
    kernel = session.program.call(f"kernel {library}").number
    assert session.peer.silent()
    command = take.format(library=library, kernel=kernel)
    assert asked_to_grow(session, command, used=0, more=64 * MIB).code == SUCCESS
    assert session.page.read(0) == LIMIT - CONTEXT - 64 * MIB
    session.program.begin(f"unloadlibrary {library}")
    measured(session, charged=CONTEXT + 64 * MIB, used=0, size=CONTEXT)
    assert session.program.result().code == SUCCESS
    assert session.page.read(0) == LIMIT - CONTEXT


def test_what_launches_load_is_charged_with_the_first_one(session: Session) -> None:
    module = session.program.call(f"module 0 {92 * MIB}").number
    function = session.program.call(f"function {module}").number
    assert asked_to_grow(session, f"launchkernel {function}", used=0, more=92 * MIB).code == SUCCESS
    assert session.page.read(0) == LIMIT - CONTEXT - 92 * MIB
    assert session.program.call(f"launchkernel {function}").code == SUCCESS
    assert session.peer.silent()


def test_a_module_that_takes_nothing_costs_no_question(session: Session) -> None:
    module = session.program.call("module 0 0").number
    assert session.program.call(f"unload {module}").code == SUCCESS
    assert session.peer.silent()


STACKS = 132 * 2048
"""Threads that the simulated device can run at a time."""


def test_larger_stacks_are_charged_before_they_are_taken(session: Session) -> None:
    assert session.program.call("stack 3072").code == SUCCESS
    assert session.page.read(0) == LIMIT - CONTEXT - 2048 * STACKS
    assert session.program.call("stack 2048").code == SUCCESS
    assert session.page.read(0) == LIMIT - CONTEXT - 1024 * STACKS
    assert session.peer.silent()
    session.program.begin("stack 32768")
    request, message = session.peer.receive()
    while isinstance(message, Context):
        session.peer.send(ContextSize(message.charged), request)
        request, message = session.peer.receive()
    assert message == Allocate(0, 30720 * STACKS, "cuCtxSetLimit")
    session.peer.send(Rejected(Reason.LIMIT, LIMIT, CONTEXT), request)
    assert session.program.result().code == OUT_OF_MEMORY
    assert session.page.read(0) == LIMIT - CONTEXT - 1024 * STACKS
    assert session.program.call("release 0").code == SUCCESS
    assert session.page.read(0) == LIMIT


@pytest.mark.parametrize("command", ["nullmodule", "unload 4660", "unloadlibrary 4660", "load 0", "stack 99999999999"])
def test_the_drivers_own_answers_pass_unchanged(session: Session, start: Start, command: str) -> None:
    alone = start(LD_PRELOAD="")
    assert alone.call("init 0").code == SUCCESS
    assert alone.call(f"use {alone.call('retain 0').number}").code == SUCCESS
    session.program.begin(command)
    while not session.program.returned():
        if not session.peer.silent(POLL):
            request, message = session.peer.receive()
            size = message.size if isinstance(message, Allocate) else 0
            session.peer.send(Accepted(size, 0) if size else ContextSize(CONTEXT), request)
    hooked = session.program.result()
    assert hooked == alone.call(command)
    assert hooked.code != SUCCESS
    assert session.page.read(0) >= LIMIT - CONTEXT


def test_growth_is_charged_before_page_tables_are(session: Session) -> None:
    fill(session, 760 * MIB)
    session.program.begin(f"pinned {8 * GIB}")
    measured(session, charged=CONTEXT, used=760 * MIB, size=CONTEXT + 100 * MIB)
    assert session.program.result().code == SUCCESS
    assert session.page.read(0) == LIMIT - CONTEXT - 760 * MIB - 100 * MIB - 16 * MIB


@pytest.mark.parametrize("is_had", [True, False])
def test_what_a_pool_grew_beyond_its_bound_is_no_contexts(session: Session, is_had: bool) -> None:
    """It was charged as a context's first, and then once more as the pool's: who was within the limit was refused."""
    pieces = [session.program.call(f"async {16 * MIB} 0").number for _ in range(4)]
    for address in pieces[::2]:  # two pieces of 16 MiB, which the simulated pool does not join
        assert session.program.call(f"freeasync {address} 0").code == SUCCESS
    session.program.begin(ALLOCATE.format(LIMIT - CONTEXT - 64 * MIB))
    measured(session, charged=CONTEXT, used=64 * MIB, size=CONTEXT)
    assert session.program.result().code == SUCCESS
    session.program.begin(f"async {32 * MIB} 0")
    measured(session, charged=CONTEXT, used=LIMIT - CONTEXT + 32 * MIB, size=CONTEXT)
    request, message = session.peer.receive()
    assert message == Allocate(0, 32 * MIB, "cuMemAllocAsync")
    answer = Accepted(32 * MIB, 0) if is_had else Rejected(Reason.LIMIT, LIMIT, LIMIT)
    session.peer.send(answer, request)
    assert session.program.result().code == (SUCCESS if is_had else OUT_OF_MEMORY)
    session.page.give(0, 64 * MIB)
    session.program.begin(ALLOCATE.format(64 * MIB))
    used = LIMIT - CONTEXT + (32 * MIB if is_had else 0)  # nothing is expected any more
    measured(session, charged=CONTEXT, used=used, size=CONTEXT)
    assert session.program.result().code == SUCCESS
