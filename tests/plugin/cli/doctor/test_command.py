"""`convgpu doctor` where it cannot go on; what it proves is in tests/lifecycle."""

from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.engine_endpoint import Endpoint
from convgpu.cli.doctor import command as doctor
from convgpu.cli.doctor import containers
from convgpu.cli.terminal.errors import Refused
from convgpu.cli.terminal.findings import Finding, State
from convgpu.protocol.records import Device, Unlimited


def test_an_installation_without_a_program_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise Refused("the program convgpu-runtime is missing.\nInstall the package: pip install convgpu")

    monkeypatch.setattr(doctor, "check_version", refuse)
    seen, mend = "the program convgpu-runtime is missing.", "Install the package: pip install convgpu"
    assert list(doctor._examine(Engine(Endpoint()), "convgpu", None, pause=False)) == [
        Finding("ConvGPU", "fail", seen, mend)
    ]


def test_an_engine_that_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals wait while docker works, so nothing but SIGKILL ended the doctor."""
    monkeypatch.setattr(containers, "_TIMEOUT", 0.1)
    with pytest.raises(containers.ProbeFailed, match=r"within 0\.1 s. Does the Engine answer"):
        containers._run(["sleep", "60"])


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


class OneGpu:
    """Containers of the doctor, and a scheduler with a GPU of 16 GiB that another container has memory of.

    Args:
        used: what the other uses, before and after the first of the doctor's containers has its memory.
        waits: the second of them has to wait.
    """

    def __init__(self, used: tuple[int, int], *, waits: bool) -> None:
        self.limits: dict[str, int] = {}
        self.removed: list[str] = []
        self._used, self._waits = used, waits

    def start(self, name: str, memory: str, *_: str) -> str:
        self.limits[name] = int(memory.removeprefix("GPU-1:").removesuffix("m")) << 20
        return name

    def remove(self, name: str) -> None:
        self.removed.append(name)

    def volume(self, name: str) -> str:
        return name

    def reports(self, name: str) -> list[dict[str, Any]]:
        holds = name == "first" or not self._waits or "first" in self.removed
        return [{"event": "holds"}] if holds else []

    def devices(self) -> SimpleNamespace:
        used = self._used[bool(self.limits)] + sum(self.limits.values())
        return SimpleNamespace(
            devices=[Device("GPU-1", 0, "card", 16 * GIB, 16 * GIB, granted=15 * GIB, used=used, settling=0)]
        )

    def containers(self) -> list[SimpleNamespace]:
        waiting = self._waits and "second" in self.limits
        return [SimpleNamespace(name="second", state="waiting" if waiting else "running")]


GIB = 1 << 30


def pause(world: OneGpu, monkeypatch: pytest.MonkeyPatch) -> Finding:
    monkeypatch.setattr("time.sleep", lambda _: None)
    return doctor._pause(world, world, world.devices().devices[0])  # type: ignore[arg-type]


def test_two_containers_want_more_than_no_program_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other has 15 GiB set aside and uses 12: those 3 are lent to whoever asks."""
    world = OneGpu((12 * GIB, 12 * GIB), waits=True)
    assert pause(world, monkeypatch).state == "ok"
    assert world.limits == {"first": 3 * GIB, "second": 3 * GIB}
    assert world.removed == ["first", "second"]


def test_memory_that_others_gave_back_leaves_the_pause_unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pause(OneGpu((12 * GIB, 0), waits=False), monkeypatch)
    assert (found.state, found.seen) == ("skip", "not proven: others gave memory of GPU 0 back")


def test_memory_that_is_given_twice_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pause(OneGpu((12 * GIB, 12 * GIB), waits=False), monkeypatch)
    assert (found.state, found.seen) == ("fail", "an allocation returned while the memory was another's")


def test_containers_without_a_limit_are_named() -> None:
    seen = (Unlimited("volume", "1" * 64, GIB, 5, "an exemption"), Unlimited("a", "", GIB, 0, "it has ended"))
    gpu = Device("GPU-1", 0, "card", 8 * GIB, 8 * GIB, granted=0, used=0, settling=0, unlimited=seen)
    assert [(each.check, each.state, each.seen) for each in doctor._examine_devices((gpu,))] == [
        ("GPU", "ok", "0: card, 8GiB to hand out"),
        ("limits", "warn", "container volume holds 1GiB of GPU 0 without a limit; an exemption"),
        ("memory", "warn", "a left 1GiB of GPU 0 behind: it has ended"),
    ]
