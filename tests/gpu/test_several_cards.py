"""Limits on several cards: each by its UUID, whatever order and choice CUDA_VISIBLE_DEVICES makes of them."""

import pytest
from containers import GIB, SIMULATED, Start
from plugin_api import PluginApi

pytestmark = pytest.mark.usefixtures("several_cards")

VISIBLE = {
    "all": (None, (0, 1)),
    "one": ("1", (1,)),
    "reordered": ("1,0", (1, 0)),
    "by UUID": ("{1},{0}", (1, 0)),
    "up to a number that is none": ("1,-1,0", (1,)),
}
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


@pytest.mark.skipif(SIMULATED, reason="a rehearsal has no PyTorch")
def test_nccl_works_below_the_limits(start: Start, uuids: list[str]) -> None:
    container = start("a", "20g", "nccl.py")
    sums = container.wait_for("sums")["sums"]
    assert sums == [len(uuids) * (len(uuids) + 1) / 2] * len(uuids)
    assert container.wait() == 0
