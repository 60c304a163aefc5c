"""Programs that call the kernel's driver without NVIDIA's libraries: NVML lists nobody with what they have."""

import subprocess

import pytest
from card import Card
from containers import GIB, SIMULATED, Container, Start, docker, wait_until
from plugin_api import PluginApi

pytestmark = pytest.mark.skipif(SIMULATED, reason="the simulated driver has no requests")


def usage(plugin: PluginApi, container: Container) -> int:
    return sum(device["usage"] for device in plugin.container(container.volume)["devices"])


@pytest.mark.parametrize(
    ("own", "crowd", "of_dead"),
    [
        (3, 0, 0),
        (3, 1000, 0),  # more than the driver's own list of clients can name
        (0, 0, 3),  # nobody has that process's ID any more
    ],
)
def test_memory_without_a_context_is_its_containers(
    start: Start, plugin: PluginApi, card: Card, own: int, crowd: int, of_dead: int
) -> None:
    container = start("a", "1g", "hold.py", "torch", 0, GIB, GIB)
    container.wait_for("holding")
    before = card.used()
    words = (str(own << 10), str(crowd), str(of_dead << 10))
    command = ["docker", "exec", container.name, "python3", "/programs/raw/raw_client.py", *words]
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
