"""Which process has a session, and what the others of its container learn of it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from convgpu.core.memory.account import AccountView
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.transport.connection import Absent
from convgpu.daemon.transport.shared_page import Page

DEVICE = "gpu"


class NotedPage:
    """A page that notes what is done with it."""

    def __init__(self) -> None:
        self.published: list[bool] = []
        self.reads = 0

    def publish_limit(self, _row: int, _limit: int, *, alone: bool) -> None:
        self.published.append(alone)

    def read(self, _row: int) -> int:
        self.reads += 1
        return 1


@pytest.fixture
def sessions() -> SessionRegistry:
    account = SimpleNamespace(limit=10)
    machine = SimpleNamespace(accounts=lambda _container: {DEVICE: account})
    return SessionRegistry(cast("Any", machine), cast("Any", SimpleNamespace(forget=lambda _session: None)))


def add(sessions: SessionRegistry, number: int, container: str = "a") -> tuple[Session, NotedPage]:
    page = NotedPage()
    session = Session(number, container, Absent(7), cast("Page", page), (DEVICE,), "program", 0.0, started=100)
    sessions.add(session)
    return session, page


def test_a_session_belongs_to_a_pid_and_its_start(sessions: SessionRegistry) -> None:
    session, _page = add(sessions, 1)
    assert sessions.find("a", 7, 100) is session
    assert [sessions.find(*one) for one in (("a", 7, 101), ("b", 7, 100), ("a", 8, 100), ("a", 0, 0))] == [None] * 4
    later, _page = add(sessions, 2)  # the process came again, and its first connection ends late
    sessions.remove(session)
    assert sessions.find("a", 7, 100) is later
    sessions.remove(later)
    assert sessions.find("a", 7, 100) is None


def test_a_process_learns_of_others_only_whether_there_are_any(sessions: SessionRegistry) -> None:
    made = [add(sessions, number) for number in range(100)]
    add(sessions, 100, "other")
    assert [page.published for _session, page in made] == [[True, False], *[[False]] * 99]
    for session, _page in made[1:]:
        sessions.remove(session)
        sessions.publish_end("a")
    assert [page.published for _session, page in made] == [[True, False, True], *[[False]] * 99]
    assert (sessions.of("a"), list(sessions.by_container())) == ([made[0][0]], ["a", "other"])


def test_the_usage_reads_only_pages_of_processes_that_have_something(sessions: SessionRegistry) -> None:
    made = [add(sessions, number) for number in range(100)]
    account = SimpleNamespace(leases={number: 5 * (number == 3) for number in range(100)})
    assert sessions.used_of(cast("AccountView", account), DEVICE) == 4
    assert [page.reads for _session, page in made] == [int(number == 3) for number in range(100)]
