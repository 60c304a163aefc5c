"""`docker convgpu ...`, by the real docker command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

CONVGPU = Path(sys.executable).parent / "convgpu"


@pytest.fixture
def docker(tmp_path, engine):
    """Run the docker command of a user who has run `convgpu install`, with a context of the Engine named lab."""
    environment = {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"}
    environment["DOCKER_CONFIG"] = str(tmp_path)

    def run(*words):
        return subprocess.run(words, check=False, capture_output=True, text=True, env=environment, timeout=300)

    assert run(CONVGPU, "install").returncode == 0
    assert run("docker", "context", "create", "lab", "--docker", f"host={engine.host}").returncode == 0
    return lambda *words: run("docker", *words)


def test_docker_lists_and_helps(docker):
    assert "  convgpu*    Share NVIDIA GPUs" in docker("--help").stdout
    assert docker("convgpu", "ps", "--help").stdout.startswith("Usage: docker convgpu ps [OPTIONS]")
    assert docker("help", "convgpu").stdout.startswith("Usage: docker convgpu [OPTIONS] COMMAND")


@pytest.mark.parametrize("before", [True, False])
def test_the_engine_is_named_as_for_docker(docker, engine, plugin, before):  # noqa: ARG001 - it answers
    for chosen in (("--context", "lab"), ("-H", engine.host)):
        words = (*chosen, "convgpu", "devices", "--json") if before else ("convgpu", *chosen, "devices", "--json")
        done = docker(*words)
        assert done.returncode == 0, done.stderr
        assert [device["capacity"] for device in json.loads(done.stdout)] == [16 << 30], done.stderr
    missing = docker("--host", "unix:///nowhere.sock", "convgpu", "ps")
    assert (missing.returncode, "unix:///nowhere.sock does not answer" in missing.stderr) == (3, True)


def test_run_uses_the_same_engine_and_gives_the_exit_code(docker, engine, plugin):
    words = ("--context", "lab", "convgpu", "run", "--gpu-memory", "2g", "--rm", "--network", "none", "convgpu/demo")
    done = docker(*words, "gpu-hold", "3g")
    assert (done.returncode, "it would exceed the limit" in done.stderr) == (3, True)
    engine.wait_for("nothing is left", lambda: engine.containers(plugin) == [])


def test_completion(docker, engine, plugin):  # noqa: ARG001 - it answers
    told = docker("__complete", "convgpu", "ins").stdout.splitlines()
    assert [line.partition("\t")[0] for line in told] == ["inspect", "install", ":4"]
    engine("run", "-d", "--name", "seen", "--network", "none", *VOLUME, "convgpu/demo", "sleep", "600")
    told = docker("__complete", "convgpu", "-H", engine.host, "inspect", "se").stdout.splitlines()
    assert [line.partition("\t")[0] for line in told] == ["seen", ":4"]
    options = docker("__complete", "convgpu", "run", "--gpu-").stdout.splitlines()
    assert [line.partition("\t")[0] for line in options] == ["--gpu-memory", "--gpu-wait", "--gpu-volume-driver", ":4"]


VOLUME = ("--mount", "type=volume,volume-driver=convgpu,volume-opt=memory=2g,dst=/run/convgpu")
