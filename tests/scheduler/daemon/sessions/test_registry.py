"""Which process has a session."""

from typing import Any, cast

from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.transport.connection import Absent
from convgpu.daemon.transport.shared_page import Page


def test_a_session_belongs_to_a_pid_and_its_start() -> None:
    session = Session(1, "a", Absent(7), cast("Page", None), (), "program", 0.0, started=100)
    sessions = SessionRegistry(cast("Any", None), cast("Any", None))
    sessions.by_number[1] = session
    assert sessions.find("a", 7, 100) is session
    assert [sessions.find(*one) for one in (("a", 7, 101), ("b", 7, 100), ("a", 8, 100), ("a", 0, 0))] == [None] * 4
