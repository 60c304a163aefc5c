"""The commands as a user types them, up to the Engine and the scheduler."""

import json
import os
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from convgpu.cli.__main__ import main
from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.engine_documents import Image, Plugin
from convgpu.cli.connect.engine_endpoint import Endpoint
from convgpu.cli.connect.scheduler import DaemonTransport, Scheduler, read_answer
from convgpu.cli.terminal.errors import Unavailable
from convgpu.protocol.engine_container import EngineContainer

GIB = 1 << 30
FILE = ["--mount", "type=bind,src=/d/ld.so.preload,dst=/etc/ld.so.preload,readonly"]
DEVICE = {
    "uuid": "GPU-a",
    "index": 0,
    "name": "card",
    "total": 16 * GIB,
    "capacity": 16 * GIB,
    "granted": GIB,
    "used": 0,
    "settling": 0,
}
CONTAINER = {
    "name": "v1",
    "mountpoint": "/d/containers/1",
    "created": 5.0,
    "state": "running",
    "mounts": 1,
    "devices": [{"uuid": "GPU-a", "limit": 2 * GIB, "grant": GIB, "usage": 0}],
    "sessions": [],
    "waiting": [],
}
ANSWERS: dict[str, Any] = {
    "devices": {"devices": [DEVICE], "policy": "fifo", "volume_library_path": None},
    "containers": {"containers": [CONTAINER]},
}


def convgpu(*words: str) -> Result:
    return CliRunner().invoke(main, words, prog_name="convgpu", env={"CONVGPU_NAME": None})


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """An Engine whose plugin has no socket that this test could reach, only settings."""
    asked = SimpleNamespace(names=[], settings={"CONVGPU_DEVICES": "nvml"}, image=None, occupied=False)

    def plugin(name: str) -> Plugin:
        asked.names.append(name)
        return Plugin(name, tmp_path / "convgpu.sock", asked.settings)

    fake: Any = SimpleNamespace(
        plugin=plugin,
        endpoint=Endpoint(),
        version="20.10.24",
        info={"Runtimes": {"nvidia": {}}},
        is_simulated=lambda plugin: Engine.is_simulated(fake, plugin),
        directory=lambda _: Path("/d"),
        image=lambda _: asked.image,
        image_has=lambda *_: asked.occupied,
        containers=lambda: {"v1": (EngineContainer("c" * 64, "train", "pytorch:2"),)},
    )
    asked.fake = fake
    monkeypatch.setattr(Engine, "connect", lambda *_: fake)
    monkeypatch.setenv("SUDO_USER", "ana")
    monkeypatch.setattr(
        DaemonTransport, "ask", lambda _transport, request: read_answer(request, ANSWERS[request.operation])
    )
    return asked


def test_dry_run_prints_what_a_shell_would_take(engine: SimpleNamespace) -> None:
    result = convgpu("run", "--gpu-memory", "2g", "--dry-run", "--rm", "image", "sh", "-c", "echo 'a b'")
    mount = "type=volume,volume-driver=convgpu,volume-opt=memory=2g,dst=/run/convgpu"
    assert shlex.split(result.stdout) == [
        *["docker", "run", "--rm", "--gpus", "all", "--mount", mount, *FILE],
        *["-e", "LD_PRELOAD=/run/convgpu/libconvgpu.so", "--label", "convgpu.user=ana"],
        *["image", "sh", "-c", "echo 'a b'"],
    ]
    assert (result.exit_code, engine.names) == (0, ["convgpu"])
    assert result.stderr.startswith(
        "# volume at /run/convgpu: limit 2g on a GPU that the scheduler chooses\n# /etc/ld.so.preload: "
    )


def test_create_is_docker_create(engine: SimpleNamespace) -> None:
    engine.settings["CONVGPU_DEVICES"] = "simulated:16GiB"
    words = shlex.split(convgpu("create", "--gpu-memory", "2g", "--priority", "+3", "--dry-run", "image").stdout)
    assert words[:2] == ["docker", "create"]
    assert "type=volume,volume-driver=convgpu,volume-opt=memory=2g,volume-opt=priority=3,dst=/run/convgpu" in words


def test_an_old_engine_is_to_be_upgraded(engine: SimpleNamespace) -> None:
    engine.fake.version = "19.03.15"
    result = convgpu("run", "--gpu-memory", "2g", "image")
    assert (result.exit_code, result.stderr) == (
        3,
        "Error: the Docker Engine is version 19.03.15; ConvGPU needs 20.10 or newer.\nUpgrade the Engine.\n",
    )


def test_docker_takes_our_place(engine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(os, "execvp", lambda file, words: calls.append((file, words)))
    engine.settings["CONVGPU_DEVICES"] = "simulated:16GiB"
    engine.image = Image(("LD_LIBRARY_PATH=/lib/x",), ())
    result = convgpu("run", "--gpu-memory=2g", "--gpu-volume-driver", "lab", "--gpu-wait", "30s", "image")
    mount = "type=volume,volume-driver=lab,volume-opt=memory=2g,volume-opt=wait=30s,dst=/run/convgpu"
    words = [
        *["docker", "run", "--mount", mount, *FILE, "-e", "LD_PRELOAD=/run/convgpu/libconvgpu.so"],
        *["-e", "LD_LIBRARY_PATH=/run/convgpu/driver:/lib/x", "--label", "convgpu.user=ana", "image"],
    ]
    assert (result.exit_code, calls, engine.names) == (0, [("docker", words)], ["lab"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["image"], "Missing option '--gpu-memory'.\n"),
        (["--gpu-memroy", "2g", "image"], "--gpu-memroy is read as one of docker's. Did you mean --gpu-memory?\n"),
        (["--gpu-memory", "2g"], "no IMAGE is named"),
        (["--gpu-memory", "2g", "--name", "image"], "no IMAGE is named"),
        (["--gpu-memory", "20XB", "image"], "'20XB' is not a size"),
        (["--gpu-memory", "0", "image"], "no memory at all"),
        (["--gpu-memory", "2g", "--gpu-wait", "soon", "image"], "'soon' is not a duration"),
        (["--gpu-memory"], "option --gpu-memory needs a value"),
        (["--gpu-memory", "2g", "-v", "/x:/run/convgpu", "image"], "mounts something at /run/convgpu"),
    ],
)
def test_what_cannot_work_is_refused_before_docker_is_asked(words: list[str], message: str) -> None:
    result = convgpu("run", *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_without_an_engine_the_exit_code_is_3(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> Engine:
        raise Unavailable("the Docker Engine does not answer")

    monkeypatch.setattr(Engine, "connect", connect)
    for words in (["run", "--gpu-memory", "2g", "image"], ["ps"], ["demo"]):
        result = convgpu(*words)
        assert (result.exit_code, result.stderr) == (3, "Error: the Docker Engine does not answer\n")


@pytest.mark.usefixtures("engine")
def test_ps_shows_it_again_until_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[object] = [None, None, Unavailable("the plugin is away.\nWait")]
    slept: list[float] = []
    devices = Scheduler.devices

    def ask(scheduler: Scheduler) -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return devices(scheduler)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if not answers:
            raise KeyboardInterrupt

    monkeypatch.setattr(Scheduler, "devices", ask)
    monkeypatch.setattr("convgpu.cli.show.ps.time.sleep", sleep)
    done = convgpu("ps", "--directory", "/nowhere", "--watch")
    assert (done.exit_code, done.stdout.count("CONTAINER"), done.stderr) == (0, 2, "the plugin is away.\n")
    assert slept == [2.0, 2.0, 2.0]
    assert "--watch shows a table" in convgpu("ps", "--directory", "/nowhere", "--json", "--watch=1").stderr


UNSEEN = {"seen": None, "target": None, "out": 0, "fixed": 0, "peak": 0, "learned": None}


@pytest.mark.usefixtures("engine")
def test_ps_shows_a_table_or_data() -> None:
    table = convgpu("ps", "--directory", "/nowhere")
    assert table.stdout.splitlines()[0].split() == [
        *["CONTAINER", "IMAGE", "GPU", "LIMIT", "GRANT", "USAGE", "STATE", "SINCE"],
    ]
    row = table.stdout.splitlines()[1].split()
    assert row[:7] == ["train", "pytorch:2", "0", "2GiB", "1GiB", "0B", "running"]
    data = json.loads(convgpu("ps", "--json", "--directory", "/nowhere").stdout)
    assert data == [
        {
            "volume": "v1",
            "containers": [{"id": "c" * 64, "name": "train", "image": "pytorch:2", "labels": {}}],
            "user": "",
            "state": "running",
            "since": None,
            "created": 5.0,
            "priority": 0,
            "admit": "part",
            "gang": "",
            "residency": None,
            "suspended": False,
            "turn": None,
            "gpus": [{"index": 0, "uuid": "GPU-a", "limit": 2 * GIB, "grant": GIB, "usage": 0, **UNSEEN}],
            "placement": None,
            "waiting": [],
            "processes": [],
        }
    ]


def test_help_and_version_tell_a_newcomer_what_to_type() -> None:
    first = convgpu("--help")
    assert "convgpu run --gpu-memory 2g IMAGE CMD" in first.stdout
    assert "Exit codes:\n" in first.stdout
    assert convgpu("--version").stdout.startswith("convgpu ")
    shown = convgpu("run", "--help")
    assert shown.stdout.startswith("Usage: convgpu run --gpu-memory SIZE [docker run options] IMAGE [COMMAND]")
    assert "\b" not in first.stdout + shown.stdout + convgpu("ps", "--help").stdout
