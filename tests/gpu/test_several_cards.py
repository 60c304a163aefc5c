"""Limits on several cards: each by its UUID, whatever order and choice CUDA_VISIBLE_DEVICES makes of them."""

import pytest
from card import Card
from containers import GIB, SIMULATED, Start, wait_until
from plugin_api import PluginApi

pytestmark = pytest.mark.usefixtures("several_cards")

VISIBLE = {
    "all": (None, (0, 1)),
    "one": ("1", (1,)),
    "reordered": ("1,0", (1, 0)),
    "by UUID": ("{1},{0}", (1, 0)),
    "up to a number that is none": ("1,-1,0", (1,)),
}
BLOCKS = 10  # of 1 GiB, which each of several processes holds
FIRST = 8  # GiB; each further one has half of it more


@pytest.fixture
def uuids(plugin: PluginApi) -> list[str]:
    return [device["uuid"] for device in sorted(plugin.get("devices")["devices"], key=lambda one: one["index"])]


@pytest.fixture
def several_cards(uuids: list[str]) -> None:
    if len(uuids) < 2:
        pytest.skip("needs two cards")


@pytest.mark.parametrize("first", ["cuda", "nvml"])
@pytest.mark.parametrize("choice", VISIBLE)
def test_a_limit_is_its_cards(start: Start, plugin: PluginApi, uuids: list[str], first: str, choice: str) -> None:
    limits = {uuid: (FIRST + FIRST // 2 * place) * GIB for place, uuid in enumerate(uuids)}
    memory = ",".join(f"{uuid}:{limit // GIB}g" for uuid, limit in limits.items())
    visible, order = VISIBLE[choice]
    named = {} if visible is None else {"visible": visible.format(*uuids)}
    container = start("a", memory, "devices.py", first, **named)
    full = container.wait_for("full")
    seen = [(device["uuid"], device["total"]) for device in full["devices"]]
    expected = [(uuids[place], limits[uuids[place]]) for place in order]
    assert seen[: len(expected)] == expected
    assert full["refused"]
    chosen, limit = expected[0]
    assert full["taken"] == limit - GIB  # the context is less than one of its blocks
    usage = {row["uuid"]: row["usage"] for row in plugin.container(container.volume)["devices"]}
    assert {uuid for uuid, size in usage.items() if size} == {chosen}
    assert full["taken"] < usage[chosen] <= limit


def expected_sums(uuids: list[str]) -> list[float]:
    return [len(uuids) * (len(uuids) + 1) / 2] * len(uuids)


@pytest.mark.skipif(SIMULATED, reason="a rehearsal has no PyTorch")
def test_nccl_works_below_the_limits(start: Start, uuids: list[str]) -> None:
    container = start("a", "20g", "nccl.py", volume="gpus=all")
    assert container.wait_for("sums")["sums"] == expected_sums(uuids)
    assert container.wait() == 0


@pytest.mark.skipif(SIMULATED, reason="a rehearsal has no PyTorch")
def test_processes_with_nccl_are_suspended_together_and_compute_on(
    start: Start, plugin: PluginApi, uuids: list[str], figures: dict[str, object]
) -> None:
    container = start("a", "20g", "nccl.py", BLOCKS, volume="gpus=all suspend=auto fixed=8g")
    assert container.wait_for("sums")["sums"] == expected_sums(uuids)
    plugin.post(f"containers/{container.volume}/suspend")

    def devices() -> list[dict]:
        return plugin.container(container.volume)["devices"]

    wait_until(lambda: all(device["out"] >= BLOCKS * GIB for device in devices()), "the blocks of both are out")
    figures["NCCL, suspended"] = [{name: device[name] for name in ("usage", "out", "fixed")} for device in devices()]
    plugin.post(f"containers/{container.volume}/resume")
    container.signal("USR1")
    again = container.wait_for("again")
    assert (again["sums"], again["right"]) == (expected_sums(uuids), True)
    assert container.wait() == 0


@pytest.mark.skipif(SIMULATED, reason="a rehearsal has no PyTorch")
def test_a_gang_of_a_rank_on_each_card_starts_whole_beside_other_jobs(
    start: Start, plugin: PluginApi, uuids: list[str], card: Card
) -> None:
    block = (card.total // GIB - 20) + 2  # too much for 20 GiB beside it
    limit = block + 3
    first, second = (
        start(name, f"{limit}g", "hold.py", "torch", block, GIB, volume=f"gpus={uuid}", visible=uuid)
        for name, uuid in zip("bc", uuids[:2], strict=True)
    )
    first.wait_for("holding")
    second.wait_for("holding")
    gang = start("a", "20g", "nccl.py", BLOCKS, volume="gpus=all gang=ring")
    wait_until(lambda: plugin.container(gang.volume)["state"] == "waiting", "the gang waits")
    first.signal("USR1")
    assert first.wait() == 0
    assert [device["grant"] for device in plugin.container(gang.volume)["devices"]] == [0] * len(uuids)
    second.signal("USR1")
    assert second.wait() == 0
    assert gang.wait_for("sums")["sums"] == expected_sums(uuids)
    gang.signal("USR1")
    assert gang.wait_for("again")["right"]
    assert gang.wait() == 0
