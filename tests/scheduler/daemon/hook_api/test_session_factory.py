"""Making sessions."""

import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from convgpu.daemon.hook_api import session_factory
from convgpu.daemon.hook_api.session_factory import SessionFactory
from convgpu.daemon.storage.rows import PreviousSession
from convgpu.daemon.system.procfs import look_at
from convgpu.daemon.transport.connection import Absent


def test_a_session_without_a_page_leaves_no_descriptor_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no descriptors are left")

    monkeypatch.setattr(session_factory, "Page", fail)
    none, machine = cast("Any", None), cast("Any", SimpleNamespace(accounts=lambda _: {}, hides_others=lambda _: False))
    fixed = cast("Any", SimpleNamespace(may_leave=lambda _: False, is_unified=lambda _: False))
    factory = SessionFactory(machine, none, none, lambda: 0.0, fixed)
    process = os.pidfd_open(os.getpid())
    with pytest.raises(OSError, match="no descriptors"):
        factory.make(Absent(os.getpid()), process, PreviousSession(os.getpid(), 1, "a", "test"), look_at(os.getpid()))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(process)
