"""The quick path of `convgpu run` gives docker what the whole command gives it, and leaves it what it cannot do."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from answering_engine import DEAR, Became, Server, answering_engine, become, become_in_a_process
from click.testing import CliRunner

from convgpu.cli import entry
from convgpu.cli.__main__ import main
from convgpu.cli.run import quick

PLUGIN = {
    "Enabled": True,
    "Id": "f00d",
    "Config": {"Interface": {"Socket": "convgpu.sock"}},
    "Settings": {"Env": ["CONVGPU_DEVICES=simulated:16GiB"]},
}
ON_CARDS = PLUGIN | {"Settings": {"Env": ["CONVGPU_DEVICES=nvml"]}}
INFO = {"ServerVersion": "28.2.2", "DockerRootDir": "/var/lib/docker", "Runtimes": {"nvidia": {}}}
IMAGE = {"Id": "sha256:seen", "Config": {"Env": ["PATH=/bin", "LD_PRELOAD=/image.so"], "Volumes": None}}
DOCUMENTS = {
    "/info": INFO,
    "/plugins/convgpu/json": PLUGIN,
    "/plugins/cards/json": ON_CARDS,
    "/plugins/off/json": PLUGIN | {"Enabled": False},
    "/plugins/a%20b/json": PLUGIN,
    "/images/image/json": IMAGE,
    "/images/-image/json": IMAGE,
    "/images/full/json": IMAGE | {"Id": "sha256:full"},
    "/images/unseen/json": IMAGE | {"Id": "sha256:unseen"},
    "/images/declares/json": IMAGE | {"Config": {"Volumes": {"/run/convgpu/": {}}}},
}


IN_OVERLAY = IMAGE | {
    "GraphDriver": {"Name": "overlay2", "Data": {"UpperDir": "/srv/overlay2/data/overlay2/1f/diff"}},
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """An Engine on a socket, and a user who has looked into two of its images."""
    for name in ("CONVGPU_NAME", "DOCKER_CONTEXT", "CONVGPU_DOCKER_PLUGIN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "convgpu").mkdir()
    (tmp_path / "convgpu/images.json").write_text('{"sha256:seen": false, "sha256:full": true}')
    (tmp_path / "variables").write_text("LD_PRELOAD=/file.so\n")
    host = f"unix://{tmp_path}/engine.sock"
    for name, value in (("DOCKER_HOST", host), ("DOCKER_CONFIG", str(tmp_path)), ("XDG_CACHE_HOME", str(tmp_path))):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SUDO_USER", "ana")
    monkeypatch.chdir(tmp_path)
    with answering_engine(tmp_path / "engine.sock", DOCUMENTS) as started:
        yield started


@pytest.fixture
def engine(server: Server) -> str:
    """The name of its socket."""
    return f"unix://{server.server_address!s}"


def by_click(verb: str, *words: str) -> tuple[Any, ...]:
    """Return docker's words, or exit code and messages."""
    try:
        done = CliRunner().invoke(main, [verb, *words], prog_name="convgpu", standalone_mode=True)
    except Became as became:
        return ("docker", *became.args)
    return done.exit_code, done.output


USUAL = [
    "image",
    "--rm -it image python train.py --gpu-memory 7g",
    "--wait 30s --priority +7 image",
    "--gpu-wait=5m --admit whole --gang jobs:2 --suspend auto --backing unified image",
    "--gpus device=0 image",
    "--gpus any:2 image",
    "--gpus 1 --gpus all image",
    "--gpu-memory GPU-a:2g,GPU-b:50% image",
    "--gpu-volume-driver cards image",
    "--gpu-volume-driver=cards --gpus device=1 image",
    "--gpu-volume-driver cards --runtime nvidia image",
    "-e LD_PRELOAD=/mine.so --env-file variables image",
    "--env-file missing -v /a:/b --label convgpu.user=team image",
    "-- -image -x",
    "--gang= image",
]


@pytest.mark.parametrize("line", USUAL)
@pytest.mark.parametrize("verb", ["run", "create"])
@pytest.mark.usefixtures("engine")
def test_a_usual_line_is_the_same_by_both_paths(verb: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "execvp", become)
    words = ["--gpu-memory", "2g", *line.split()]
    assert ("docker", quick.docker_command(verb, words)) == by_click(verb, *words)


@pytest.mark.parametrize(
    ("name", "driver", "taken"), [("cards", "cards", True), ("", "convgpu", True), ("off", "off", False)]
)
def test_the_environment_names_the_plugin(
    name: str, driver: str, taken: bool, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine
    monkeypatch.setenv("CONVGPU_NAME", name)
    monkeypatch.setattr(os, "execvp", become)
    words = ["--gpu-memory", "2g", "image"]
    found = by_click("run", *words)
    assert (found[0] == "docker") is taken
    if taken:
        assert quick.docker_command("run", words) == found[1]
        assert f"volume-driver={driver}" in " ".join(found[1])
    else:
        with pytest.raises(quick.UnusualError, match="disabled"):
            quick.docker_command("run", words)


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "image",
        "--gpu-memory 2g --dry-run image",
        "--gpu-memory 2g --dry-run=false image",
        "--gpu-memory 2g",
        "--gpu-memory",
        "--gpu-memory 2x image",
        "--gpu-memory= image",
        "--gpu-memory 2g --gpus some image",
        "--gpu-memory 2g --wait soon image",
        "--gpu-memory 2g --wait --gpus image",
        "--gpu-memory 2g --priority 1.5 image",
        "--gpu-memory 2g --admit all image",
        "--gpu-memory 2g -v /x:/run/convgpu image",
        "--gpu-memory 2g absent",
        "--gpu-memory 2g unseen",
        "--gpu-memory 2g full",
        "--gpu-memory 2g declares",
        "--gpu-memory 2g --gpu-volume-driver absent image",
        "--gpu-memory 2g --gpu-volume-driver off image",
    ],
)
@pytest.mark.parametrize("as_plugin", [False, True])
@pytest.mark.usefixtures("engine")
def test_what_is_unusual_is_left_to_the_whole_command(
    line: str, as_plugin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("convgpu.cli.__main__.start", lambda: started.append(sys.argv[1:]))
    monkeypatch.setattr(os, "execvp", become)
    monkeypatch.setattr("gc.disable", lambda: None)
    words = [*(["convgpu"] if as_plugin else []), "run", *line.split()]
    monkeypatch.setattr(sys, "argv", ["convgpu", *words])
    if as_plugin:
        monkeypatch.setenv("CONVGPU_DOCKER_PLUGIN", "1")
    entry.start()
    assert (started, os.environ.get("CONVGPU_DOCKER_PLUGIN")) == ([words], "1" if as_plugin else None)


@pytest.mark.parametrize("host", ["tcp://127.0.0.1:1", "unix:///nowhere/docker.sock"])
def test_another_way_to_the_engine_is_left_to_the_whole_command(
    host: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "execvp", become)
    words = ["--gpu-memory", "2g", "image"]
    with pytest.raises(Became):
        quick.run_quickly("run", words)
    monkeypatch.setenv("DOCKER_HOST", host)
    quick.run_quickly("run", words)
    monkeypatch.setenv("DOCKER_HOST", engine)
    monkeypatch.setenv("DOCKER_CONTEXT", "nowhere")
    monkeypatch.delenv("DOCKER_HOST")
    quick.run_quickly("run", words)


def test_docker_is_no_plugin_of_docker(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine
    monkeypatch.setenv("CONVGPU_DOCKER_PLUGIN", "1")
    monkeypatch.setenv("DOCKER_CLI_PLUGIN_SOCKET", "@abstract")
    monkeypatch.setattr(os, "execvp", become)
    monkeypatch.setattr("gc.disable", lambda: None)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/convgpu", "convgpu", "create", "--gpu-memory", "2g", "image"])
    with pytest.raises(Became, match="create"):
        entry.start()
    assert not {"CONVGPU_DOCKER_PLUGIN", "DOCKER_CLI_PLUGIN_SOCKET"} & set(os.environ)


def test_ctrl_c_ends_as_in_the_whole_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(quick, "docker_command", interrupted)
    with pytest.raises(SystemExit) as caught:
        quick.run_quickly("run", [])
    assert (caught.value.code, capsys.readouterr()) == (1, ("", "\nAborted!\n"))


def test_nothing_dear_is_imported(engine: str) -> None:
    words = ["run", "--gpu-memory", "2g", "--wait", "5m", "--gpus", "1", "-e", "A=1", "image", "the-command"]
    last, *modules = become_in_a_process(words, {"DOCKER_HOST": engine})
    assert (last, DEAR & set(modules)) == ("the-command", set())
    assert "convgpu.cli.run.quick" in modules


ASKED = ["/images/image/json", "/plugins/convgpu/json"]


def test_docker_info_is_asked_for_only_where_nothing_else_says_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(words: str) -> tuple[list[str], str]:
        server.asked.clear()
        command = quick.docker_command("run", ["--gpu-memory", "2g", *words.split(), "image"])
        # A question whose answer nobody waited for may be answered later.
        return sorted(set(server.asked)), next(word for word in command if "ld.so.preload" in word).split(",")[1]

    by_info = (["/images/image/json", "/info", "/plugins/convgpu/json"], "src=/var/lib/docker/plugins/f00d/{}")
    place = "propagated-mount/ld.so.preload"
    assert asked("") == (by_info[0], by_info[1].format(place))
    server.documents = DOCUMENTS | {"/images/image/json": IN_OVERLAY}
    server.says = "Docker/20.10.24+dfsg1 (linux)"
    assert asked("") == (ASKED, f"src=/srv/overlay2/data/plugins/f00d/{place}")
    monkeypatch.setenv("PATH", str(tmp_path))
    cards = ["/images/image/json", "/info", "/plugins/cards/json"]
    assert asked("--gpu-volume-driver cards")[0] == cards  # has it NVIDIA's runtime?
    (tmp_path / "nvidia-container-runtime-hook").touch(0o755)
    assert asked("--gpu-volume-driver cards")[0] == [cards[0], cards[2]]
    server.says = "Docker/19.03.1 (linux)"
    with pytest.raises(Exception, match=r"needs 20\.10 or newer"):
        asked("")
    server.documents = DOCUMENTS | {"/images/image/json": IN_OVERLAY | {"GraphDriver": {"Name": "btrfs", "Data": None}}}
    server.says = "Docker/29.0.1 (linux)"
    assert asked("") == (by_info[0], by_info[1].format(place))
