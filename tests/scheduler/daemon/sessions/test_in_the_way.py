"""An allocation waits for a look at what is in its way, and is refused what is there: on a real ledger."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from test_kept_answers import GIB, Connection, Host

from convgpu.core import events as e
from convgpu.core.allocation.wait_reasons import Wait, WaitReason
from convgpu.daemon.sessions import lifecycle
from convgpu.daemon.sessions.pause_notices import PauseNotices
from convgpu.daemon.sessions.session import Session
from convgpu.protocol.inspection.messages import Explained
from convgpu.protocol.messages import Accepted, Rejected
from convgpu.protocol.wire import Reason


class Beside:
    """What container `a` has beside what its processes use, in GiB, and what of it each look finds to be gone.

    Attributes:
        charged: is found by the audit.
        left: is charged for what ended processes exported.
        kept: may be kept of ended processes; `is_certain`: and is, when it was looked.
        gone: names of these of which the next look but `late` looks finds nothing.
        looks: what was looked at.
    """

    def __init__(self, host: Host, **sizes: int) -> None:
        self.host, self.looks, self.gone, self.late, self.is_certain = host, list[str](), set[str](), 0, False
        self.sizes = {"charged": 0, "left": 0, "kept": 0} | {name: size * GIB for name, size in sizes.items()}
        self.during: Callable[[], None] = lambda: None
        self.fails = False
        kept, outliving = cast("Any", host.lifecycle._ended.kept), cast("Any", host.outliving)
        kept.most = lambda *_: self.sizes["kept"]
        kept.certain = lambda *_: self.sizes["kept"] if self.is_certain else 0
        kept.look = lambda *_: self.look("kept")
        outliving.left_on = lambda *_: self.sizes["left"]
        outliving.look = lambda *_: self.look("left")
        host.lifecycle.recount = lambda _: self.look("charged")
        self.charge()

    def charge(self) -> None:
        self.host.driver.dispatch(e.UnleasedMemory("a", "gpu", self.sizes["charged"] + self.sizes["left"]))

    async def look(self, name: str) -> None:
        self.looks.append(name)
        self.during()
        if self.fails:
            raise OSError("no answer")
        self.is_certain = self.is_certain or name == "kept"
        if name in self.gone and self.looks.count(name) > self.late:
            self.sizes[name] = 0
            self.charge()


Check = Callable[[Host], Awaitable[None]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Check], None]:
    async def body(check: Check) -> None:
        await check(Host(monkeypatch))

    monkeypatch.setattr(lifecycle, "_PAUSES", (0.0, 0.0))
    return lambda check: asyncio.run(body(check))


async def answers(host: Host, connection: Connection) -> list[object]:
    """Let all looks end; return what was sent."""
    while tasks := list(host.lifecycle._tasks._tasks):
        await asyncio.wait(tasks)
        for _ in range(9):  # what follows is done in the turn of its container
            await asyncio.sleep(0)
    return [message for _, message in connection.sent]


def with_headroom(host: Host, used: int) -> tuple[Session, Connection]:
    """A process that uses so much, and was leased all the rest ahead."""
    session, connection = host.open()
    host.ask(session, 1, used)
    connection.sent.clear()
    return session, connection


@pytest.mark.parametrize("name", ["charged", "left", "kept"])
@pytest.mark.parametrize(("size", "looks"), [(1, 0), (2, 1), (3, 1), (4, 0)])
def test_it_is_looked_at_where_that_can_help(play: Callable[[Check], None], name: str, size: int, looks: int) -> None:
    """It is in the way of two and three GiB of four beside one that is used, and gone by now."""

    async def check(host: Host) -> None:
        session, connection = with_headroom(host, GIB)
        beside = Beside(host, **{name: 2})
        beside.gone = {name}
        host.ask(session, 2, size * GIB)
        [answer] = await answers(host, connection)
        assert beside.looks.count(name) == looks
        assert isinstance(answer, Rejected if size == 4 else Accepted)

    play(check)


@pytest.mark.parametrize("name", ["charged", "left", "kept"])
def test_what_is_listed_for_a_moment_longer_is_looked_at_twice(play: Callable[[Check], None], name: str) -> None:
    async def check(host: Host) -> None:
        session, connection = with_headroom(host, GIB)
        beside = Beside(host, **{name: 2})
        beside.gone, beside.late = {name}, 1
        host.ask(session, 2, 3 * GIB)
        assert await answers(host, connection) == [Accepted(3 * GIB, 0)]
        assert beside.looks.count(name) == 2

    play(check)


@pytest.mark.parametrize("name", ["charged", "left", "kept"])
def test_what_is_there_is_refused_and_counted_as_in_use(play: Callable[[Check], None], name: str) -> None:
    async def check(host: Host) -> None:
        session, connection = with_headroom(host, GIB)
        beside = Beside(host, **{name: 2})
        host.ask(session, 2, 2 * GIB)
        host.ask(session, 3, GIB)
        assert await answers(host, connection) == [Accepted(GIB, 0), Rejected(Reason.LIMIT, 4 * GIB, 4 * GIB)] or (
            await answers(host, connection) == [Rejected(Reason.LIMIT, 4 * GIB, 3 * GIB), Accepted(GIB, 0)]
        )
        assert beside.looks.count(name) == 2
        assert host.sessions.requests.queued(session) == 0

    play(check)


def test_several_in_the_way_are_all_looked_at(play: Callable[[Check], None]) -> None:
    async def check(host: Host) -> None:
        session, connection = with_headroom(host, GIB)
        beside = Beside(host, charged=1, left=1, kept=1)
        beside.gone = {"charged", "left", "kept"}
        host.ask(session, 2, 3 * GIB)
        assert await answers(host, connection) == [Accepted(3 * GIB, 0)]
        assert beside.looks == ["left", "charged", "kept"]

    play(check)


def test_what_is_kept_counts_together_with_what_is_charged(play: Callable[[Check], None]) -> None:
    async def check(host: Host) -> None:
        session, connection = with_headroom(host, GIB)
        Beside(host, charged=1, kept=1)
        host.ask(session, 2, 2 * GIB)
        assert await answers(host, connection) == [Rejected(Reason.LIMIT, 4 * GIB, 3 * GIB)]

    play(check)


def test_a_look_that_fails_leaves_it_to_the_ledger(play: Callable[[Check], None]) -> None:
    async def check(host: Host) -> None:
        session, connection = with_headroom(host, GIB)
        beside = Beside(host, kept=2)
        beside.fails = True
        host.ask(session, 2, 3 * GIB)
        assert await answers(host, connection) == [Accepted(3 * GIB, 0)]

    play(check)


@pytest.mark.parametrize("is_kept", [False, True])
def test_who_is_withdrawn_while_it_is_looked_is_answered_once(play: Callable[[Check], None], is_kept: bool) -> None:
    async def check(host: Host) -> None:
        session, connection = with_headroom(host, GIB)
        beside = Beside(host, kept=2)
        beside.gone = set() if is_kept else {"kept"}
        beside.during = lambda: host.lifecycle.withdraw(session, 2)
        host.ask(session, 2, 3 * GIB)
        [answer] = await answers(host, connection)
        assert isinstance(answer, Rejected)
        assert answer.reason == Reason.INTERRUPTED
        assert host.sessions.requests.queued(session) == 0

    play(check)


def test_who_ends_while_it_is_looked_is_not_answered(play: Callable[[Check], None]) -> None:
    async def check(host: Host) -> None:
        session, connection = with_headroom(host, GIB)
        beside = Beside(host, kept=2)
        beside.during = lambda: host.lifecycle.end(session) if session.number in host.sessions.by_number else None
        host.ask(session, 2, 3 * GIB)
        assert await answers(host, connection) == []

    play(check)


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("charged", [0, 1])
def test_what_waited_while_a_process_ended_is_looked_at_before_it_is_answered(
    play: Callable[[Check], None], monkeypatch: pytest.MonkeyPatch, is_kept: bool, charged: int
) -> None:
    """Two of a container were paused and then granted beside what a child kept: it was ended for that."""
    monkeypatch.setattr(lifecycle, "is_exiting", lambda _: False)

    async def check(host: Host) -> None:
        ended = host.use((3 - charged) * GIB)
        host.driver.dispatch(e.CapacityChanged("gpu", 7 * GIB // 2 - charged * GIB))
        session, connection = host.open()
        host.ask(session, 7, GIB)
        assert connection.sent == []
        beside = Beside(host, kept=4 - charged, charged=charged)
        beside.gone = set() if is_kept else {"kept"}
        host.end(ended)
        assert connection.sent == []
        [answer] = await answers(host, connection)
        if is_kept:
            assert answer == Rejected(Reason.LIMIT, 4 * GIB, 4 * GIB)
        else:
            assert answer == Accepted(GIB, (3 - charged) * GIB)
        used = host.sessions.used("a", "gpu")
        assert (used, host.sessions.requests.queued(session)) == (0 if is_kept else GIB, 0)

    play(check)


@pytest.mark.parametrize("ends", [False, True])
def test_who_is_withdrawn_or_ends_meanwhile_has_nothing(
    play: Callable[[Check], None], monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    monkeypatch.setattr(lifecycle, "is_exiting", lambda _: False)

    async def check(host: Host) -> None:
        ended = host.use(3 * GIB)
        host.driver.dispatch(e.CapacityChanged("gpu", 7 * GIB // 2))
        session, connection = host.open()
        host.ask(session, 7, GIB)
        beside = Beside(host, kept=4)
        host.end(ended)
        beside.during = lambda: host.lifecycle.end(session) if ends else host.lifecycle.withdraw(session, 7)
        beside.gone = {"kept"}
        found = await answers(host, connection)
        assert [type(answer) for answer in found] == ([] if ends else [Rejected])
        assert host.sessions.used("a", "gpu") == 0

    play(check)


def waiting(host: Host) -> tuple[Session, Connection, Beside]:
    """A process that waits for 3 GiB of 4, and is charged with 2 then: on a device of which others have most."""
    host.driver.dispatch(e.CapacityChanged("gpu", 2 * GIB))
    session, connection = host.open()
    host.ask(session, 7, 3 * GIB)
    beside = Beside(host, charged=0)
    beside.sizes["charged"] = 2 * GIB
    return session, connection, beside


@pytest.mark.parametrize("late", [0, 1, 2])
def test_what_waits_is_looked_at_before_it_is_refused_for_a_charge(play: Callable[[Check], None], late: int) -> None:
    """Three of 729 random programs were: it was gone, and nobody had counted again."""

    async def check(host: Host) -> None:
        session, connection, beside = waiting(host)
        beside.gone, beside.late = {"charged"}, late
        beside.charge()
        assert connection.sent == []
        refused: list[object] = [Rejected(Reason.LIMIT, 4 * GIB, 2 * GIB)] if late == 2 else []
        assert await answers(host, connection) == refused
        assert beside.looks.count("charged") == (2 if late else 1)
        assert ("rejected" in host.recorded) == (late == 2)
        host.driver.dispatch(e.CapacityChanged("gpu", 16 * GIB))
        assert await answers(host, connection) == (refused or [Accepted(3 * GIB, 0)])
        assert host.recorded[-1] == ("rejected" if late == 2 else "granted")
        assert host.sessions.pending == {}
        assert host.sessions.requests.queued(session) == 0

    play(check)


@pytest.mark.parametrize("ends", [False, True])
def test_who_waits_and_is_withdrawn_or_ends_while_it_is_looked_is_not_decided_on(
    play: Callable[[Check], None], ends: bool
) -> None:
    async def check(host: Host) -> None:
        session, connection, beside = waiting(host)
        beside.gone = {"charged"}
        beside.during = lambda: host.lifecycle.end(session) if ends else host.lifecycle.withdraw(session, 7)
        beside.charge()
        found = await answers(host, connection)
        assert [type(answer) for answer in found] == ([] if ends else [Rejected])
        assert (host.driver.machine.waiting, host.sessions.pending) == ([], {})

    play(check)


@pytest.mark.parametrize("call", ["cuMemAlloc", "cuCtxCreate"])
def test_the_call_of_one_that_was_looked_at_is_known(play: Callable[[Check], None], call: str) -> None:
    async def check(host: Host) -> None:
        session, connection = with_headroom(host, GIB)
        beside = Beside(host, charged=2)
        beside.gone = {"charged"}
        asked = list[e.AllocationRequested]()
        dispatch = host.driver.dispatch
        host.driver.dispatch = lambda event: (  # type: ignore[method-assign]
            asked.append(event) if isinstance(event, e.AllocationRequested) else None,
            dispatch(event),
        )[1]
        host.lifecycle.allocate(session, 2, 0, 3 * GIB, call)
        await answers(host, connection)
        [event] = asked
        assert (event.size, event.is_context, event.is_looked_at) == (3 * GIB, call == "cuCtxCreate", True)

    play(check)


def asking(host: Host) -> tuple[Session, Connection, Beside]:
    """A process that asks for 3 GiB of 4 when `charge` is called, and is charged with 2."""
    session, connection = with_headroom(host, GIB)
    beside = Beside(host, charged=2)
    beside.charge = lambda: host.ask(session, 2, 3 * GIB)  # type: ignore[method-assign]
    return session, connection, beside


@pytest.mark.parametrize("begin", [waiting, asking])
def test_a_look_that_never_ends_is_given_up(
    play: Callable[[Check], None], monkeypatch: pytest.MonkeyPatch, begin: Callable[[Host], Any]
) -> None:
    """No deadline holds meanwhile, and the kernel may never return what is read of processes."""
    monkeypatch.setattr(lifecycle, "_LONGEST", 0.01)

    async def check(host: Host) -> None:
        _, connection, beside = begin(host)
        never = asyncio.Event()
        host.lifecycle.recount = lambda _: never.wait()  # type: ignore[assignment]
        beside.charge()
        [answer] = await answers(host, connection)
        assert isinstance(answer, Rejected)

    play(check)


@pytest.mark.parametrize("begin", [waiting, asking])
def test_whose_container_is_removed_meanwhile_gets_no_turn_again(
    play: Callable[[Check], None], begin: Callable[[Host], Any]
) -> None:
    """It was given one, with a descriptor that nobody closed."""

    async def check(host: Host) -> None:
        session, connection, beside = begin(host)
        shares = host.lifecycle._shares

        def remove() -> None:
            host.lifecycle.end(session)
            shares.remove("a")

        beside.during = remove
        beside.charge()
        assert await answers(host, connection) == []
        assert ("a" in shares._shares, host.lifecycle._looked_at) == (False, {})

    play(check)


def test_a_pause_is_explained_when_the_look_is_over() -> None:
    """It waits for nobody meanwhile, so there is nothing to say; afterwards it was never said."""
    timers, sent = list[tuple[float, Any, Any]](), list[object]()
    loop = SimpleNamespace(call_later=lambda after, call, *args: timers.append((after, call, args)), time=lambda: 50.0)
    connection = SimpleNamespace(send=lambda message, _frame: sent.append(message))
    page = SimpleNamespace(is_able=lambda _: True, notice=lambda: 0)
    session = SimpleNamespace(number=3, container="a", connection=connection, page=page)
    pending = SimpleNamespace(session=session, device="gpu", frame=7)
    sessions = SimpleNamespace(pending={9: pending}, by_number={3: session})
    notices = PauseNotices(cast("Any", loop), cast("Any", sessions), after=0.5)
    why = [None, None, Wait(WaitReason.MEMORY, 0, ("b",), 0, 1)]
    notices.explain = lambda *_: why[0]
    notices.describe = lambda *_: "b has it"
    assert notices.begin(9, cast("Any", pending), 1) == {}
    for after in (0.5, 1.0, 1.0):
        [(seconds, call, args)] = timers
        assert (seconds, sent) == (after, [])
        del timers[:]
        call(*args)
        del why[0]
    assert (sent, timers) == ([Explained("b has it")], [])
