"""Each allocator of each framework is refused at its limit, with an out-of-memory error of its own, and goes on."""

import pytest
from card import Card
from containers import GIB, SIMULATED, Start
from plugin_api import PluginApi

pytestmark = pytest.mark.skipif(SIMULATED, reason="a rehearsal has no frameworks")

LIMIT = 20  # GiB
REFUSED = {
    "torch": "OutOfMemoryError",
    "torch-expandable": "OutOfMemoryError",
    "torch-async": "OutOfMemoryError",
    "cupy": "OutOfMemoryError",
    "cupy-async": "OutOfMemoryError",
    "jax": "JaxRuntimeError",
}
# What the driver takes for modules (kernels) is not charged yet.
UNCHARGED = 512 << 20


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_an_allocator_is_refused_at_its_limit_and_goes_on(
    start: Start, plugin: PluginApi, card: Card, figures: dict[str, object], name: str
) -> None:
    container = start("a", f"{LIMIT}g", "frameworks.py", name)
    full = container.wait_for("full")
    [session] = plugin.container(container.volume)["sessions"]
    held, charged = card.used_by()[session["pid"]], session["devices"][0]["usage"]
    figures[f"framework {name}"] = full | {"nvml_process": held, "charged": charged}
    assert full["refused"] == REFUSED[name], full
    assert 0.9 * LIMIT * GIB <= full["taken"] < LIMIT * GIB
    assert charged <= LIMIT * GIB
    assert held <= LIMIT * GIB + UNCHARGED
    container.signal("USR1")
    assert container.wait_for("again")["works"]
