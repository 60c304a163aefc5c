"""The Engine, and each process of the plugin, is killed while memory moves: nothing is lost, nothing stays behind."""

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from docker_engine import Engine, Holder, wait_for

ROUNDS = int(os.environ.get("CONVGPU_ENGINE_KILLS", "0"))  # of each victim
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not ROUNDS, reason="`make storm` kills Engines: CONVGPU_ENGINE_KILLS=N, rounds of each victim"),
]
MIB = 1 << 20
BLOCKS = 8
HELD = BLOCKS * 64 * MIB
OPTION = "type=volume,volume-driver=convgpu,volume-opt=memory=2g,volume-opt=suspend=auto,dst=/run/convgpu"


@pytest.fixture(scope="module", autouse=True)
def small_pool(engine: Engine, plugin: str) -> Iterator[None]:
    """Let the plugin take no more of the host's memory than these tests need."""

    def choose(size: str) -> None:
        engine("plugin", "disable", "-f", plugin)
        engine("plugin", "set", plugin, f"CONVGPU_HOST_MEMORY={size}")
        engine("plugin", "enable", plugin)
        engine.wait_for_plugin(plugin)

    choose("1200m")
    yield
    choose("auto")


@pytest.fixture
def surviving(engine: Engine) -> Iterator[Engine]:
    """The Engine with live-restore: containers and plugins live on while it does not run."""
    engine.configure({"live-restore": True})
    yield engine
    engine.configure({"live-restore": False})


@pytest.fixture
def holder(plugin: str, hold: Callable[..., Holder]) -> Holder:
    """A container whose program compares what is in its blocks before it ends."""
    made = hold(plugin, "2g", "--check", *["64m"] * BLOCKS, options=("--mount", OPTION))
    made.wait_until_holding(HELD)
    return made


def ask(engine: Engine, plugin: str, holder: Holder, word: str) -> None:
    engine.administration(plugin, f"/v1/containers/{holder.volume}/{word}", "POST")


def out(holder: Holder) -> int:
    record = holder.record()
    return -1 if record is None else sum(device["out"] for device in record["devices"])


def porter(engine: Engine, plugin: str) -> int:
    parent = engine.processes(plugin)["daemon"]
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return next(int(pid) for pid in children if "convgpu-porter" in Path(f"/proc/{pid}/cmdline").read_text())


def kill(engine: Engine, plugin: str, victim: str) -> None:
    """Kill one, and start again what nobody else does."""
    if victim == "engine":
        engine.kill()
        engine.start()
    elif victim == "porter":
        os.kill(porter(engine, plugin), signal.SIGKILL)
    else:
        os.kill(engine.processes(plugin)[victim], signal.SIGKILL)
    engine.wait_for_plugin(plugin)


@pytest.mark.parametrize("victim", ["engine", "plugin", "daemon", "porter"])
def test_a_kill_in_the_middle_of_a_move_loses_nothing(surviving, plugin, holder, victim) -> None:
    chance = random.Random(victim)  # noqa: S311 - an order of tests
    for _ in range(ROUNDS):
        for word, size in (("suspend", HELD), ("resume", 0)):
            before = out(holder)
            ask(surviving, plugin, holder, word)
            if chance.random() < 0.7:  # else it is killed as soon as the order is given
                wait_for("the move has begun", lambda before=before: out(holder) != before)
            kill(surviving, plugin, victim)
            surviving.wait_for(f"after {word} {size} bytes are out", lambda size=size: out(holder) == size)
    holder.go_on()
    assert holder.exit_code() == 0, holder.output()
    assert holder.output().count(" right") == BLOCKS


def test_an_engine_that_is_killed_with_its_containers_leaves_no_host_memory_behind(engine, plugin, holder) -> None:
    ask(engine, plugin, holder, "suspend")
    engine.wait_for("the move has begun", lambda: out(holder) > 0)
    engine.kill()
    engine.start()
    engine.wait_for_plugin(plugin)
    holder.wait_until_ended()

    def pool() -> int:
        return engine.administration(plugin, "/v1/devices")["devices"][0]["pool"]

    engine.wait_for("the host has its memory back", lambda: pool() == 0)
