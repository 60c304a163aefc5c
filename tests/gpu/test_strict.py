"""CUDA in containers under strict rules: each has user IDs, layers and device nodes of its own (decision 146)."""

import json
from pathlib import Path

import pytest
from card import Card
from containers import GIB, Start, docker, wait_until
from plugin_api import PluginApi

RUNTIME = "convgpu-strict"
BLOCKS = 4
LIMIT = f"{(BLOCKS + 2) << 10}m"  # and a context, and the framework's own memory


@pytest.fixture(autouse=True)
def _runtime() -> None:
    if RUNTIME not in json.loads(docker("info", "-f", "{{json .Runtimes}}").stdout):
        pytest.skip(f"this Engine has no runtime {RUNTIME}: tests/gpu/run gives it to an Engine that it starts itself")


def first_id(pid: int) -> int:
    """Return the host's user ID of the root of a process."""
    return int(Path(f"/proc/{pid}/uid_map").read_text().split()[1])


def right(through: str) -> bool | None:
    return True if through == "torch" else None  # simulated memory has no content


def test_a_program_holds_its_limit_and_gets_no_more(
    start: Start, plugin: PluginApi, card: Card, figures: dict[str, object], through: str
) -> None:
    container = start("a", LIMIT, "hold.py", through, BLOCKS, GIB, (BLOCKS + 3) * GIB, runtime=RUNTIME)
    container.wait_for("holding")
    [session] = plugin.container(container.volume)["sessions"]
    assert first_id(session["pid"]) > 1 << 30
    assert BLOCKS * GIB < card.used_by()[session["pid"]] <= (BLOCKS + 2) * GIB
    container.signal("USR1")
    assert container.wait() == 0
    assert container.reports()["refused"]["error"] == "OutOfMemoryError"
    assert container.reports()["end"]["right"] == right(through)
    figures["strict"] = {"holds": BLOCKS * GIB, "slowest block": container.reports()["holding"]["slowest"]}


def test_a_container_waits_for_another_and_goes_on(start: Start, plugin: PluginApi, share: int, through: str) -> None:
    limit = f"{(share + 2) << 10}m"
    first = start("a", limit, "hold.py", through, share, GIB, runtime=RUNTIME)
    first.wait_for("holding")
    second = start("b", limit, "hold.py", through, share, GIB, runtime=RUNTIME)
    wait_until(lambda: plugin.events(second.volume, "paused"), "the second is paused")
    first.signal("USR1")
    assert first.wait() == 0
    second.wait_for("holding")
    second.signal("USR1")
    assert second.wait() == 0
    assert [each.reports()["end"]["right"] for each in (first, second)] == [right(through)] * 2


def test_memory_leaves_and_comes_back(start: Start, plugin: PluginApi, card: Card, through: str) -> None:
    """The porter, outside of the container's user namespace, copies what the container gave it."""
    container = start("a", LIMIT, "hold.py", through, BLOCKS, GIB, volume="suspend=auto", runtime=RUNTIME)
    container.wait_for("holding")
    [session] = plugin.container(container.volume)["sessions"]
    before = card.used_by()[session["pid"]]

    def state() -> str:
        return plugin.container(container.volume)["residency"]

    plugin.post(f"containers/{container.volume}/suspend")
    wait_until(lambda: plugin.bytes_out(container.volume) >= BLOCKS * GIB, "it is away")
    left = card.used_by().get(session["pid"], 0)
    plugin.post(f"containers/{container.volume}/resume")
    wait_until(lambda: state() == "running", "it runs again")
    container.signal("USR1")
    assert container.wait() == 0
    assert container.reports()["end"]["right"] == right(through)
    assert left <= before - BLOCKS * GIB
