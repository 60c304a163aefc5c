"""What a process says of its allocations when it is asked, and of its calls while it is followed."""

from collections.abc import Callable

from hooked_program import SUCCESS, Program
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, Session, open_session

from convgpu.protocol.inspection.messages import List, Listed, Traced
from convgpu.protocol.messages import Allocate, Query

Start = Callable[..., Program]
CALLS = ["cuDevicePrimaryCtxRetain", "cuMemAlloc", "cuMemAllocManaged", "cuMemAllocPitch", "cuMemCreate"]


def ask(session: Session, most: int = 1000, request: int = 77) -> list[Listed]:
    """Return the parts of the answer."""
    session.peer.send(List(most), request)
    parts: list[Listed] = []
    while not parts or parts[-1].more:
        number, part = session.peer.receive()
        assert number == request
        assert isinstance(part, Listed)
        parts.append(part)
    return parts


def test_every_allocation_is_listed_with_its_call(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=3 * GIB)
    program = session.program
    address = program.call(f"alloc {64 * MIB}").number
    for command in (f"managed {4 * MIB} 1", "pitch 5000 100", f"create {2 * MIB} 1 0"):
        assert program.call(command).code == SUCCESS
    [listed] = ask(session)
    rows = sorted(listed.rows, key=lambda row: row.call)
    assert [row.call for row in rows] == CALLS
    assert (listed.count, listed.size) == (len(rows), sum(row.size for row in rows))
    assert (rows[1].address, rows[1].size, rows[1].device) == (address, 64 * MIB, 0)
    assert all(row.age <= 60 for row in rows)
    assert program.call(f"free {address}").code == SUCCESS
    [again] = ask(session)
    assert sorted(row.call for row in again.rows) == [call for call in CALLS if call != "cuMemAlloc"]


def test_many_come_in_parts_and_no_more_than_were_asked_for(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=GIB)
    for _ in range(150):
        assert session.program.call("alloc 4096").code == SUCCESS
    parts = ask(session)
    assert [len(part.rows) for part in parts] == [64, 64, 23]
    assert {part.count for part in parts} == {151}
    assert len({row.address for part in parts for row in part.rows}) == 151
    [few] = ask(session, most=10)
    assert (len(few.rows), few.count) == (10, 151)
    [none] = ask(session, most=0)
    assert (none.rows, none.count) == ((), 151)


def test_a_process_answers_while_a_thread_is_paused(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler)
    session.program.begin(f"alloc {GIB}")
    request, message = session.peer.receive()
    assert isinstance(message, Allocate)
    [listed] = ask(session)
    assert [row.call for row in listed.rows] == CALLS[:1]
    assert request != 77


def test_calls_out_of_the_headroom_are_reported_as_often_as_allowed(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=GIB)
    program, page = session.program, session.page
    assert program.call(f"alloc {MIB}").code == SUCCESS
    assert page.trace(0, 2) == 0
    for size in (700, 3 * MIB, 5 * MIB):
        assert program.call(f"alloc {size}").code == SUCCESS
    assert session.peer.receive() == (0, Traced(0, 700, "cuMemAlloc"))
    assert session.peer.receive() == (0, Traced(0, 3 * MIB, "cuMemAlloc"))
    assert page.trace(0, None) == 1  # was counted
    assert program.call(f"alloc {MIB}").code == SUCCESS
    assert page.trace(0, None) == 0
    page.publish_limit(0, 4 * GIB, alone=False)
    program.begin("info")
    assert session.peer.receive()[1] == Query(0)  # and nothing before it
