"""What the next scheduler takes up of exports, on a real ledger and a real database."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from exporting_host import GIB, Check, Host

from convgpu.core import events as e
from convgpu.daemon.sessions.export_records import ExportRecords
from convgpu.daemon.storage.store import Store
from convgpu.protocol.inspection.messages import ALL, EXPECTED, Exported


class Sessions:
    """The sessions of a host, by what they use."""

    def __init__(self) -> None:
        self.by_number: dict[int, Any] = {}
        self.uses: dict[int, int] = {}

    def add(self, session: Any, used: int) -> Any:
        self.by_number[session.number], self.uses[session.number] = session, used
        return session

    def used_by(self, session: Any, device: str) -> int:
        return self.uses[session.number] if device == "gpu" else 0


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, "boot", lambda _seconds, _work: None)


def records(host: Host, sessions: Sessions, store: Store) -> ExportRecords:
    return ExportRecords(host.driver, host.outliving, sessions, store.settings, audited=True)  # type: ignore[arg-type]


async def restarted(store: Store, *living: tuple[str, int]) -> tuple[Host, Sessions]:
    """A new scheduler, to which processes have connected again that use so much."""
    host, sessions = Host(), Sessions()
    new = records(host, sessions, store)
    for name, used in living:
        session = sessions.add(host.session(name, used), used)
        host.outliving.begin(session, {"gpu": used})
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
        assert host.outliving.left() == {}

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


async def exported(host: Host, store: Store, *sizes: int) -> None:
    """A process of `a` that uses 3 GiB exports so many GiB, and the scheduler ends."""
    sessions = Sessions()
    before = records(host, sessions, store)
    before.restore()
    session = sessions.add(host.session("a", 3 * GIB), 3 * GIB)
    for name, size in enumerate(sizes):
        await host.tell(session, name, size * GIB, host.export()[0])
    before.write()


def test_who_tells_anew_is_expected_to_have_the_rest_until_that_was_all(
    on_host: Callable[[Check], None], store: Store
) -> None:
    async def check(host: Host) -> None:
        await exported(host, store, 1, 1)
        for is_all, charged in ((False, 2), (True, 1)):
            host, sessions = await restarted(store, ("a", 3 * GIB))
            [session] = sessions.by_number.values()
            await host.tell(session, 9, GIB, host.export()[0])
            if is_all:
                assert host.outliving.note(session, Exported(0, 0, 0, ALL, 0, 0))
            host.end(session, 3 * GIB)
            assert await host.charged() == [charged, 0]

    on_host(check)


def test_who_ends_within_recovery_is_charged_once(on_host: Callable[[Check], None], store: Store) -> None:
    """Also if it had told anew, and nobody has the descriptor any more."""

    async def check(host: Host) -> None:
        await exported(host, store, 2)
        for is_closed, charged in ((False, 2), (True, 0)):
            host, sessions = Host(), Sessions()
            new = records(host, sessions, store)
            session = host.session("a", 3 * GIB)
            host.outliving.begin(session, {"gpu": 3 * GIB})
            number, kept = host.export()
            await host.tell(session, 7, 2 * GIB, number)
            if is_closed:
                os.close(kept)
            host.end(session, 3 * GIB)
            new.restore()
            assert await host.charged() == [charged, 0]

    on_host(check)


def test_workers_that_left_a_little_each_are_one_record(on_host: Callable[[Check], None], store: Store) -> None:
    async def check(host: Host) -> None:
        before = records(host, Sessions(), store)
        before.restore()
        for name in range(1100):
            session = host.session("a", 1 << 20)
            host.outliving.note(session, Exported(name, 1 << 20, 0, EXPECTED, 0, 0))
            host.end(session, 1 << 20)
        before.write()
        assert (store.settings.get("exported") or "").count("container") == 1
        host, _ = await restarted(store)
        account = host.driver.machine.account("a", "gpu")
        assert account is not None
        assert account.charged == 1100 << 20

    on_host(check)


def test_a_process_whose_pid_is_not_seen_is_not_recorded(on_host: Callable[[Check], None], store: Store) -> None:
    """The next scheduler could not tell it apart from one that has ended."""

    async def check(host: Host) -> None:
        sessions = Sessions()
        before = records(host, sessions, store)
        before.restore()
        session = sessions.add(host.session("a", GIB), GIB)
        session.pid = session.started = 0
        host.outliving.note(session, Exported(7, GIB, 0, EXPECTED, 0, 0))
        before.write()
        assert store.settings.get("exported") is None

    on_host(check)


@pytest.mark.parametrize("why", ["boot", "audit"])
def test_nothing_is_taken_up_after_a_boot_or_without_an_audit(
    on_host: Callable[[Check], None], store: Store, tmp_path: Path, why: str
) -> None:
    async def check(host: Host) -> None:
        await exported(host, store, 2)
        if why == "boot":
            again = Store(tmp_path, "another boot", lambda _seconds, _work: None)
        else:
            again = store
            ExportRecords(host.driver, host.outliving, Sessions(), store.settings, audited=False)  # type: ignore[arg-type]
        host, _ = await restarted(again)
        assert await host.charged() == [0, 0]

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
    "text",
    [
        "{",
        '[{"container":"a","charged":{"gpu":-1}}]',
        '[{"x":' + "[" * 5000,
        '[{"container":"a","charged":{"gone":1073741824}}]',
    ],
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
        assert host.outliving.left() == {}
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
            sessions.add(SimpleNamespace(number=number, container="a", pid=number, started=1, rows=("gpu",)), number)
            host.outliving.note(sessions.by_number[number], Exported(7, number, 0, 9, 9, 1))
        before.write()
        host, _ = await restarted(store)
        account = host.driver.machine.account("a", "gpu")
        assert account is not None
        assert account.charged == sum(range(76, 1100))

    on_host(check)
