"""NVML and nvidia-smi inside a container tell of that container only."""

import json

import pytest
from card import Card
from containers import GIB, SIMULATED, Container, Start, docker
from plugin_api import PluginApi

LIMIT = 20  # GiB
MIB = 1 << 20


@pytest.fixture
def pair(start: Start, through: str) -> tuple[Container, Container]:
    """One that holds 4 GiB of 20, and a stranger."""
    containers = (
        start("a", f"{LIMIT}g", "hold.py", through, 4, GIB),
        start("b", f"{LIMIT}g", "hold.py", through, 1, GIB),
    )
    for container in containers:
        container.wait_for("holding")
    return containers


def charged(plugin: PluginApi, container: Container) -> int:
    return plugin.container(container.volume)["devices"][0]["usage"]


def counted(plugin: PluginApi, card: Card, container: Container) -> int:
    """Return NVML's own count of the container's one process."""
    [session] = plugin.container(container.volume)["sessions"]
    return card.used_by()[session["pid"]]


def test_nvml_by_docker_exec(pair: tuple[Container, Container], plugin: PluginApi, figures: dict[str, object]) -> None:
    one, _stranger = pair
    seen = json.loads(docker("exec", one.name, "python3", "/programs/look.py").stdout)
    used = charged(plugin, one)
    figures["NVML in a container"] = seen | {"charged": used}
    assert seen == {"total": LIMIT * GIB, "used": used, "free": LIMIT * GIB - used, "processes": [[1, used]]}
    assert len(plugin.container(one.volume)["sessions"]) == 1


@pytest.mark.skipif(SIMULATED, reason="a rehearsal has no nvidia-smi")
def test_nvidia_smi(
    pair: tuple[Container, Container], plugin: PluginApi, card: Card, figures: dict[str, object]
) -> None:
    one, _stranger = pair

    def ask(question: str) -> list[list[str]]:
        said = docker("exec", one.name, "nvidia-smi", question, "--format=csv,noheader,nounits").stdout
        return [[word.strip() for word in line.split(",")] for line in said.splitlines()]

    memory = ask("--query-gpu=memory.total,memory.used,memory.free")
    processes = ask("--query-compute-apps=pid,used_memory")
    table = docker("exec", one.name, "nvidia-smi").stdout
    used = charged(plugin, one) / MIB
    figures["nvidia-smi in a container"] = {"memory": memory, "processes": processes, "table": table, "charged": used}
    [[total, shown, free]] = memory
    assert int(total) == LIMIT * 1024
    assert abs(int(shown) - used) < 1
    assert abs(int(total) - int(shown) - int(free)) <= 1  # each is rounded to MiB by itself
    # It takes its rows past NVML's functions, from the driver, whose count has what kernels take in it already.
    assert processes == [["1", str(counted(plugin, card, one) // MIB)]]
    assert f"{shown}MiB / {total:>6}MiB" in table
