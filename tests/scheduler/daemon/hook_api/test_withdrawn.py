"""Allocations that an interrupted program does not want any more, while the scheduler has not begun with them."""

from daemon import GIB, Daemon, Process

from convgpu.daemon.sessions.open_requests import BOUNDS, Kind
from convgpu.protocol import messages as m
from convgpu.protocol import wire
from convgpu.protocol.inspection.messages import Withdraw
from convgpu.protocol.messages import pack
from convgpu.protocol.wire import Reason

OPEN = BOUNDS[Kind.ALLOCATION].session


def test_one_that_has_not_begun_is_taken_back_at_once_and_those_behind_it_begin(daemon: Daemon) -> None:
    holder, process = (Process(daemon.container(name, memory="15g")) for name in ("holder", "a"))
    holder.hello()
    process.hello()
    holder.ask(m.Allocate(0, 15 * GIB, "cuMemAlloc"))
    asked = [process.allocate(2 * GIB) for _ in range(OPEN + 3)]
    for request in (asked[OPEN], asked[OPEN + 2]):
        process.socket.sendall(pack(Withdraw(), request))
        assert process.answer(request) == m.Rejected(Reason.INTERRUPTED, 15 * GIB, 0)
    assert [event["reason"] for event in daemon.events("rejected")] == ["interrupted"] * 2
    holder.end()
    assert process.answer(asked[0]) == m.Accepted(2 * GIB, process.answers[asked[0]].settling)
    assert process.answer(asked[OPEN + 1]) == m.Rejected(Reason.LIMIT, 15 * GIB, 14 * GIB)


def test_one_that_is_looked_at_before_it_is_asked_for_is_taken_back(daemon: Daemon) -> None:
    """The driver refused it, which is judged by NVML's figures first; the program is interrupted meanwhile."""
    process = Process(daemon.container("a", memory="4g"))
    process.hello()
    refused = m.Allocate(0, GIB, "cuMemAlloc", wire.AllocateFlag.REFUSED)
    for request in range(100, 150):
        process.socket.sendall(pack(refused, request) + pack(Withdraw(), request))
        assert process.answer(request) == m.Rejected(Reason.INTERRUPTED, 4 * GIB, 0)
    assert process.ask(m.Allocate(0, GIB, "cuMemAlloc")) == m.Accepted(GIB, 0)


def test_a_frame_that_is_sent_twice_while_it_is_looked_at_harms_nobody(daemon: Daemon) -> None:
    process = Process(daemon.container("a", memory="4g"))
    process.hello()
    refused = m.Allocate(0, GIB, "cuMemAlloc", wire.AllocateFlag.REFUSED)
    for request in range(100, 100 + 2 * OPEN):
        process.socket.sendall(pack(refused, request) * 2 + pack(Withdraw(), request))
        process.answer(request)
    assert process.ask(m.Allocate(0, 5 * GIB, "cuMemAlloc")) == m.Rejected(Reason.LIMIT, 4 * GIB, 4 * GIB)
    assert "Traceback" not in daemon.log.read_text()
