"""An answer that is kept back while a process of its container ends, from the request to its end."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.daemon.gpu.ending import EndingProcesses
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.sessions.effects import EffectPerformer
from convgpu.daemon.sessions.lifecycle import EndedMemory, SessionLifecycle
from convgpu.daemon.sessions.open_requests import BOUNDS, Kind, OpenRequests
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.transport.shares import Shares
from convgpu.policies.memory import Fifo
from convgpu.protocol.messages import Accepted, Rejected
from convgpu.protocol.wire import Reason

GIB = 1 << 30


class Connection:
    """Keeps the answers to a process that nobody else sees."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.closed = False
        self.sent: list[tuple[int, object]] = []

    def send(self, message: object, request: int = 0) -> None:
        self.sent.append((request, message))


class Page:
    """The headroom of one device; it is not in shared memory."""

    def __init__(self) -> None:
        self.headroom = 0

    def lease(self, _row: int, size: int) -> None:
        self.headroom += size

    def read(self, _row: int) -> int:
        return self.headroom

    def take_all(self, _row: int) -> int:
        taken, self.headroom = self.headroom, 0
        return taken

    def arm(self, row: int, *, armed: bool) -> None:
        pass

    def publish_limit(self, row: int, limit: int, *, alone: bool) -> None:
        pass


class Outliving:
    """What processes left to others: as much of each as the test says."""

    def __init__(self) -> None:
        self.kept: Mapping[str, int] = {}

    def begin(self, *_: object) -> None:
        pass

    def leave(self, _session: Session, _used: Mapping[str, int]) -> Mapping[str, int]:
        return self.kept


class Host:
    """A container of 4 GiB of a device of 16; processes of it end when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("convgpu.daemon.sessions.lifecycle.is_exiting", lambda _: True)
        machine, shares = Machine({"gpu": 16 * GIB}, Fifo()), Shares(asyncio.get_running_loop())
        self.sessions = SessionRegistry(machine, OpenRequests(shares))
        self.ending = EndingProcesses(machine)
        self.outliving = Outliving()
        self.recorded: list[str] = []
        nothing: Any = SimpleNamespace(
            add=lambda kind, *_, **__: self.recorded.append(str(kind)),
            watch=lambda *_, **__: None,
            set_limit_in_force=lambda *_: None,
            drop=lambda *_: None,
            begin=lambda *_: {},
        )
        performer = EffectPerformer(machine, self.sessions, nothing, nothing, nothing, self.ending)
        self.driver = MachineDriver(asyncio.get_running_loop(), machine, performer, lambda: None)
        none_kept: Any = SimpleNamespace(begin=lambda *_: None, most=lambda *_: 0, certain=lambda *_: 0)
        ended = EndedMemory(nothing, self.outliving, self.ending, none_kept)  # type: ignore[arg-type]
        self.lifecycle = SessionLifecycle(self.driver, self.sessions, nothing, ended, nothing, lambda: 0.0, shares)
        performer.hold, performer.look = self.lifecycle.hold, self.lifecycle.look
        self.driver.dispatch(e.ContainerCreated("a", {"gpu": 4 * GIB}))
        self.driver.dispatch(e.ContainerStarted("a"))

    def open(self, container: str = "a") -> tuple[Session, Connection]:
        connection = Connection()
        number, process = self.lifecycle.next_number(), os.pidfd_open(os.getpid())
        session = Session(number, container, connection, Page(), ["gpu"], "p", 0.0, process)  # type: ignore[arg-type]
        self.lifecycle.open(session, {})
        return session, connection

    def ask(self, session: Session, frame: int, size: int) -> None:
        def ask() -> None:
            self.lifecycle.allocate(session, frame, 0, size, "cuMemAlloc")

        assert self.sessions.requests.begin(session, Kind.ALLOCATION, ask)

    def use(self, size: int) -> Session:
        """Return a process that has used so much, and no headroom."""
        session, _ = self.open()
        self.ask(session, 1, size)
        self.driver.dispatch(e.AllocationReturned(session.number, "gpu", session.page.take_all(0)))
        return session

    def end(self, session: Session) -> None:
        assert session.process is not None
        self.lifecycle.end(session)
        os.close(session.process)


def check(test: Callable[[Host], None], monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        test(Host(monkeypatch))

    asyncio.run(body())


def answers(connection: Connection) -> Sequence[object]:
    return [message for _, message in connection.sent]


def test_an_interrupted_program_is_answered_at_once_and_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def test(host: Host) -> None:
        ended = host.use(3 * GIB)
        session, connection = host.open()
        host.end(ended)
        host.ask(session, 7, 2 * GIB)
        host.ask(session, 8, GIB)
        host.lifecycle.withdraw(session, 9)
        assert answers(connection) == []
        host.lifecycle.withdraw(session, 7)
        (first, rejected), (second, accepted) = connection.sent
        assert isinstance(rejected, Rejected)
        assert isinstance(accepted, Accepted)
        assert (first, rejected.reason, second) == (7, Reason.INTERRUPTED, 8)  # who was behind it has room now
        assert host.driver.machine.lease(session.number, "gpu") == GIB
        assert host.recorded[-1] == "rejected"
        host.ending.end(ended.number)
        host.lifecycle.withdraw(session, 8)
        assert len(connection.sent) == 2

    check(test, monkeypatch)


def test_a_process_has_no_more_answers_kept_back_than_it_may_have_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer that comes to those costs as much as there are."""

    def test(host: Host) -> None:
        ended = host.use(3 * GIB)
        session, connection = host.open()
        host.end(ended)
        for frame in range(2 * BOUNDS[Kind.ALLOCATION].session):
            host.ask(session, frame, GIB + 1 if frame == 0 else 1)
        assert (len(connection.sent), host.sessions.requests.queued(session)) == (0, BOUNDS[Kind.ALLOCATION].session)
        host.ending.end(ended.number)
        assert len(connection.sent) == BOUNDS[Kind.ALLOCATION].session

    check(test, monkeypatch)


def test_more_room_is_used_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def test(host: Host) -> None:
        gone, ended = host.use(GIB), host.use(GIB)
        session, connection = host.open()
        host.end(ended)
        host.ask(session, 7, 2 * GIB + 1)
        assert connection.sent == []
        monkeypatch.setattr("convgpu.daemon.sessions.lifecycle.is_exiting", lambda _: False)
        host.end(gone)  # which takes the kernel no time
        assert len(connection.sent) == 1
        host.ask(session, 8, GIB)
        assert len(connection.sent) == 1
        host.driver.dispatch(e.LimitsChanged("a", {"gpu": 8 * GIB}))
        assert len(connection.sent) == 2

    check(test, monkeypatch)


def test_what_lies_on_the_host_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def test(host: Host) -> None:
        ended = host.use(3 * GIB)
        session, connection = host.open()
        monkeypatch.setattr(host.driver.machine, "on_host", lambda *_: (2 * GIB, GIB))
        host.end(ended)
        host.ask(session, 7, 3 * GIB)
        assert len(connection.sent) == 1

    check(test, monkeypatch)


def test_what_others_have_of_it_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def test(host: Host) -> None:
        ended = host.use(3 * GIB)
        host.outliving.kept = {"gpu": 2 * GIB}  # is charged
        session, connection = host.open()
        host.end(ended)
        host.ask(session, 7, GIB)
        assert len(connection.sent) == 1

    check(test, monkeypatch)
