"""Pools are charged with what they reserve of the device, whatever the program uses of it."""

from collections.abc import Callable

import pytest
from hooked_program import INVALID_CONTEXT, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, Program, Result
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, Session, call, charged, open_session, row

from convgpu.protocol.messages import Accepted, Allocate, ContextSize, Freed, Rejected
from convgpu.protocol.wire import Reason

Start = Callable[..., Program]
UNTOUCHED = "0x5a5a"
CHUNK = 32 * MIB
"""What a pool grows by, on a card and in the simulated driver."""

DEVICE, HOST = 1, 2
PER_THREAD = 2


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler) -> Session:
    """A program with a context and 4 GiB of headroom."""
    return open_session(start(), scheduler, headroom=4 * GIB)


def own_pool(session: Session, location: int = DEVICE) -> int:
    return call(session, f"newpool {location} 0 0").number


@pytest.mark.parametrize("allocate", ["async {} 0", "asyncp {} 0", "async {} 1", "async {} {stream}"])
@pytest.mark.parametrize("free", ["free {}", "freeasync {} 0", "freeasyncp {} 0", "freeasync {} {stream}"])
def test_a_pool_is_charged_until_it_gives_back(session: Session, allocate: str, free: str) -> None:
    stream = call(session, "stream").number
    first = call(session, allocate.format(512, stream=stream)).number
    second = call(session, allocate.format(20 * MIB, stream=stream)).number
    assert charged(session) == CHUNK
    for address in (first, second):
        call(session, free.format(address, stream=stream))
        assert charged(session) == CHUNK
    call(session, f"sync {stream}")
    assert charged(session) == 0
    assert session.peer.silent()


@pytest.mark.parametrize("allocate", ["frompool {size} {pool} 0", "frompoolp {size} {pool} 0"])
def test_a_pool_of_the_programs_own(session: Session, allocate: str) -> None:
    pool = own_pool(session)
    address = call(session, allocate.format(size=100 * MIB, pool=pool)).number
    assert charged(session) == call(session, f"reserved {pool}").number == 100 * MIB
    call(session, f"freeasync {address} 0")
    call(session, "syncall")
    call(session, f"trim {pool} 0")
    assert charged(session) == 0


def test_the_current_pool_of_the_device_is_the_one_charged(session: Session) -> None:
    pool = own_pool(session)
    call(session, f"setpool 0 {pool}")
    address = call(session, "async 512 0").number
    assert charged(session) == call(session, f"reserved {pool}").number == CHUNK
    call(session, f"freeasync {address} 0")
    call(session, "syncall")
    call(session, f"trim {pool} 0")
    assert charged(session) == 0


def test_the_default_pool_by_its_name(session: Session) -> None:
    pool = call(session, "defaultpool 0").number
    call(session, f"frompool 512 {pool} 0")
    assert charged(session) == CHUNK


@pytest.mark.parametrize(
    "synchronise", ["sync 0", "sync {stream}", "syncall", "syncall2 {context}", "syncevent {event}"]
)
def test_what_a_synchronisation_gave_back_is_seen_at_once(session: Session, synchronise: str) -> None:
    stream = call(session, "stream").number
    address = call(session, f"async {CHUNK} {stream}").number
    call(session, f"freeasync {address} {stream}")
    assert charged(session) == CHUNK
    event = call(session, f"event {stream}").number
    session.page.arm(0, armed=True)
    call(session, synchronise.format(stream=stream, context=session.context, event=event))
    assert charged(session) == 0
    assert session.peer.receive() == (0, Freed(0))


def test_a_threshold_keeps_memory_charged(session: Session) -> None:
    pool = call(session, "defaultpool 0").number
    call(session, f"threshold {pool} {2**64 - 1}")
    address = call(session, "async 512 0").number
    call(session, f"freeasync {address} 0")
    call(session, "sync 0")
    call(session, f"trim {pool} {CHUNK}")
    assert charged(session) == CHUNK
    call(session, f"trim {pool} 0")
    assert charged(session) == 0


def test_cached_memory_comes_back_before_anybody_is_asked(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, row(limit=100 * MIB), headroom=100 * MIB)
    pool = call(session, "defaultpool 0").number
    call(session, f"threshold {pool} {2**64 - 1}")
    address = call(session, f"async {96 * MIB} 0").number
    call(session, f"freeasync {address} 0")
    call(session, "syncall")
    assert session.page.read(0) == 4 * MIB
    call(session, f"alloc {100 * MIB}")
    assert session.page.read(0) == 0
    assert session.peer.silent()


def test_another_pools_cache_serves_a_pool(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, row(limit=64 * MIB), headroom=64 * MIB)
    call(session, f"threshold {call(session, 'defaultpool 0').number} {2**64 - 1}")
    address = call(session, f"async {64 * MIB} 0").number
    call(session, f"freeasync {address} 0")
    call(session, "syncall")
    pool = own_pool(session)
    call(session, f"frompool {64 * MIB} {pool} 0")
    assert session.page.read(0) == 0
    assert session.peer.silent()


def test_unused_memory_of_the_pool_needs_no_headroom(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, row(limit=CHUNK), headroom=CHUNK)
    for _turn in range(4):
        call(session, f"async {8 * MIB} 0")
    assert session.page.read(0) == 0
    session.program.begin("async 512 0")
    request, message = session.peer.receive()
    assert message == Allocate(0, CHUNK, "cuMemAllocAsync")
    session.peer.send(Rejected(Reason.LIMIT, CHUNK, CHUNK), request)
    assert session.program.result() == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    assert session.page.read(0) == 0


@pytest.mark.parametrize("twin", ["", "p"])
def test_a_rejection_is_cudas_out_of_memory(start: Start, scheduler: ScriptedScheduler, twin: str) -> None:
    session = open_session(start(), scheduler)
    pool = own_pool(session)
    commands = {f"async{twin} {40 * MIB} 0": "cuMemAllocAsync"}
    commands[f"frompool{twin} {40 * MIB} {pool} 0"] = "cuMemAllocFromPoolAsync"
    for command, name in commands.items():
        session.program.begin(command)
        request, message = session.peer.receive()
        assert message == Allocate(0, 64 * MIB, name)
        session.peer.send(Rejected(Reason.LIMIT, 4 * GIB, 4 * GIB), request)
        assert session.program.result() == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    assert session.page.read(0) == 0


def test_a_pause_ends_when_the_grant_grows(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler)
    session.program.begin(f"async {GIB} 0")
    request, message = session.peer.receive()
    assert message == Allocate(0, GIB, "cuMemAllocAsync")
    assert not session.program.returned()
    session.peer.send(Accepted(GIB, 0), request)
    address = session.program.result().number
    session.page.arm(0, armed=True)
    call(session, f"freeasync {address} 0")
    call(session, "syncall")
    call(session, f"trim {call(session, 'defaultpool 0').number} 0")
    assert session.page.read(0) == GIB
    assert session.peer.receive() == (0, Freed(0))


def test_growth_beyond_the_bound_is_undone_when_it_cannot_be_had(start: Start, scheduler: ScriptedScheduler) -> None:
    """Two unused pieces of 16 MiB add up to 32, but the simulated pool does not join them."""
    session = open_session(start(), scheduler, headroom=2 * CHUNK)
    pieces = [call(session, f"async {16 * MIB} 0").number for _piece in range(4)]
    for address in pieces[::2]:
        call(session, f"freeasync {address} 0")
    session.program.begin(f"async {CHUNK} 0")
    request, message = session.peer.receive()
    assert message == Allocate(0, CHUNK, "cuMemAllocAsync")
    session.peer.send(Rejected(Reason.LIMIT, 2 * CHUNK, 2 * CHUNK), request)
    assert session.program.result() == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    assert session.page.read(0) == 0
    pool = call(session, "defaultpool 0").number
    assert call(session, f"reserved {pool}").number == 2 * CHUNK
    for address in pieces[1::2]:
        call(session, f"freeasync {address} 0")
    call(session, "syncall")
    call(session, f"trim {pool} 0")
    assert session.page.read(0) == 2 * CHUNK


def test_a_destroyed_pool_is_charged_until_its_last_allocation_is_freed(session: Session) -> None:
    pool = own_pool(session)
    first, second = (call(session, f"frompool 512 {pool} 0").number for _allocation in range(2))
    call(session, f"destroypool {pool}")
    call(session, f"freeasync {first} 0")
    assert charged(session) == CHUNK
    call(session, f"free {second}")
    assert charged(session) == 0
    call(session, f"destroypool {own_pool(session)}")
    assert charged(session) == 0


def test_linear_memory_can_be_freed_in_a_stream(session: Session) -> None:
    for free in ("freeasync {} 0", "freeasyncp {} 0"):
        address = call(session, "alloc 4194304").number
        assert charged(session) == 4 * MIB
        call(session, free.format(address))
        assert charged(session) == 4 * MIB
        assert session.program.call(free.format(address)).code == INVALID_VALUE
        call(session, "syncp 0")
        assert charged(session) == 0


@pytest.mark.parametrize("size", [1000, 4 * MIB])
def test_linear_memory_freed_in_a_stream_is_charged_until_then(session: Session, size: int) -> None:
    own, other = (call(session, "stream").number for _stream in range(2))
    first, second = (call(session, f"alloc {size}").number for _block in range(2))
    held = charged(session)
    call(session, f"freeasync {first} {own}")
    call(session, f"sync {other}")
    assert charged(session) == held
    call(session, f"sync {own}")
    assert charged(session) == (held if size == 1000 else held // 2)  # two small ones share a page
    call(session, f"freeasync {second} {own}")
    event = call(session, f"event {own}").number
    call(session, f"syncevent {event}")
    assert charged(session) == 0


def test_a_trim_gives_nothing_back_that_was_not_synchronised(start: Start, scheduler: ScriptedScheduler) -> None:
    """The driver itself refuses then, so the call is the scheduler's to decide."""
    session = open_session(start(), scheduler, row(limit=64 * MIB), headroom=64 * MIB)
    address = call(session, f"async {64 * MIB} 0").number
    call(session, f"freeasync {address} 0")
    session.program.begin("alloc 4194304")
    request, message = session.peer.receive()
    assert message == Allocate(0, 4 * MIB, "cuMemAlloc")
    session.peer.send(Rejected(Reason.LIMIT, 64 * MIB, 64 * MIB), request)
    assert session.program.result() == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    call(session, "syncall")
    call(session, "alloc 4194304")
    assert session.page.read(0) == 60 * MIB


def test_a_pool_of_host_memory_is_not_charged(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler)
    pool = own_pool(session, HOST)
    address = call(session, f"frompool {GIB} {pool} 0").number
    call(session, f"freeasync {address} 0")
    call(session, f"destroypool {pool}")
    assert session.peer.silent()


@pytest.mark.parametrize(
    "command", ["async 0 0", "nullasync 512 0", "frompool 512 0 0", "freeasync 4660 0", "async 512 4660"]
)
def test_the_drivers_own_answers_pass_unchanged(session: Session, start: Start, command: str) -> None:
    alone = start(LD_PRELOAD="")
    assert alone.call("init 0").code == SUCCESS
    assert alone.call(f"use {alone.call('retain 0').number}").code == SUCCESS
    hooked = session.program.call(command)
    assert hooked == alone.call(command)
    assert hooked.code != SUCCESS
    assert charged(session) == 0


def test_without_a_context_the_driver_says_so(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=GIB, context=False)
    assert session.program.call("async 4096 0").code == INVALID_CONTEXT
    assert session.page.read(0) == GIB


def test_a_device_without_a_limit_has_no_memory(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=GIB)
    pool = call(session, f"newpool {DEVICE} 1 0").number
    assert session.program.call(f"frompool 512 {pool} 0") == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    pool = call(session, "defaultpool 1").number
    assert session.program.call(f"frompool 512 {pool} 0") == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    assert session.page.read(0) == GIB


def test_a_context_takes_its_pools_memory_along(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=GIB)
    call(session, f"async {100 * MIB} 0")
    call(session, "release 0")
    assert session.page.read(0) == GIB
    session.program.begin("retain 0")
    request, _message = session.peer.receive()
    session.peer.send(ContextSize(0), request)
    call_again = session.program.result()
    assert call_again.code == SUCCESS
    call(session, f"use {call_again.number}")
    call(session, "async 512 0")
    assert session.page.read(0) == GIB - CHUNK


def test_threads_do_not_lose_count(session: Session) -> None:
    for thread in range(1, 8):
        session.program.call("join", thread)
    for _turn in range(20):
        for thread in range(1, 8):
            session.program.begin("async 4194304 0", thread)
        addresses = [session.program.result(thread).number for thread in range(1, 8)]
        assert charged(session) == call(session, f"reserved {call(session, 'defaultpool 0').number}").number
        for thread, address in enumerate(addresses, 1):
            session.program.begin(f"freeasync {address} 0", thread)
        assert [session.program.result(thread).code for thread in range(1, 8)] == [SUCCESS] * 7
    call(session, "syncall")
    call(session, f"trim {call(session, 'defaultpool 0').number} 0")
    assert charged(session) == 0
    assert session.peer.silent()
