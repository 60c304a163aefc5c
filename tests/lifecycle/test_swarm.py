"""A service on a swarm of one node: its task's limit is what Swarm reserved, and its volumes do not stay."""

import pytest
from docker_engine import wait_for

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
