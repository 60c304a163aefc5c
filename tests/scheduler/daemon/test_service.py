"""The order in which a scheduler ends."""

from dataclasses import fields
from types import SimpleNamespace
from unittest.mock import Mock

from convgpu.daemon.service import Service
from convgpu.daemon.startup.running_machine import RunningMachine


def test_all_that_must_survive_is_written_before_the_porter_is_waited_for() -> None:
    parts = Mock()
    running = RunningMachine(**{field.name: getattr(parts, field.name) for field in fields(RunningMachine)})
    names = ("host", "admin", "restored", "recovery")
    Service.close(SimpleNamespace(_running=running, **{f"_{name}": getattr(parts, name) for name in names}))
    assert [name for name, _, _ in parts.mock_calls] == [
        "driver.stop",
        "recorder.close",
        "host.lock.stop_watching",
        "admin.close",
        "restored.close",
        "recovery.close",
        "history.close",
        "host.store.close",
        "porter.stop",
    ]
