"""`convgpu doctor` where it cannot go on; what it proves is in tests/lifecycle."""

import pytest
from click.testing import CliRunner

from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.engine_endpoint import Endpoint
from convgpu.cli.doctor import command as doctor
from convgpu.cli.terminal.errors import Refused
from convgpu.cli.terminal.findings import Finding, State
from convgpu.protocol.records import Device


def test_an_installation_without_a_program_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise Refused("the program convgpu-runtime is missing.\nInstall the package: pip install convgpu")

    monkeypatch.setattr(doctor, "check_version", refuse)
    seen, mend = "the program convgpu-runtime is missing.", "Install the package: pip install convgpu"
    assert list(doctor._examine(Engine(Endpoint()), "convgpu", None, pause=False)) == [
        Finding("ConvGPU", "fail", seen, mend)
    ]


@pytest.mark.parametrize(
    ("state", "pause", "code", "text"),
    [
        ("ok", True, 0, "Limits hold here, and who has to wait goes on by itself."),
        ("ok", False, 0, "Limits hold here."),
        (
            "skip",
            True,
            4,
            "Nothing is wrong, but not proven here: pause. Try again when the GPU is less busy.",
        ),
        ("fail", True, 1, None),
    ],
)
def test_what_was_not_proven_is_named_and_has_an_exit_status(
    monkeypatch: pytest.MonkeyPatch, state: State, pause: bool, code: int, text: str | None
) -> None:
    findings = [Finding("limit", "ok", "it holds"), Finding("pause", state, "seen")]
    monkeypatch.setattr(doctor, "_examine", lambda *_, **__: iter(findings))
    monkeypatch.setattr(doctor.Engine, "connect", lambda _: None)
    done = CliRunner().invoke(doctor.doctor, [] if pause else ["--no-pause"])
    assert done.exit_code == code
    assert done.output.splitlines()[-1] == (text or "fail  pause     seen")


def test_a_full_gpu_leaves_each_proof_named() -> None:
    full = Device("GPU-1", 0, "card", 8 << 30, 8 << 30, granted=(8 << 30) - 5, used=0, settling=0)
    found = list(doctor._prove(None, None, full, pause=True))  # type: ignore[arg-type]  # nothing is started
    assert [(finding.check, finding.state) for finding in found] == [
        ("limit", "skip"),
        ("exec", "skip"),
        ("pause", "skip"),
    ]
    assert found[0].seen == "not proven: 5B of GPU 0 can be had now, 768MiB are needed"
