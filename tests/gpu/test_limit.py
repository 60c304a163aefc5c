"""What a limit is inside a container: what the program is told, and what NVML counts when it is full."""

import pytest
from card import Card
from containers import GIB, SIMULATED, Start
from plugin_api import PluginApi

LIMIT = 20  # GiB


def test_pytorch_is_shown_the_limit(start: Start, through: str) -> None:
    container = start("a", f"{LIMIT}g", "hold.py", through, 1, GIB)
    seen = container.wait_for("memory")
    container.wait_for("holding")
    assert seen["total"] == LIMIT * GIB
    assert 0 < seen["free"] < LIMIT * GIB


def test_a_full_limit_is_within_nvmls_count(
    start: Start, plugin: PluginApi, card: Card, figures: dict[str, object]
) -> None:
    before = card.used()
    container = start("a", f"{LIMIT}g", "brim.py")
    made = container.wait_for("context")
    [session] = plugin.container(container.volume)["sessions"]
    context = {
        "nvml_process": card.used_by()[session["pid"]],
        "nvml_device": card.used() - before,
        "charged": session["devices"][0]["usage"],
    }
    container.signal("USR1")
    full = container.wait_for("full")
    held = card.used_by()[session["pid"]]
    usage = plugin.container(container.volume)["devices"][0]["usage"]
    figures["context"] = context | made
    figures["full"] = full | {
        "limit": LIMIT * GIB,
        "usable": full["taken"] / (LIMIT * GIB),
        "nvml_process": held,
        "nvml_device": card.used() - before,
        "charged": usage,
    }
    assert context["charged"] >= context["nvml_process"]
    assert full["total"] == LIMIT * GIB
    assert usage <= LIMIT * GIB
    assert full["taken"] < held <= LIMIT * GIB
    assert full["taken"] >= 0.97 * LIMIT * GIB


@pytest.mark.skipif(SIMULATED, reason="a rehearsal has no PyTorch")
def test_a_limit_full_of_pytorch_is_within_nvmls_count(
    start: Start, plugin: PluginApi, card: Card, figures: dict[str, object]
) -> None:
    container = start("a", f"{LIMIT}g", "torch_brim.py")
    full = container.wait_for("full")
    [session] = plugin.container(container.volume)["sessions"]
    held, charged = card.used_by()[session["pid"]], session["devices"][0]["usage"]
    figures["full of PyTorch"] = full | {"limit": LIMIT * GIB, "nvml_process": held, "charged": charged}
    assert charged <= LIMIT * GIB
    assert held <= LIMIT * GIB


def test_the_32_bit_forms_give_nothing_that_is_not_charged(
    start: Start, plugin: PluginApi, card: Card, figures: dict[str, object]
) -> None:
    container = start("a", f"{LIMIT}g", "old_forms.py")
    container.wait_for("context")
    [session] = plugin.container(container.volume)["sessions"]
    before = card.used_by()[session["pid"]]
    container.signal("USR1")
    asked = container.wait_for("asked")
    held = card.used_by()[session["pid"]]
    charged = plugin.container(container.volume)["devices"][0]["usage"]
    figures["32-bit forms"] = asked | {"taken": held - before, "uncharged": held - charged}
    assert held <= charged
