"""Who is charged with what an ended process left, on a real ledger, with real epoll instances and files."""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from exporting_host import GIB, Check, Host

from convgpu.core import events as e
from convgpu.daemon.sessions.exports import UNKNOWN, Exports
from convgpu.daemon.sessions.outliving import _forget_closed


def test_it_is_charged_as_long_as_somebody_has_it(on_host: Callable[[Check], None]) -> None:
    async def check(host: Host) -> None:
        session = host.session("a", 3 * GIB)
        first, second = host.export(), host.export()
        await host.tell(session, 7, 2 * GIB, first[0])
        await host.tell(session, 7, 2 * GIB, second[0])  # another descriptor of the same memory
        host.end(session, 3 * GIB)
        assert await host.charged() == [2, 0]
        [row] = host.outliving.rows("gpu")
        assert (row.name, row.id, row.size, row.kept != "") == ("a", "", 2 * GIB, True)
        os.close(first[1])
        assert await host.charged() == [2, 0]
        os.close(second[1])
        assert await host.charged() == [0, 0]
        assert host.outliving.rows("gpu") == ()

    on_host(check)


def test_what_nobody_has_at_the_end_is_charged_to_nobody(on_host: Callable[[Check], None]) -> None:
    async def check(host: Host) -> None:
        closed, other = host.session("a", 3 * GIB), host.session("b", 3 * GIB)
        number, kept = host.export()
        await host.tell(closed, 7, 2 * GIB, number)
        os.close(kept)
        number, _kept = host.export()
        await host.tell(other, 7, 2 * GIB, number)
        await host.tell(other, 7, 0, 0)  # it was closed, and the number is another file's
        host.end(closed, 3 * GIB)
        host.end(other, 3 * GIB)
        host.end(host.session("a", GIB), GIB)
        assert await host.charged() == [0, 0]

    on_host(check)


def test_without_a_thread_it_stays_charged_and_nobody_waits(
    on_host: Callable[[Check], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever used up the host's processes had an allocation of another's wait for ever."""

    async def check(host: Host) -> None:
        session = host.session("a", 3 * GIB)
        number, kept = host.export()
        await host.tell(session, 7, 2 * GIB, number)
        host.end(session, 3 * GIB)
        os.close(kept)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
            await host.outliving.look("a")
        assert await host.charged() == [0, 0]

    on_host(check)


def test_no_more_is_charged_than_was_used(on_host: Callable[[Check], None]) -> None:
    """A process tells what it likes."""

    async def check(host: Host) -> None:
        for name, used in (("a", GIB), ("b", 0)):
            session = host.session(name, used)
            for memory in (1, 2):
                await host.tell(session, memory, 9 * GIB, host.export()[0])
            host.end(session, used)
        assert await host.charged() == [1, 0]

    on_host(check)


def test_who_executes_another_program_has_left_what_others_have(on_host: Callable[[Check], None]) -> None:
    async def check(host: Host) -> None:
        session = host.session("a", 3 * GIB)
        await host.tell(session, 7, 2 * GIB, host.export()[0])
        for held, charged in ((3 * GIB, 0), (0, 2)):
            after = SimpleNamespace(**vars(session) | {"number": host.driver.next_number()})
            kept = host.outliving.reconnect(after, session, {"gpu": 3 * GIB}, {"gpu": held})
            host.driver.dispatch(e.SessionReconnected(after.number, session.number, {"gpu": held}, kept=kept))
            assert await host.charged() == [charged, 0]
            session = after
        host.end(session, 0)
        assert await host.charged() == [2, 0]

    on_host(check)


def test_who_connects_again_has_told_what_he_told(on_host: Callable[[Check], None]) -> None:
    """Also who has freed something meanwhile: nothing is charged twice, and the copies stay open."""

    async def check(host: Host) -> None:
        session = host.session("a", 3 * GIB)
        number, kept = host.export()
        await host.tell(session, 7, 2 * GIB, number)
        after = SimpleNamespace(**vars(session) | {"number": host.driver.next_number()})
        assert host.outliving.reconnect(after, session, {"gpu": 3 * GIB}, {"gpu": 2 * GIB}) == {}
        host.driver.dispatch(e.SessionReconnected(after.number, session.number, {"gpu": 2 * GIB}))
        assert await host.charged() == [0, 0]
        host.end(after, 2 * GIB)
        assert await host.charged() == [2, 0]
        os.close(kept)
        assert await host.charged() == [0, 0]

    on_host(check)


def test_nothing_goes_on_before_the_copy_is_taken(on_host: Callable[[Check], None]) -> None:
    """Of several descriptors that are told at once, too: a process that is killed then has left them."""

    async def check(host: Host) -> None:
        session = host.session("a", 3 * GIB)
        numbers = [host.export()[0] for _ in range(5)]
        known = []

        async def tell(name: int, number: int) -> None:
            await host.tell(session, name, GIB // 2, number)
            known.append(UNKNOWN not in host.outliving._living[session.number].copies.values())

        await asyncio.gather(*(tell(name, number) for name, number in enumerate(numbers)))
        assert known == [True] * 5
        host.end(session, 3 * GIB)
        assert await host.charged() == [2.5, 0]

    on_host(check)


def test_who_has_ended_is_charged_until_its_volume_is_removed(on_host: Callable[[Check], None]) -> None:
    """It may be started again. One that is made anew left nothing."""

    async def check(host: Host) -> None:
        for name in "ab":
            session = host.session(name, GIB)
            await host.tell(session, 7, GIB, host.export()[0])
            host.end(session, GIB)
        host.driver.dispatch(e.ContainerEnded("a"))
        host.driver.dispatch(e.ContainerRemoved("b"))
        host.driver.dispatch(e.ContainerCreated("b", {"gpu": 4 * GIB}))
        assert await host.charged() == [1, 0]
        host.driver.dispatch(e.ContainerRemoved("a"))
        assert await host.charged() == [0, 0]

    on_host(check)


def test_what_a_removed_container_left_is_shown_as_long_as_somebody_has_it(on_host: Callable[[Check], None]) -> None:
    """Others wait for it as for memory of external programs; whoever is made anew under its name is not charged."""

    async def check(host: Host) -> None:
        exports = []
        for _ in range(2):
            session = host.session("b", GIB)
            exports.append(host.export())
            await host.tell(session, 7, GIB, exports[-1][0])
            host.end(session, GIB)
        host.driver.dispatch(e.ContainerRemoved("b"))
        assert await host.charged() == [0, 0]
        host.driver.dispatch(e.ContainerCreated("b", {"gpu": 4 * GIB}))
        session = host.session("b", GIB)
        await host.tell(session, 7, GIB, host.export()[0])
        host.end(session, GIB)
        for left in (2, 1, 0):
            await host.outliving.look("")
            assert await host.charged() == [0, 1]
            own, *others = host.outliving.rows("gpu")
            assert (own.name, own.size, own.is_charged, own.is_left) == ("b", GIB, True, True)
            assert [(one.name, one.size, one.is_charged) for one in others] == [("b", left * GIB, False)][:left]
            assert all(one.is_left and "its volume was removed" in (one.kept or "") for one in others)
            if left:
                os.close(exports.pop()[1])

    on_host(check)


def test_of_those_that_were_removed_who_left_least_is_forgotten_first(
    on_host: Callable[[Check], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("convgpu.daemon.sessions.outliving._MOST_REMOVED", 2)

    async def check(host: Host) -> None:
        for size in (3, 1, 2):
            session = host.session("b", size * GIB)
            await host.tell(session, 7, size * GIB, host.export()[0])
            host.end(session, size * GIB)
            host.driver.dispatch(e.ContainerRemoved("b"))
            host.driver.dispatch(e.ContainerCreated("b", {"gpu": 4 * GIB}))
            assert await host.charged() == [0, 0]
        assert [one.size for one in host.outliving.rows("gpu")] == [5 * GIB]
        assert "b left 1073741824 bytes behind, which show as of nobody now" in caplog.text

    on_host(check)


def test_no_more_copies_are_taken_than_there_may_be(
    on_host: Callable[[Check], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def check(host: Host) -> None:
        host.outliving.most_copies = 1
        sessions = [host.session(name, GIB) for name in "ab"]
        for session in sessions:
            await host.tell(session, 7, GIB, host.export()[0])
        for session in sessions:
            host.end(session, GIB)
        assert await host.charged() == [1, 0]
        assert "exported is not known: there are 1 copies" in caplog.text

    on_host(check)


def test_it_is_looked_at_again_and_again(on_host: Callable[[Check], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convgpu.daemon.sessions.outliving._STEP", 0.01)

    async def check(host: Host) -> None:
        session = host.session("a", GIB)
        number, kept = host.export()
        await host.tell(session, 7, GIB, number)
        host.end(session, GIB)
        assert host.outliving.stays("gpu") == GIB
        os.close(kept)
        while host.outliving.stays("gpu"):
            await asyncio.sleep(0)
        assert await host.charged() == [0, 0]

    on_host(check)


def test_a_look_that_has_begun_is_followed_by_another(
    on_host: Callable[[Check], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be past what was closed since, and does not know of a process that ended since."""
    is_past, goes_on = threading.Event(), threading.Event()

    def forget_closed(left: Sequence[Exports]) -> None:
        _forget_closed(left)
        is_past.set()
        goes_on.wait()

    monkeypatch.setattr("convgpu.daemon.sessions.outliving._forget_closed", forget_closed)

    async def check(host: Host) -> None:
        kept = []
        for _ in range(2):
            session = host.session("a", GIB)
            number, descriptor = host.export()
            kept.append(descriptor)
            await host.tell(session, 7, GIB, number)
            host.end(session, GIB)
            if len(kept) == 1:
                await asyncio.to_thread(is_past.wait)
        for descriptor in kept:
            os.close(descriptor)
        looks = [asyncio.ensure_future(host.outliving.look("a")) for _ in range(2)]
        await asyncio.sleep(0)
        goes_on.set()
        await asyncio.gather(*looks)
        assert host.outliving.stays("gpu") == 0

    on_host(check)


def test_what_was_left_is_known_by_container_and_device(on_host: Callable[[Check], None]) -> None:
    async def check(host: Host) -> None:
        for size in (1, 2):
            session = host.session("a", size * GIB)
            await host.tell(session, size, size * GIB, host.export()[0])
            host.end(session, size * GIB)
        assert [host.outliving.left_on(*place) for place in (("a", "gpu"), ("b", "gpu"), ("a", "x"))] == [3 * GIB, 0, 0]

    on_host(check)
