"""The quick path of `convgpu job` gives docker what the whole command gives it, and leaves it what it cannot do."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from answering_engine import DEAR, Became, Server, answering_engine, become, become_in_a_process
from click.testing import CliRunner

from convgpu.cli import entry
from convgpu.cli.__main__ import main
from convgpu.cli.cluster.job import quick

GIB = 1 << 30
SHARE = {"job": 12, "node": "n1", "user": os.getuid(), "restarts": 1, "cards": {"GPU-a": GIB, "GPU-b": GIB}}
FILTERS = {"label": ["convgpu.job=12", "convgpu.node=n1"], "status": ["exited"]}
ENDED = f"/containers/json?all=1&filters={quote(json.dumps(FILTERS, separators=(',', ':')))}"
PLUGIN = {
    "Enabled": True,
    "Id": "f00d",
    "Config": {"Interface": {"Socket": "convgpu.sock"}},
    "Settings": {"Env": ["CONVGPU_DEVICES=simulated:16GiB"]},
}
DOCUMENTS = {
    "/info": {"ServerVersion": "28.2.2", "DockerRootDir": "/var/lib/docker", "InitCommit": {"ID": "de40ad0"}},
    "/plugins/convgpu/json": PLUGIN,
    "/images/image/json": {"Id": "sha256:seen", "Config": {"Env": ["PATH=/bin"], "Volumes": None}},
    "/images/-image/json": {"Id": "sha256:seen", "Config": {}},
    ENDED: [],
    f"/containers/json?all=1&filters={quote(json.dumps(FILTERS))}": [],  # as the whole command writes it
}
PROGRAMS = {
    "scontrol": "printf 'n1\\nn2\\n'\n",
    "sinfo": "printf 'n1|10.0.0.1\\nn2|10.0.0.2\\n'\n",
}


class Node:
    """A node with a job, and its Engine."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self.server = server

    def give(self, **fields: object) -> None:
        """Write the job's file as the Prolog does."""
        (self.folder / "12.n1.json").write_text(json.dumps({**SHARE, **fields}))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """A job's script on n1."""
    host = f"unix://{tmp_path}/engine.sock"
    settings = {"nodes": {}, "jobs": str(tmp_path), "engine": host, "plugin": "convgpu"}
    (tmp_path / "convgpu.json").write_text(json.dumps(settings))
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / name).chmod(0o755)
    for name in [name for name in os.environ if name.startswith(("SLURM_", "CONVGPU_", "DOCKER_"))]:
        monkeypatch.delenv(name)
    job = {"SLURM_JOB_ID": "12", "SLURMD_NODENAME": "n1", "SLURM_CPUS_ON_NODE": "1", "SLURM_MEM_PER_NODE": "900"}
    for name, value in {**job, "SLURM_CONF": f"{tmp_path}/slurm.conf", "SUDO_USER": "ana"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(os, "execvp", become)
    with answering_engine(tmp_path / "engine.sock", DOCUMENTS) as server:
        found = Node(tmp_path, server)
        found.give()
        yield found


def by_click(*words: str) -> tuple[Any, ...]:
    """Return docker's words, or exit code and messages."""
    try:
        done = CliRunner().invoke(main, ["job", *words], prog_name="convgpu", standalone_mode=True)
    except Became as became:
        return ("docker", *became.args)
    return done.exit_code, done.output


@pytest.mark.parametrize(
    "line",
    [
        "image",
        "-it --rm image python train.py --pull-only",
        "--net bridge -e A=1 -v /a:/b image",
        "--cpus 3 -m 1g --user 7 --init image",
        "--label convgpu.job=13 --detach=false image",
        "-- -image -x",
    ],
)
@pytest.mark.parametrize("nodes", ["n1", "n[1-2]"])
@pytest.mark.usefixtures("node")
def test_a_usual_line_is_the_same_by_both_paths(line: str, nodes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", nodes)
    found = quick.docker_command(line.split())
    assert ("docker", found) == by_click(*line.split())
    alone = "127.0.0.1" if "--net" in line else "n1"
    assert f"MASTER_ADDR={alone if nodes == 'n1' else '10.0.0.1'}" in found


@pytest.mark.usefixtures("node")
def test_an_image_that_is_there_need_not_be_pulled() -> None:
    assert by_click("--pull-only", "image") == (0, "")
    with pytest.raises(SystemExit, match="0"):
        quick.run_job_quickly(["--pull-only", "image"])


def test_ended_containers_of_the_job_are_removed_before(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DOCUMENTS, ENDED, [{"Id": "c0ffee"}])
    with pytest.raises(Became):
        quick.run_job_quickly(["image"])
    assert node.server.deleted == ["/containers/c0ffee?force=true&v=true"]


@pytest.mark.parametrize(
    "line",
    ["--help", "--dry-run image", "", "--container-image image", "-d image", "-v /x:/run/convgpu image", "absent"],
)
@pytest.mark.usefixtures("node")
def test_an_unusual_line_is_left_to_the_whole_command(line: str) -> None:
    quick.run_job_quickly(line.split())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"cards": {}}, "job 12 has no GPU on n1"),
        ({"fault": "Slurm has split the share"}, "Slurm has split the share"),
        ({"cards": {"GPU-a": "1g"}}, "cards has another form than the Prolog writes"),
        ({"restarts": True}, "restarts has another form than the Prolog writes"),
    ],
)
def test_what_is_wrong_with_the_job_is_the_whole_commands_to_say(
    fields: dict[str, object], said: str, node: Node
) -> None:
    node.give(**fields)
    quick.run_job_quickly(["image"])
    status, told = by_click("image")
    assert (status != 0, said in told) == (True, True), told


def test_a_share_of_the_network_is_left_to_the_whole_command(node: Node) -> None:
    node.give(network=5)
    quick.run_job_quickly(["image"])
    assert by_click("image")[0] == "docker"


def test_another_users_job_is_left_to_the_whole_command(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.give(user=4242)
    monkeypatch.setattr(os, "getuid", lambda: 4343)
    quick.run_job_quickly(["image"])
    assert "job 12 is that of another user" in by_click("image")[1]


@pytest.mark.usefixtures("node")
def test_the_program_takes_the_quick_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc.disable", lambda: None)
    monkeypatch.setattr("sys.argv", ["convgpu", "job", "image", "the-command"])
    monkeypatch.setattr("convgpu.cli.__main__.start", lambda: pytest.fail("the whole command"))
    with pytest.raises(Became, match="the-command"):
        entry.start()


@pytest.mark.usefixtures("node")
def test_nothing_dear_is_imported() -> None:
    last, *modules = become_in_a_process(["job", "-e", "A=1", "image", "the-command"], {})
    assert (last, DEAR & set(modules)) == ("the-command", set())
    assert "convgpu.cli.cluster.job.quick" in modules
