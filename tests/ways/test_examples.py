"""The examples, as they stand; without a card, so with what each says is to be typed then."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

EXAMPLES = Path(__file__).parents[2] / "examples"
SIMULATED = ("-f", "compose.yaml", "-f", "simulated.yaml")


def kinds(engine, plugin, container):
    events = engine.administration(plugin, "/v1/events?since=0")["events"]
    return [event["kind"] for event in events if event["container"] == container]


def test_plain_docker_run(engine, plugin):
    environment = {**os.environ, "DOCKER_HOST": engine.host, "GPU": "-e LD_LIBRARY_PATH=/run/convgpu/driver"}
    for size, code in (("1g", 0), ("3g", 3)):
        command = [EXAMPLES / "docker-run", "convgpu/demo", "env", "-u", "LD_PRELOAD", "gpu-hold", size]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        assert done.returncode == code, done.stderr
    assert "it would exceed the limit (limit 2GiB," in done.stderr
    assert engine.containers(plugin) == []


def test_docker_py(engine, plugin):
    environment = {**os.environ, "DOCKER_HOST": engine.host, "SIMULATED": "1"}
    for size, code in (("1g", 0), ("3g", 3)):
        command = [sys.executable, EXAMPLES / "docker_py.py", "convgpu/demo", "gpu-hold", size]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        assert done.returncode == code, done.stderr
    assert "it would exceed the limit (limit 2GiB," in done.stderr
    assert engine.containers(plugin) == []


def test_the_arguments_of_a_dev_container(engine, plugin):
    document = json.loads((EXAMPLES / "devcontainer/devcontainer.json").read_text())
    arguments = [word for word in document["runArgs"] if word not in {"--gpus", "all"}]  # no card is needed here
    words = [word for pair in document["containerEnv"].items() for word in ("-e", "=".join(pair))]
    driver = ("-e", "LD_LIBRARY_PATH=/run/convgpu/driver", "--network", "none")
    for size, code in (("7g", 0), ("9g", 3)):
        done = engine.run("run", "--rm", *arguments, *words, *driver, "convgpu/demo", "gpu-hold", size, check=False)
        assert done.returncode == code, done.stderr
    assert "it would exceed the limit (limit 8GiB," in done.stderr
    assert engine.containers(plugin) == []


def test_two_services_of_a_compose_file_share_the_device(engine, plugin, compose):
    compose(*SIMULATED, "up", "--no-color")
    told = {name: kinds(engine, plugin, f"compose_{name}") for name in ("train", "infer")}
    compose(*SIMULATED, "down", "-v")
    assert all(events[-1] == "ended" for events in told.values()), told
    assert [sorted(events).count("paused") for events in told.values()] in ([0, 1], [1, 0])
    assert sum(events.count("granted") for events in told.values()) == 1
    assert engine.containers(plugin) == []


def test_the_compose_file_for_a_card_asks_for_it(compose):
    told = compose("-f", "compose.yaml", "config")
    assert told.partition("x-gpu:")[0].count("driver: nvidia") == 2


def test_a_service_of_the_runtime(engine, plugin, runtime, compose):  # noqa: ARG001 - the Engine has it
    told = compose("-f", "runtime.yaml", "up", "--no-color")
    compose("-f", "runtime.yaml", "down")
    assert "hold 1073741824" in told
    assert "memory 1595932672 2147483648" in told
    engine.wait_for("nothing is left", lambda: engine.containers(plugin) == [])


def test_a_task_of_swarm_where_the_runtime_is_the_default(engine, plugin, runtime):  # noqa: ARG001 - as above
    engine.configure({"default-runtime": "convgpu"})
    engine("swarm", "init", "--advertise-addr", "127.0.0.1")
    try:
        job = ("--mode", "replicated-job", "--restart-condition", "none", "--network", "host", "--detach")
        engine("service", "create", "--name", "job", *job, "-e", "CONVGPU_MEMORY=2g", "convgpu/demo", "gpu-hold", "1g")
        engine.wait_for("the task is done", lambda: "Complete" in engine("service", "ps", "job"))
        engine.wait_for("it saw its limit", lambda: "memory 1595932672 2147483648" in engine("service", "logs", "job"))
    finally:
        engine.configure({"default-runtime": "runc"})
        engine("swarm", "leave", "--force")
    engine.wait_for("nothing is left", lambda: engine.containers(plugin) == [])
