"""Two containers, each with five sevenths of the card: the second waits for the end of the first."""

import time

import pytest
from card import Card, Watch
from containers import GIB, NAME, Start, docker, run_options, wait_until
from plugin_api import PluginApi

SIGNALS = {"frees": "USR2", "exits": "USR1", "is killed": "KILL"}


class Pair:
    """Two containers that want the same; `first` holds it, `second` waits for it."""

    def __init__(self, start: Start, plugin: PluginApi, *words: object) -> None:
        self._plugin = plugin
        self.first = start("a", *words)
        self.first.wait_for("holding")
        self.second = start("b", *words)
        wait_until(lambda: plugin.events(self.second.volume, "paused"), "the second is paused")
        waiting = plugin.container(self.second.volume)
        self.paused_with = waiting["devices"][0]["usage"]
        assert waiting["state"] == "waiting"
        assert "holding" not in self.second.reports()

    def end_first(self, end: str) -> dict[str, float]:
        """Make the first give its memory back; return seconds until the second had its own, and until all was done."""
        assert self.first.running()
        self.first.signal(SIGNALS[end])
        begin = time.time()
        holding = self.second.wait_for("holding")
        if end == "frees":
            assert self.first.running()
            self.first.signal("USR1")
        assert self.first.wait() == (137 if end == "is killed" else 0)
        wait_until(lambda: not self._plugin.get("devices")["devices"][0]["settling"], "nothing settles")
        return {"second_holding_after": holding["time"] - begin, "settled_after": time.time() - begin}

    def end_second(self) -> None:
        self.second.signal("USR1")
        assert self.second.wait() == 0

    def checks(self) -> list[object]:
        """Return what the programs found when they checked their memory."""
        reports = [*self.first.reports().values(), *self.second.reports().values()]
        return [report["right"] for report in reports if "right" in report]

    def most_by_nvml(self, watch: Watch) -> list[int]:
        """Return the highest count of each container, its processes' counts added up."""
        started = [self._plugin.events(one.volume, "started") for one in (self.first, self.second)]
        return [sum(watch.most[event["pid"]] for event in events) for events in started]


@pytest.mark.parametrize("end", SIGNALS)
def test_the_second_waits_until_the_first(
    start: Start, plugin: PluginApi, card: Card, figures: dict[str, object], share: int, through: str, end: str
) -> None:
    limit = share + max(card.total // GIB // 28, 1)
    with Watch(card) as watch:
        pair = Pair(start, plugin, f"{limit}g", "hold.py", through, share, GIB)
        took = pair.end_first(end)
        [session] = plugin.container(pair.second.volume)["sessions"]
        counts = {"charged": session["devices"][0]["usage"], "nvml_process": card.used_by()[session["pid"]]}
        pair.end_second()
    paused, granted = (plugin.events(pair.second.volume, kind) for kind in ("paused", "granted"))
    most = pair.most_by_nvml(watch)
    figures[f"the first {end}"] = took | {
        "limit": limit * GIB,
        "paused_with": pair.paused_with,
        "waited": [event["waited"] for event in granted],
        "second": counts,
        "most_by_nvml": most,
        "looks": watch.looks,
    }
    right = True if through == "torch" else None  # simulated memory has no content
    assert pair.checks() == [right] * (1 if end == "is killed" else 3 if end == "frees" else 2)
    assert len(paused) == len(granted) >= 1
    assert all(event["waited"] > 0 for event in granted)
    assert all(0 < size <= limit * GIB for size in most)


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
    options = run_options(NAME, f"{2 * share}g", libraries, volume="gpus=0")
    done = docker("run", "--rm", *options, "convgpu/hostfs", "true", check=False)
    figures["a limit above the card"] = done.stderr.strip()
    device = min(plugin.get("devices")["devices"], key=lambda device: device["index"])
    assert done.returncode == 125
    assert f"the largest limit that fits is memory={device['capacity'] >> 20}m" in done.stderr
