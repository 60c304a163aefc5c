"""`convgpu doctor` where it cannot go on; what it proves is in tests/lifecycle."""

import pytest

from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.engine_endpoint import Endpoint
from convgpu.cli.doctor import command as doctor
from convgpu.cli.terminal.errors import Refused
from convgpu.cli.terminal.findings import Finding


def test_an_installation_without_a_program_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise Refused("the program convgpu-runtime is missing.\nInstall the package: pip install convgpu")

    monkeypatch.setattr(doctor, "check_version", refuse)
    seen, mend = "the program convgpu-runtime is missing.", "Install the package: pip install convgpu"
    assert list(doctor._examine(Engine(Endpoint()), "convgpu", None, pause=False)) == [
        Finding("ConvGPU", "fail", seen, mend)
    ]
