"""A service on a swarm of one node: its task's limit is what Swarm reserved, and its volumes do not stay."""

from pathlib import Path

import pytest
from docker_engine import wait_for

from convgpu.plugin.engine.client import Engine
from convgpu.plugin.engine.facts import EngineView

pytestmark = pytest.mark.engine

MIB = 1 << 20


@pytest.mark.usefixtures("tidy")
def test_a_service_gets_what_swarm_reserved_and_leaves_nothing(swarm, plugin):
    swarm(
        *("service", "create", "-d", "--name", "trained", "--network", "host", "--no-resolve-image"),
        *("--generic-resource", "gpumem=1024", "--restart-condition", "none"),
        *("--mount", f"type=volume,volume-driver={plugin},dst=/run/convgpu"),
        *("--mount", f"type=bind,src={swarm.directory_of(plugin)}/driver,dst=/driver"),
        *("-e", "LD_LIBRARY_PATH=/driver", "-e", "LD_PRELOAD=/run/convgpu/libconvgpu.so"),
        *("convgpu/demo", "gpu-hold", "--hold", "2", "256m"),
    )

    def limits():
        return [device["limit"] for row in swarm.containers(plugin) for device in row["devices"]]

    swarm.wait_for("the task has its limit", lambda: limits() == [1024 * MIB])
    swarm("service", "rm", "trained")
    # Swarm removes the container; of its two volumes it keeps both (20.10), or one (28.5). The Engine is asked every
    # 30 s when nothing happens.
    wait_for("its volumes are gone", lambda: swarm.containers(plugin) == [], 300.0)
    assert swarm("volume", "ls", "-q") == ""


def test_the_engine_says_itself_what_it_starts_without_a_question(swarm, plugin):
    sleep = ("--stop-signal", "KILL", "convgpu/demo", "sleep", "600")
    swarm("service", "create", "-d", "--name", "sleeps", "--network", "host", "--no-resolve-image", *sleep)
    label = "com.docker.swarm.task.id"
    [task] = swarm.wait_for(
        "its task is there", lambda: swarm("ps", "-q", "--no-trunc", "-f", f"label={label}").split()
    )
    forged = swarm("create", "--label", f"{label}=t", *sleep)
    view = EngineView(Engine(Path(swarm.host.removeprefix("unix://")), 10.0))
    others = (swarm.plugin_id(plugin), "f" * 64)
    told = [(bool(view.listed(each)), view.is_task(each), view.is_plugin(each)) for each in (task, forged, *others)]
    swarm("service", "rm", "sleeps")
    swarm("rm", forged)
    assert told == [(True, True, False), (True, False, False), (False, False, True), (False, False, False)]
