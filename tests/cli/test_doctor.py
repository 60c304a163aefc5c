"""`convgpu doctor` where it cannot go on; what it proves is in tests/lifecycle."""

import pytest

from convgpu.cli import doctor
from convgpu.cli.diagnosis import Finding
from convgpu.cli.endpoint import Endpoint
from convgpu.cli.engine import Engine
from convgpu.cli.errors import Refused


def test_an_installation_without_a_program_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise Refused("the program convgpu-runtime is missing.\nInstall the package: pip install convgpu")

    monkeypatch.setattr(doctor, "check_version", refuse)
    seen, mend = "the program convgpu-runtime is missing.", "Install the package: pip install convgpu"
    assert list(doctor._examine(Engine(Endpoint()), "convgpu", None, pause=False)) == [
        Finding("ConvGPU", "fail", seen, mend)
    ]
