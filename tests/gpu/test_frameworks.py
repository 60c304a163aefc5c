"""Each allocator of each framework is refused at its limit, with an out-of-memory error of its own, and goes on."""

import pytest
from card import Card
from containers import COMPILED, GIB, SIMULATED, Start
from plugin_api import PluginApi

pytestmark = pytest.mark.skipif(SIMULATED, reason="a rehearsal has no frameworks")

LIMIT = 20  # GiB
REFUSED = {
    "torch": "OutOfMemoryError",
    "torch-expandable": "OutOfMemoryError",
    "torch-async": "OutOfMemoryError",
    "triton": "OutOfMemoryError",
    "cupy": "OutOfMemoryError",
    "cupy-async": "OutOfMemoryError",
    "jax": "JaxRuntimeError",
    "cudart_static": "cudaErrorMemoryAllocation",
    "cudart_shared": "cudaErrorMemoryAllocation",
}
PROCESSES = 3
# What the driver takes for modules (kernels) is not charged yet.
UNCHARGED = 512 << 20


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_an_allocator_is_refused_at_its_limit_and_goes_on(
    start: Start, plugin: PluginApi, card: Card, figures: dict[str, object], name: str
) -> None:
    compiled = name.startswith("cudart")
    if compiled and not (COMPILED / name).exists():
        pytest.skip("no nvcc, which compiles it")
    program = [name] if compiled else ["frameworks.py", name]
    container = start("a", f"{LIMIT}g", *program)
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


def test_the_processes_of_a_job_share_one_limit(
    start: Start, plugin: PluginApi, card: Card, figures: dict[str, object]
) -> None:
    container = start("a", f"{LIMIT}g", "torch_processes.py", PROCESSES)
    full = container.wait_for("full")
    record = plugin.container(container.volume)
    seen = card.used_by()
    held = sum(seen[session["pid"]] for session in record["sessions"])
    charged = record["devices"][0]["usage"]
    figures["a job of several processes"] = full | {"nvml_processes": held, "charged": charged}
    assert len(record["sessions"]) == PROCESSES
    assert full["refused"] == PROCESSES
    assert len(set(full["losses"])) == 1
    assert 0.8 * LIMIT * GIB <= full["taken"] < LIMIT * GIB
    assert charged <= LIMIT * GIB
    assert held <= LIMIT * GIB + PROCESSES * UNCHARGED
    container.signal("USR1")
    assert container.wait() == 0
