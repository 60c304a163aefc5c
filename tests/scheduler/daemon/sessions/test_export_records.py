"""What the next scheduler takes up of exports, on a real ledger and a real database."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from exporting_host import GIB, Check, Host

from convgpu.core import events as e
from convgpu.daemon.sessions.export_records import ExportRecords
from convgpu.daemon.storage.store import Store


class Sessions:
    """The sessions of a host, by what they use."""

    def __init__(self) -> None:
        self.by_number: dict[int, Any] = {}
        self.uses: dict[int, int] = {}

    def add(self, session: Any, used: int) -> Any:
        session.started = 1
        self.by_number[session.number], self.uses[session.number] = session, used
        return session

    def find(self, container: str, pid: int, started: int) -> Any:
        wanted = (container, pid, started)
        return next((s for s in self.by_number.values() if (s.container, s.pid, s.started) == wanted), None)

    def used_by(self, session: Any, device: str) -> int:
        return self.uses[session.number] if device == "gpu" else 0


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, "boot", lambda _seconds, _work: None)


def records(host: Host, sessions: Sessions, store: Store) -> ExportRecords:
    return ExportRecords(host.driver, host.outliving, sessions, store.settings)


async def restarted(store: Store, *living: tuple[str, int]) -> tuple[Host, Sessions]:
    """A new scheduler, to which processes have connected again that use so much."""
    host, sessions = Host(), Sessions()
    for name, used in living:
        sessions.add(host.session(name, used), used)
    new = records(host, sessions, store)
    new.write()  # an audit before the end of recovery takes nothing away
    new.restore()
    await asyncio.sleep(0)
    return host, sessions


def doubt(host: Host, times: int = 3) -> None:
    for _ in range(times):
        host.outliving.see_none("gpu")


def test_what_was_left_is_charged_until_nothing_can_be_left(on_host: Callable[[Check], None], store: Store) -> None:
    async def check(host: Host) -> None:
        before = records(host, Sessions(), store)
        before.restore()
        session = host.session("a", 3 * GIB)
        await host.tell(session, 7, 2 * GIB, host.export()[0])
        host.end(session, 3 * GIB)
        before.write()
        for _ in range(2):  # also the one after the next knows
            host, sessions = await restarted(store)
            assert await host.charged() == [2, 0]
            records(host, sessions, store).write()
        doubt(host, 2)
        assert await host.charged() == [2, 0]
        doubt(host, 1)
        assert await host.charged() == [0, 0]
        assert host.outliving.left() == []

    on_host(check)


def test_who_ended_meanwhile_left_no_more_than_it_used(on_host: Callable[[Check], None], store: Store) -> None:
    """A process tells what it likes."""

    async def check(host: Host) -> None:
        sessions = Sessions()
        before = records(host, sessions, store)
        before.restore()
        liar, honest = sessions.add(host.session("a", GIB), GIB), sessions.add(host.session("b", 3 * GIB), 3 * GIB)
        await host.tell(liar, 7, 9 * GIB, host.export()[0])
        await host.tell(honest, 7, GIB, host.export()[0])
        await host.tell(honest, 8, GIB, host.export()[0])
        await host.tell(honest, 8, 0, 0)
        before.write()
        host, _ = await restarted(store)
        assert await host.charged() == [1, 1]

    on_host(check)


@pytest.mark.parametrize(("used", "charged"), [(3, [0, 0]), (0, [2, 0])])
def test_who_has_connected_again_leaves_it_at_its_end(
    on_host: Callable[[Check], None], store: Store, used: int, charged: list[float]
) -> None:
    """Who holds nothing then has executed another program, and has left it."""

    async def check(host: Host) -> None:
        sessions = Sessions()
        before = records(host, sessions, store)
        before.restore()
        await host.tell(sessions.add(host.session("a", 3 * GIB), 3 * GIB), 7, 2 * GIB, host.export()[0])
        before.write()
        host, sessions = await restarted(store, ("a", used * GIB))
        assert await host.charged() == charged
        for session in sessions.by_number.values():
            host.end(session, used * GIB)
        assert await host.charged() == [2, 0]

    on_host(check)


def test_who_tells_anew_has_told_all(on_host: Callable[[Check], None], store: Store) -> None:
    async def check(host: Host) -> None:
        sessions = Sessions()
        before = records(host, sessions, store)
        before.restore()
        await host.tell(sessions.add(host.session("a", 3 * GIB), 3 * GIB), 7, 2 * GIB, host.export()[0])
        before.write()
        host, sessions = await restarted(store, ("a", 3 * GIB))
        [session] = sessions.by_number.values()
        await host.tell(session, 9, GIB, host.export()[0])
        host.end(session, 3 * GIB)
        assert await host.charged() == [1, 0]

    on_host(check)


def test_what_a_removed_container_left_is_charged_to_nobody(on_host: Callable[[Check], None], store: Store) -> None:
    """Also if it was removed while no scheduler ran; who has its name now left nothing."""

    async def check(host: Host) -> None:
        before = records(host, Sessions(), store)
        before.restore()
        for name in "ab":
            session = host.session(name, GIB)
            await host.tell(session, 7, GIB, host.export()[0])
            host.end(session, GIB)
        host.driver.dispatch(e.ContainerRemoved("b"))
        host.driver.dispatch(e.ContainerCreated("b", {"gpu": 4 * GIB}))
        assert await host.charged() == [1, 0]
        before.write()
        host, sessions = Host(), Sessions()
        host.driver.dispatch(e.ContainerRemoved("a"))
        records(host, sessions, store).restore()
        assert await host.charged() == [0, 0]
        rows = [(row.name, row.size, row.is_charged) for row in host.outliving.rows("gpu")]
        assert rows == [("a", GIB, False), ("b", GIB, False)]
        doubt(host)
        assert host.outliving.rows("gpu") == ()

    on_host(check)


@pytest.mark.parametrize(
    "text", ["{", '[{"container":"a","charged":{"gpu":-1}}]', '[{"container":"a","charged":{"gone":1073741824}}]']
)
def test_what_cannot_be_taken_up_is_left_out(
    on_host: Callable[[Check], None], store: Store, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Damaged, or of a card that is not there any more."""

    async def check(host: Host) -> None:
        store.settings.note("exported", text)
        new = records(host, Sessions(), store)
        new.restore()
        assert await host.charged() == [0, 0]
        assert host.outliving.left() == []
        new.write()
        assert store.settings.get("exported") == "[]"
        assert ("is not known" in caplog.text) == ("gone" not in text)

    on_host(check)


def test_as_many_are_kept_as_there_is_room_for(on_host: Callable[[Check], None], store: Store) -> None:
    async def check(host: Host) -> None:
        sessions = Sessions()
        before = records(host, sessions, store)
        before.restore()
        for number in range(1, 1100):
            sessions.add(SimpleNamespace(number=number, container="a", pid=number, rows=("gpu",)), number)
            host.outliving.expect(sessions.by_number[number], {"gpu": number})
        before.write()
        host, _ = await restarted(store)
        account = host.driver.machine.account("a", "gpu")
        assert account is not None
        assert account.charged == sum(range(76, 1100))

    on_host(check)
