"""Two containers, each with five sevenths of the card: the second waits for the end of the first."""

import time

import pytest
from card import Card, Watch
from containers import docker, run_options, wait_until
from plugin_api import PluginApi

from conftest import GIB, NAME, Start


def most_by_container(plugin: PluginApi, watch: Watch, *volumes: str) -> dict[str, int]:
    """Return the highest count by NVML of each container, its processes' counts added up."""
    pids = {volume: {event["pid"] for event in plugin.events(volume, "started")} for volume in volumes}
    return {volume: sum(watch.most[pid] for pid in pids[volume]) for volume in volumes}


@pytest.mark.parametrize("end", ["frees", "exits", "is killed"])
def test_the_second_waits_until_the_first(
    start: Start,
    plugin: PluginApi,
    card: Card,
    figures: dict[str, object],
    share: int,
    through: str,
    end: str,
) -> None:
    right = True if through == "torch" else None  # what a check of the memory says
    limit = share + max(card.total // GIB // 28, 1)
    arguments = (f"{limit}g", "hold.py", through, share, GIB)
    with Watch(card) as watch:
        first = start("a", *arguments)
        first.wait_for("holding")
        second = start("b", *arguments)
        wait_until(lambda: plugin.events(second.volume, "paused"), "the second is paused")
        waiting = plugin.container(second.volume)
        assert waiting["state"] == "waiting"
        assert first.running()
        alone = "holding" not in second.reports()
        first.signal({"frees": "USR2", "exits": "USR1", "is killed": "KILL"}[end])
        ended = time.time()
        holding = second.wait_for("holding")
        if end == "frees":
            assert first.running()
            assert first.reports()["freed"]["right"] is right
            first.signal("USR1")
        assert first.wait() == (137 if end == "is killed" else 0)
        wait_until(lambda: not plugin.get("devices")["devices"][0]["settling"], "nothing settles")
        settled = time.time()
        [session] = plugin.container(second.volume)["sessions"]
        charged = session["devices"][0]["usage"]
        counted = card.used_by()[session["pid"]]
        second.signal("USR1")
        assert second.wait() == 0
    assert end == "is killed" or first.reports()["end"]["right"] is right
    assert second.reports()["end"]["right"] is right
    most = most_by_container(plugin, watch, first.volume, second.volume)
    paused = plugin.events(second.volume, "paused")
    resumed = plugin.events(second.volume, "resumed")
    figures[f"the first {end}"] = {
        "limit": limit * GIB,
        "paused_after": waiting["devices"][0]["usage"],
        "waited": [event["waited"] for event in resumed],
        "second_holding_after": holding["time"] - ended,
        "slowest_block": holding["slowest"],
        "settled_after": settled - ended,
        "second_charged": charged,
        "second_by_nvml": counted,
        "most_by_nvml": list(most.values()),
        "looks": watch.looks,
        "events": plugin.events(second.volume, "started", "accepted", "paused", "resumed", "ended"),
    }
    assert alone
    assert len(paused) == len(resumed) >= 1
    assert all(event["waited"] > 0 for event in resumed)
    assert all(0 < size <= limit * GIB for size in most.values())


def test_more_than_the_limit_is_refused_at_once(
    start: Start, plugin: PluginApi, figures: dict[str, object], share: int, through: str
) -> None:
    container = start("c", f"{share}g", "hold.py", through, 1, GIB, 2 * share * GIB)
    refused = container.wait_for("refused")
    container.wait_for("holding")
    container.signal("USR1")
    assert container.wait() == 0
    figures["over the limit"] = {"size": 2 * share * GIB, "seconds": refused["seconds"], "error": refused["error"]}
    assert refused["error"] == "OutOfMemoryError"
    assert refused["seconds"] < 1
    # PyTorch asks once more after it has emptied its cache.
    rejected = {(event["size"], event["reason"]) for event in plugin.events(container.volume, "rejected")}
    assert rejected == {(2 * share * GIB, "limit")}


def test_a_limit_above_the_card_is_refused_with_what_fits(
    plugin: PluginApi, libraries: str, share: int, figures: dict[str, object]
) -> None:
    options = run_options(NAME, f"{2 * share}g", libraries)
    done = docker("run", "--rm", *options, "convgpu/hostfs", "true", check=False)
    figures["a limit above the card"] = done.stderr.strip()
    [device] = plugin.get("devices")["devices"]
    assert done.returncode == 125
    assert f"the largest limit that fits is memory={device['capacity'] >> 20}m" in done.stderr
