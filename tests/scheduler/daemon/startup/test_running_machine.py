"""What a machine is started with."""

from importlib.metadata import PackageNotFoundError

import pytest

from convgpu.daemon.startup import running_machine


def test_code_that_is_not_installed_runs_with_an_unknown_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_installed(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(running_machine, "version", nothing_installed)
    assert running_machine._own_version() == "unknown"
