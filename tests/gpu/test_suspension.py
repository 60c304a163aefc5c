"""Containers whose memory may leave the card, through the whole plugin: turns, suspension by hand, unified memory."""

import os
import time

import pytest
from card import Card, Watch
from containers import GIB, SIMULATED, Container, Start, wait_until
from plugin_api import PluginApi

pytestmark = pytest.mark.skipif(
    float(os.environ.get("CONVGPU_OVERSUBSCRIBE", "1")) < 1.4, reason="needs CONVGPU_OVERSUBSCRIBE=1.4"
)

CONTAINERS = 3
ROOM = 2 * GIB  # of each limit: a context, and the framework's own memory


def residency(plugin: PluginApi, container: Container) -> str:
    return plugin.container(container.volume)["residency"]


def right(through: str) -> bool | None:
    return True if through == "torch" else None  # simulated memory has no content


def test_three_containers_that_need_more_than_the_card_all_hold_their_memory(
    start: Start, plugin: PluginApi, card: Card, figures: dict[str, object], through: str
) -> None:
    blocks = card.total * 2 // 5 // GIB
    limit = (blocks * GIB + ROOM) >> 20
    begin = time.time()
    with Watch(card) as watch:
        made = [start(name, f"{limit}m", "hold.py", through, blocks, GIB, volume="suspend=auto") for name in "abc"]
        holding = [container.wait_for("holding")["time"] - begin for container in made]
        out = [plugin.bytes_out(container.volume) for container in made]
        for container in made:
            container.signal("USR1")
        statuses = [container.wait() for container in made]
    figures["three containers"] = {
        "each holds": blocks * GIB,
        "of the card": CONTAINERS * blocks * GIB / card.total,
        "holding after": holding,
        "out when all hold": out,
        "most of a process": max(watch.most.values()),
    }
    assert statuses == [0] * CONTAINERS
    assert [container.reports()["end"]["right"] for container in made] == [right(through)] * CONTAINERS
    assert sum(out) >= CONTAINERS * blocks * GIB - card.total
    assert not any(plugin.events(container.volume, "rejected") for container in made)


@pytest.mark.parametrize("deep", [False, True])
def test_a_suspended_container_frees_the_card_and_comes_back(
    start: Start, plugin: PluginApi, card: Card, figures: dict[str, object], through: str, deep: bool
) -> None:
    blocks = min(40, card.total * 2 // 5 // GIB)
    container = start("a", f"{(blocks * GIB + ROOM) >> 20}m", "hold.py", through, blocks, GIB, volume="suspend=auto")
    container.wait_for("holding")
    [session] = plugin.container(container.volume)["sessions"]
    before = card.used_by()[session["pid"]]

    def is_away() -> bool:
        return residency(plugin, container) == "stopped" and (
            session["pid"] not in card.used_by() if deep else plugin.bytes_out(container.volume) >= blocks * GIB
        )

    begin = time.monotonic()
    plugin.post(f"containers/{container.volume}/suspend?deep={str(deep).lower()}")
    wait_until(is_away, "all is away")
    gone = time.monotonic() - begin
    left = card.used_by().get(session["pid"], 0)
    begin = time.monotonic()
    plugin.post(f"containers/{container.volume}/resume")
    wait_until(lambda: residency(plugin, container) == "running", "it runs again")
    figures[f"suspension{' deep' if deep else ''}"] = {
        "holds": blocks * GIB,
        "by NVML before and after": (before, left),
        "seconds out": gone,
        "seconds back": time.monotonic() - begin,
    }
    container.signal("USR1")
    assert container.wait() == 0
    assert container.reports()["end"]["right"] == right(through)
    assert left <= before - blocks * GIB


def test_a_container_with_unified_memory_has_the_card_alone(
    start: Start, plugin: PluginApi, figures: dict[str, object], through: str
) -> None:
    blocks = 8 if not SIMULATED else 1
    limit = f"{(blocks * GIB + ROOM) >> 20}m"
    first = start("a", limit, "hold.py", through, blocks, GIB, volume="backing=unified gpus=0")
    first.wait_for("holding")
    second = start("b", limit, "hold.py", through, blocks, GIB)
    wait_until(lambda: plugin.events(second.volume, "paused"), "the other waits")
    assert "holding" not in second.reports()
    first.signal("USR1")
    assert first.wait() == 0
    second.wait_for("holding")
    second.signal("USR1")
    assert second.wait() == 0
    assert first.reports()["end"]["right"] == second.reports()["end"]["right"] == right(through)
    figures["unified"] = {"holds": blocks * GIB, "slowest block": first.reports()["holding"]["slowest"]}
