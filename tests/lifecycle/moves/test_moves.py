"""The Engine, and each process of the plugin, is killed while memory moves: nothing is lost, nothing stays behind."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from docker_engine import Engine, Holder

# An Engine of its own and some four seconds for each kill: too dear for `make test`.
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif("CONVGPU_ENGINE_KILLS" not in os.environ, reason="`make storm` kills Engines amid moves"),
]

ROUNDS = int(os.environ.get("CONVGPU_ENGINE_KILLS", "1"))
MIB = 1 << 20
BLOCKS = 8
HELD = BLOCKS * 64 * MIB
OPTION = "type=volume,volume-driver=convgpu,volume-opt=memory=2g,volume-opt=suspend=auto,dst=/run/convgpu"
STEPS = ("asked", "begun", "done")
BOUND = 120.0  # seconds after which something counts as waiting for ever


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
def holder(engine: Engine, plugin: str, hold: Callable[..., Holder]) -> Holder:
    """A container whose program compares what is in its blocks before it ends."""
    made = hold(plugin, "2g", "--check", *["64m"] * BLOCKS, options=("--mount", OPTION))
    made.wait_until_holding(HELD)  # its context included
    engine.wait_for("its blocks are filled", lambda: f" hold {HELD}" in made.output(), BOUND)
    return made


def ask(engine: Engine, plugin: str, holder: Holder, word: str) -> None:
    engine.administration(plugin, f"/v1/containers/{holder.volume}/{word}", "POST")


def out(holder: Holder) -> int:
    record = holder.record()
    return -1 if record is None else sum(device["out"] for device in record["devices"])


def porter(engine: Engine, plugin: str) -> int:
    def find() -> int | None:
        parent = engine.processes(plugin).get("daemon", 0)
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        porters = (int(pid) for pid in children if "convgpu-porter" in Path(f"/proc/{pid}/cmdline").read_text())
        return next(porters, None)

    found = engine.wait_for("the porter runs", find, BOUND)
    assert isinstance(found, int)
    return found


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Let a process do nothing meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def kill(engine: Engine, plugin: str, victim: str) -> None:
    """Kill one, and start again what nobody else does."""
    before = engine.started(plugin)
    if victim == "engine":
        engine.kill()
        engine.start()
    else:
        os.kill(porter(engine, plugin) if victim == "porter" else engine.processes(plugin)[victim], signal.SIGKILL)
    if victim in ("engine", "plugin"):
        engine.wait_for("the Engine has started the plugin", lambda: engine.started(plugin) != before, BOUND)
    engine.wait_for_plugin(plugin, BOUND)


def move_and_kill(engine: Engine, plugin: str, holder: Holder, word: str, victim: str, step: str) -> None:
    """Order a move, kill at a step of it, and wait for its end.

    Where the Engine is killed nothing moves meanwhile, so that it starts at the same step.
    """
    before, after = (0, HELD) if word == "suspend" else (HELD, 0)
    assert out(holder) == before
    pause = standing_still(porter(engine, plugin)) if victim == "engine" else nullcontext()
    if step == "asked":
        with pause:
            ask(engine, plugin, holder, word)
            kill(engine, plugin, victim)
    else:
        ask(engine, plugin, holder, word)
        wanted = (lambda size: size != before) if step == "begun" else (lambda size: size == after)
        engine.wait_for(f"{word}: {step}", lambda: wanted(out(holder)), BOUND)
        with pause:
            kill(engine, plugin, victim)
    try:
        engine.wait_for(f"after {word} {after} bytes are out", lambda: out(holder) == after, BOUND)
    except AssertionError as error:
        error.add_note(holder.output())
        raise


@pytest.mark.parametrize("victim", ["engine", "plugin", "daemon", "porter"])
def test_a_kill_at_a_step_of_a_move_loses_nothing(surviving, plugin, holder, victim) -> None:
    for step in STEPS * ROUNDS:
        for word in ("suspend", "resume"):
            move_and_kill(surviving, plugin, holder, word, victim, step)
    holder.go_on()
    assert holder.exit_code() == 0, holder.output()
    assert holder.output().count(" right") == BLOCKS


@pytest.mark.parametrize("word", ["suspend", "resume"])
def test_an_engine_that_is_killed_with_its_containers_leaves_no_host_memory_behind(
    engine, plugin, holder, word
) -> None:
    ask(engine, plugin, holder, "suspend")
    engine.wait_for("memory is out", lambda: out(holder) > 0, BOUND)
    with standing_still(porter(engine, plugin)):
        if word == "resume":
            ask(engine, plugin, holder, word)
        engine.kill()
    engine.start()
    engine.wait_for_plugin(plugin, BOUND)
    holder.wait_until_ended()

    def pool() -> int:
        return engine.administration(plugin, "/v1/devices")["devices"][0]["pool"]

    engine.wait_for("the host has its memory back", lambda: pool() == 0, BOUND)
