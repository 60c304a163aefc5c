"""Programs that call the kernel's driver without NVIDIA's libraries: NVML lists nobody with what they have."""

import subprocess

import pytest
from card import Card
from containers import GIB, SIMULATED, Container, Start, docker, wait_until
from plugin_api import PluginApi

pytestmark = pytest.mark.skipif(SIMULATED, reason="the simulated driver has no requests")


def usage(plugin: PluginApi, container: Container) -> int:
    return sum(device["usage"] for device in plugin.container(container.volume)["devices"])


@pytest.mark.parametrize("crowd", [0, 1000])
def test_memory_without_a_context_is_its_containers(start: Start, plugin: PluginApi, card: Card, crowd: int) -> None:
    """With a crowd more processes have a device than the driver's own list of them can name, which is 950."""
    container = start("a", "1g", "hold.py", "torch", 0, GIB, GIB)
    container.wait_for("holding")
    before = card.used()
    command = ["docker", "exec", container.name, "python3", "/programs/raw/raw_client.py", str(3 << 10), str(crowd)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            assert "holding" in program.stdout.readline()
            assert card.used() - before >= 3 * GIB
            wait_until(lambda: plugin.events(container.volume, "overused"), "it is seen above its limit")
            wait_until(lambda: usage(plugin, container) >= 3 * GIB, "it is charged")
            assert [one for one in plugin.get("devices")["devices"][0]["unlimited"] if not one["pid"]] == []
        finally:
            docker("kill", container.name)
