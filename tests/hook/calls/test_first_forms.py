"""The forms of calls of CUDA 2, with sizes and addresses of 32 bits, are limited like those that followed."""

from collections.abc import Callable

import pytest
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program, Result
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, Session, open_session, row

from convgpu.protocol.messages import Allocate, Query, Rejected, Usage
from convgpu.protocol.wire import Reason

Start = Callable[..., Program]


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler) -> Session:
    """A program with a context, a limit of 2 GiB and as much headroom."""
    return open_session(start(), scheduler, row(limit=2 * GIB), headroom=2 * GIB)


@pytest.mark.parametrize("free", ["free1 {}", "free {}"])
def test_memory_is_charged_and_given_back(session: Session, free: str) -> None:
    for command, charge in (("alloc1 3145728", 4 * MIB), ("pitch1 1000 3000", 4 * MIB)):
        allocated = session.program.call(command)
        assert allocated.code == SUCCESS
        assert session.page.read(0) == 2 * GIB - charge
        assert session.program.call(free.format(allocated.number)).code == SUCCESS
        assert session.page.read(0) == 2 * GIB
    assert session.peer.silent()


@pytest.mark.parametrize(
    ("command", "call"), [("alloc1 3145728", "cuMemAlloc"), ("pitch1 1000 3000", "cuMemAllocPitch")]
)
def test_a_rejection_is_cudas_out_of_memory(
    start: Start, scheduler: ScriptedScheduler, command: str, call: str
) -> None:
    session = open_session(start(), scheduler)
    session.program.begin(command)
    request, message = session.peer.receive()
    assert message == Allocate(0, 4 * MIB, call)
    session.peer.send(Rejected(Reason.LIMIT, GIB, GIB), request)
    assert session.program.result().values[0] == "0x5a5a"
    session.program.begin(command)
    request, _message = session.peer.receive()
    session.peer.send(Rejected(Reason.LIMIT, GIB, GIB), request)
    assert session.program.result().code == OUT_OF_MEMORY


def test_the_limit_is_what_a_program_sees(session: Session) -> None:
    assert session.program.call("total1 0") == Result(SUCCESS, (str(2 * GIB),))
    session.program.begin("info1")
    request, message = session.peer.receive()
    assert message == Query(0)
    session.peer.send(Usage(2 * GIB, GIB, 0), request)
    assert session.program.result() == Result(SUCCESS, (str(GIB), str(2 * GIB)))
