"""Charges of linear memory: from the headroom without a message, else by asking, and back again exactly."""

from collections.abc import Callable

import pytest
from hooked_program import INVALID_CONTEXT, INVALID_VALUE, NOT_INITIALIZED, OUT_OF_MEMORY, SUCCESS, Program, Result
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, Session, open_session, row

from convgpu.protocol.messages import Accepted, Allocate, Freed, Query, Rejected, Usage
from convgpu.protocol.sizes import format_size
from convgpu.protocol.wire import Reason

Start = Callable[..., Program]
UNTOUCHED = "0x5a5a"
LARGEST = 2**64 - 1


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler) -> Session:
    """A program with a context and 4 GiB of headroom."""
    return open_session(start(), scheduler, headroom=4 * GIB)


@pytest.mark.parametrize(
    ("size", "charge"),
    [
        (1, 2 * MIB),
        (513, 2 * MIB),
        (MIB - 1, 2 * MIB),
        (MIB, 2 * MIB),
        (2 * MIB, 2 * MIB),
        (MIB + 1, 2 * MIB),
        (2 * MIB + 1, 4 * MIB),
        (4 * GIB, 4 * GIB),
    ],
)
@pytest.mark.parametrize("call", ["alloc {}", "managed {} 1"])
def test_an_allocation_in_the_headroom_is_charged_without_a_message(
    session: Session, size: int, charge: int, call: str
) -> None:
    allocated = session.program.call(call.format(size))
    assert allocated.code == SUCCESS
    assert session.page.read(0) == 4 * GIB - charge
    assert session.program.call(f"free {allocated.number}") == Result(SUCCESS, ())
    assert session.page.read(0) == 4 * GIB
    assert session.peer.silent()


def test_small_allocations_share_pages_as_on_a_card(session: Session) -> None:
    """Seven of 700 KiB take four slabs of 2 MiB, a small one lies between them, and a slab goes with its last."""
    addresses = [session.program.call("alloc 716800").number for _block in range(7)]
    assert session.page.read(0) == 4 * GIB - 8 * MIB
    addresses.append(session.program.call("alloc 1000").number)
    assert session.page.read(0) == 4 * GIB - 8 * MIB
    pages = [address >> 21 for address in addresses]
    for freed, address in enumerate(addresses, 1):
        assert session.program.call(f"free {address}").code == SUCCESS
        assert session.page.read(0) == 4 * GIB - len(set(pages[freed:])) * 2 * MIB
    assert session.peer.silent()


def test_at_the_limit_a_small_allocation_finds_room_in_a_slab(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, row(limit=2 * MIB), headroom=2 * MIB)
    first, second, third = (session.program.call(f"alloc {size}").number for size in (512, 716800, 716800))
    assert session.page.read(0) == 0
    assert session.program.call(f"free {second}").code == SUCCESS
    session.program.begin(f"alloc {MIB}")  # there is as much, but not in one piece
    request, message = session.peer.receive()
    assert message == Allocate(0, 2 * MIB, "cuMemAlloc")
    session.peer.send(Rejected(Reason.LIMIT, 2 * MIB, 2 * MIB), request)
    assert session.program.result() == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    for address in (session.program.call("alloc 716800").number, first, third):
        assert session.page.read(0) == 0
        assert session.program.call(f"free {address}").code == SUCCESS
    assert session.page.read(0) == 2 * MIB


def test_pitched_memory_is_charged_by_its_rows(session: Session) -> None:
    allocated = session.program.call("pitch 1000 3000")
    address, pitch = allocated.numbers
    assert (allocated.code, pitch) == (SUCCESS, 1024)
    assert session.page.read(0) == 4 * GIB - 4 * MIB  # 3,072,000 bytes
    assert session.program.call(f"free {address}").code == SUCCESS
    assert session.page.read(0) == 4 * GIB


def test_what_the_headroom_does_not_hold_is_asked_for(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=4 * MIB)
    session.program.begin("alloc 6291456")
    request, message = session.peer.receive()
    assert message == Allocate(0, 6 * MIB, "cuMemAlloc")
    assert not session.program.returned()
    session.peer.send(Accepted(6 * MIB, 0), request)
    allocated = session.program.result()
    assert allocated.code == SUCCESS
    assert session.page.read(0) == 4 * MIB
    assert session.program.call(f"free {allocated.number}").code == SUCCESS
    assert session.page.read(0) == 10 * MIB


@pytest.mark.parametrize(
    ("command", "asked", "untouched"),
    [
        ("alloc 6291456", Allocate(0, 6 * MIB, "cuMemAlloc"), (UNTOUCHED,)),
        ("managed 6291456 1", Allocate(0, 6 * MIB, "cuMemAllocManaged"), (UNTOUCHED,)),
        ("pitch 1000 3000", Allocate(0, 4 * MIB, "cuMemAllocPitch"), (UNTOUCHED, "77")),
        (f"alloc {LARGEST}", Allocate(0, LARGEST, "cuMemAlloc"), (UNTOUCHED,)),
        (f"pitch {LARGEST} 2", Allocate(0, LARGEST, "cuMemAllocPitch"), (UNTOUCHED, "77")),
        (f"pitch {2**40} {2**40}", Allocate(0, LARGEST, "cuMemAllocPitch"), (UNTOUCHED, "77")),
    ],
)
def test_a_rejection_is_cudas_out_of_memory(
    start: Start, scheduler: ScriptedScheduler, command: str, asked: Allocate, untouched: tuple[str, ...]
) -> None:
    session = open_session(start(), scheduler)
    for _turn in range(2):
        session.program.begin(command)
        request, message = session.peer.receive()
        assert message == asked
        session.peer.send(Rejected(Reason.LIMIT, 4 * GIB, 0), request)
        assert session.program.result() == Result(OUT_OF_MEMORY, untouched)
    lines = session.program.end()
    assert len(lines) == 1  # the first rejection tells why, the others are CUDA's error only
    assert lines[0].startswith(
        f"convgpu: {asked.call} of {format_size(asked.size)} on device 0 rejected: it would exceed the limit"
    )


def test_with_debugging_a_rejection_tells_what_the_process_holds(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(CONVGPU_DEBUG="1"), scheduler, headroom=10 * MIB)
    for size in (512, 1024, 6 * MIB):
        assert session.program.call(f"alloc {size}").code == SUCCESS
    session.program.begin(f"alloc {8 * MIB}")
    request, _message = session.peer.receive()
    session.peer.send(Rejected(Reason.LIMIT, 10 * MIB, 8 * MIB), request)
    assert session.program.result().code == OUT_OF_MEMORY
    held = [line.strip() for line in session.program.end() if "this process holds" in line]
    assert held == [
        "convgpu: on device 0 this process holds context: 1 allocations, 0B.",
        "convgpu: on device 0 this process holds memory: 3 allocations, 6MiB.",
    ]


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ("managed 4096 0", Result(INVALID_VALUE, (UNTOUCHED,))),
        ("null 4096", Result(INVALID_VALUE, ())),
        ("alloc 0", Result(INVALID_VALUE, (UNTOUCHED,))),
        ("pitch 0 10", Result(INVALID_VALUE, (UNTOUCHED, "77"))),
        ("free 4660", Result(INVALID_VALUE, ())),
        ("free 0", Result(SUCCESS, ())),
    ],
)
def test_the_drivers_own_answers_pass_unchanged(session: Session, start: Start, command: str, result: Result) -> None:
    alone = start(LD_PRELOAD="")
    assert alone.call("init 0").code == SUCCESS
    assert alone.call(f"use {alone.call('retain 0').number}").code == SUCCESS
    hooked = session.program.call(command)
    assert hooked == result
    assert hooked == alone.call(command)
    assert session.page.read(0) == 4 * GIB
    assert session.peer.silent()


def test_a_freed_address_is_unknown_afterwards(session: Session) -> None:
    address = session.program.call("alloc 512").number
    assert session.program.call(f"free {address}").code == SUCCESS
    assert session.program.call(f"free {address}").code == INVALID_VALUE
    assert session.page.read(0) == 4 * GIB


def test_what_the_driver_refuses_is_given_back(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, row(limit=64 * GIB), headroom=64 * GIB)
    session.program.begin(f"alloc {32 * GIB}")  # the card has 16
    request, message = session.peer.receive()
    assert message == Query(0)
    session.peer.send(Usage(64 * GIB, 32 * GIB, 0), request)
    request, message = session.peer.receive()
    assert message == Allocate(0, 32 * GIB, "cuMemAlloc", flags=1)
    session.peer.send(Rejected(Reason.DRIVER, 64 * GIB, 0), request)
    assert session.program.result() == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    assert session.page.read(0) == 64 * GIB


def test_a_free_is_reported_while_somebody_waits(session: Session) -> None:
    first, second = (session.program.call("alloc 4096").number for _ in range(2))
    assert session.program.call(f"free {first}").code == SUCCESS
    assert session.peer.silent()
    session.page.arm(0, armed=True)
    assert session.program.call(f"free {second}").code == SUCCESS
    assert session.peer.receive() == (0, Freed(0))


def test_without_a_context_the_driver_says_so(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=GIB, context=False)
    assert session.program.call("alloc 4096").code == INVALID_CONTEXT
    assert session.page.read(0) == GIB


def test_without_cu_init_the_driver_says_so(start: Start, scheduler: ScriptedScheduler) -> None:
    program = start()
    program.begin("alloc 4096")
    peer, _hello = scheduler.accept()
    peer.welcome((row(),))
    assert program.result().code == NOT_INITIALIZED


def test_a_device_without_a_limit_has_no_memory(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=GIB)
    assert session.program.call("retain 1") == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    assert session.program.call("create2 1") == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    assert session.program.call("retain 7").code == start(LD_PRELOAD="").call("init 0").code + 101
    lines = session.program.end()
    assert len(lines) == 1
    assert "device 1 is not one of this container's GPUs" in lines[0]


def test_rows_are_found_by_uuid(start: Start, scheduler: ScriptedScheduler) -> None:
    program = start()
    program.begin("init 0")
    peer, _hello = scheduler.accept()
    page = peer.welcome((row(device=1), row(device=0)))
    assert program.result().code == SUCCESS
    program.begin("retain 0")
    request, message = peer.receive()
    assert message.device == 1
    peer.close()
    assert program.result().code == SUCCESS
    assert request > 0
    assert page.read(0) == 0


def test_the_limit_is_what_a_program_sees(session: Session) -> None:
    assert session.program.call("total 0").numbers == (4 * GIB,)
    session.program.begin("info")
    request, message = session.peer.receive()
    assert message == Query(0)
    session.peer.send(Usage(5 * GIB, 2 * GIB, 0), request)
    assert session.program.result() == Result(SUCCESS, (str(3 * GIB), str(5 * GIB)))


def test_one_of_the_two_figures_can_be_asked_for(session: Session) -> None:
    session.program.begin("nullinfo")
    request, _message = session.peer.receive()
    session.peer.send(Usage(4 * GIB, 2 * GIB, 0), request)
    assert session.program.result() == Result(SUCCESS, (str(4 * GIB),))


def test_usage_above_the_limit_does_not_wrap(session: Session) -> None:
    session.program.begin("info")
    request, _message = session.peer.receive()
    session.peer.send(Usage(GIB, 2 * GIB, 0), request)
    assert session.program.result() == Result(SUCCESS, ("0", str(GIB)))


def test_a_limit_above_the_card_shows_the_card(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, row(limit=64 * GIB))
    assert session.program.call("total 0").numbers == (16 * GIB,)
