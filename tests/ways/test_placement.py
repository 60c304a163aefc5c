"""Which GPUs a container gets by each way in, on a real Engine with two simulated GPUs.

The simulated driver has no device files and no /proc/driver/nvidia: a container does not show there which GPUs it was
given. What `--gpus device=...` does with a card, tests/hook/visibility and tests/scheduler/core show.
"""

import json
import os

import pytest
from docker_engine import version
from forked_command import run_command

pytestmark = pytest.mark.engine

DRIVER = "LD_LIBRARY_PATH=/run/convgpu/driver"
HOLD = ("convgpu/demo", "gpu-hold", "--wait-for-stdin", "1g")
QUIET = ("--network", "none")


@pytest.fixture(scope="module", autouse=True)
def _two_gpus(engine, plugin):
    engine("plugin", "disable", "-f", plugin)
    engine("plugin", "set", plugin, "CONVGPU_DEVICES=simulated:16GiB,16GiB")
    engine("plugin", "enable", plugin)
    yield
    engine("plugin", "disable", "-f", plugin)
    engine("plugin", "set", plugin, "CONVGPU_DEVICES=simulated:16GiB")
    engine("plugin", "enable", plugin)


def command(engine, *words):
    done = run_command(*words, env={**os.environ, "DOCKER_HOST": engine.host})
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_until_all_hold(engine, plugin, count):
    """Wait until so many containers hold memory, by the plugin's own count, which costs next to nothing to ask for."""

    def holding():
        return sum(any(device["usage"] for device in row["devices"]) for row in engine.containers(plugin))

    engine.wait_for(f"{count} containers hold memory", lambda: holding() == count)


def where(engine, plugin, *names):
    """Return the GPUs on which containers hold memory, by name, once all of them hold some."""
    wait_until_all_hold(engine, plugin, len(names))

    def found():
        rows = json.loads(command(engine, "ps", "--json"))
        named = {one["name"]: row for row in rows for one in row["containers"]}
        return {name: [g["index"] for g in named[name]["gpus"] if g["usage"]] for name in names if name in named}

    engine.wait_for("`convgpu ps` names them", lambda: all(found().get(name) for name in names))
    limits = {name: shown_limits(engine, name) for name in names}
    return found(), limits


def shown_limits(engine, name):
    rows = json.loads(command(engine, "inspect", name, "--json"))
    return [gpu["index"] for gpu in rows[0]["gpus"]]


def volume(plugin, **options):
    words = "".join(f",volume-opt={option}={value}" for option, value in options.items())
    return ("--mount", f"type=volume,volume-driver={plugin},dst=/run/convgpu{words}", "-e", DRIVER)


def preloaded(plugin, **options):
    return (*volume(plugin, **options), "-e", "LD_PRELOAD=/run/convgpu/libconvgpu.so")


def test_by_a_volume_and_plain_docker_run(engine, plugin):
    cases = {"first": {}, "second": {}, "both": {"gpus": "all"}, "named": {"gpus": "1"}}
    for count, (name, options) in enumerate(cases.items(), start=1):
        engine("run", "-d", "-i", "--name", name, *QUIET, *preloaded(plugin, memory="2g", **options), *HOLD)
        wait_until_all_hold(engine, plugin, count)
    held, limits = where(engine, plugin, "first", "second", "both", "named")
    assert limits == {"first": [0], "second": [1], "both": [0, 1], "named": [1]}
    assert (held["first"], held["second"], held["named"]) == ([0], [1], [1])


def test_by_the_command_and_by_variables(engine, plugin):
    typed = ("run", "--gpu-memory", "2g", "-d", "-i", "--name", "typed", *QUIET)
    command(engine, *typed, *HOLD)
    wait_until_all_hold(engine, plugin, 1)
    words = ("--volume-driver", plugin, "-v", "/run/convgpu", "-e", "CONVGPU_MEMORY=2g", "-e", DRIVER)
    engine("run", "-d", "-i", "--name", "said", *QUIET, *words, "-e", "LD_PRELOAD=/run/convgpu/libconvgpu.so", *HOLD)
    assert where(engine, plugin, "typed", "said")[1] == {"typed": [0], "said": [1]}
    command(engine, "run", "--gpu-memory", "2g", "--gpus", "2", "-d", "-i", "--name", "two", *QUIET, *HOLD)
    wait_until_all_hold(engine, plugin, 3)
    assert shown_limits(engine, "two") == [0, 1]


def test_by_the_runtime(engine, plugin, runtime):
    cases = {
        "first": ("CONVGPU_MEMORY=2g",),
        "second": ("NVIDIA_VISIBLE_DEVICES=all",),
        "named": ("CONVGPU_MEMORY=2g", "NVIDIA_VISIBLE_DEVICES=1"),
        "both": ("CONVGPU_MEMORY=2g", "CONVGPU_GPUS=all"),
    }
    for count, (name, variables) in enumerate(cases.items(), start=1):
        words = [word for variable in variables for word in ("-e", variable)]
        engine("run", "-d", "-i", "--name", name, *runtime, *words, *HOLD)
        wait_until_all_hold(engine, plugin, count)
    assert where(engine, plugin, *cases)[1] == {"first": [0], "second": [1], "named": [1], "both": [0, 1]}


def test_by_compose(engine, plugin, compose):
    def events(since):
        return engine.administration(plugin, f"/v1/events?since={since}")["events"]

    before = max((event["sequence"] for event in events(0)), default=0)
    files = ("-f", "compose.yaml", "-f", "simulated.yaml")
    compose(*files, "up", "--no-color")
    told = [event for event in events(before + 1) if event["container"].startswith("compose_")]
    compose(*files, "down", "-v")
    placed = {event["container"]: list(event["limits"]) for event in told if event["kind"] == "placed"}
    assert sorted(len(uuids) for uuids in placed.values()) == [1, 1], placed
    assert len({uuid for uuids in placed.values() for uuid in uuids}) == 2, placed
    assert [event for event in told if event["kind"] == "paused"] == []


def test_by_a_service_of_swarm(engine, plugin, runtime):  # noqa: ARG001 - the Engine has it
    engine.configure({"default-runtime": "convgpu"})
    engine("swarm", "init", "--advertise-addr", "127.0.0.1")
    try:
        service = ("--name", "job", "--replicas", "2", "--network", "host", "--detach", "-e", "CONVGPU_MEMORY=2g")
        engine("service", "create", *service, "convgpu/demo", "gpu-hold", "--hold", "600", "1g")

        def gpus():
            rows = json.loads(command(engine, "ps", "--json"))
            return sorted(gpu["index"] for row in rows for gpu in row["gpus"] if gpu["usage"])

        wait_until_all_hold(engine, plugin, 2)
        engine.wait_for("both tasks hold memory, on different GPUs", lambda: gpus() == [0, 1])
    finally:
        engine.configure({"default-runtime": "runc"})
        engine("swarm", "leave", "--force")
    engine.wait_for("nothing is left", lambda: engine.containers(plugin) == [])


@pytest.mark.skipif(version() < (25, 0), reason="this Engine has no CDI; `make test-engines` has one that does")
def test_by_a_cdi_device(engine, plugin, cdi_folder):
    command(engine, "install", "cdi", "--cdi-folder", str(cdi_folder))
    device = ("--device", "convgpu.io/memory=2g")
    made = ("create", "--rm", *device, "convgpu/demo", "true")
    engine.wait_for("the Engine knows the device", lambda: engine.run(*made, check=False).returncode == 0)
    for count, name in enumerate(("first", "second"), start=1):
        engine("run", "-d", "-i", "--name", name, *QUIET, *device, *HOLD)
        wait_until_all_hold(engine, plugin, count)
    assert where(engine, plugin, "first", "second")[1] == {"first": [0], "second": [1]}
    command(engine, "install", "cdi", "--cdi-folder", str(cdi_folder), "--uninstall")


def test_what_cannot_be_is_refused_when_the_container_is_made(engine, plugin):
    refusals = {
        "any:9": "this host has 2 that can be had; ask for gpus=any:2 or fewer",
        "7": "no device '7'; devices: any, any:N, all, 0, 1",
    }
    for gpus, text in refusals.items():
        words = preloaded(plugin, memory="2g", gpus=gpus)
        refused = engine.run("run", "--rm", *words, "convgpu/demo", "true", check=False)
        assert refused.returncode != 0
        assert text in refused.stderr
    command(engine, "drain", "0")
    command(engine, "drain", "1")
    try:
        refused = engine.run("run", "--rm", *preloaded(plugin, memory="2g"), "convgpu/demo", "true", check=False)
        assert "0, 1 are drained" in refused.stderr
    finally:
        command(engine, "drain", "--undo", "0")
        command(engine, "drain", "--undo", "1")
