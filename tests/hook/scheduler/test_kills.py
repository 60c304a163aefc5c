"""A process that is killed between any two instructions of a CUDA call leaves an exact ledger."""

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from compiled import SOURCES, compile_c
from daemon import Daemon, wait_until
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from rounds import rounds
from scripted_session import GIB, MIB

Join = Callable[..., Program]
Kill = Callable[..., tuple[bool, int]]
CONTEXT = 526 * MIB
LIMIT = 4 * GIB
KILLS = rounds(12, few=4)
"""For each call, spread over all its instructions; more by CONVGPU_KILLS."""


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killer")
    compile_c(folder / "kill_at", SOURCES / "standalone/kill_at.c")
    compile_c(folder / "victim", SOURCES / "standalone/victim.c", "-ldl")
    return folder


@pytest.fixture
def kill(killer: Path) -> Kill:
    """Run a victim for so many instructions of a thread; return whether its call had returned before, and how many."""

    def run(folder: Path, steps: int, thread: str, *words: object) -> tuple[bool, int]:
        settings = {"LD_PRELOAD": str(folder / "libconvgpu.so"), "LD_LIBRARY_PATH": str(folder / "driver")}
        command = [killer / "kill_at", str(steps), thread, killer / "victim", *map(str, words)]
        done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
        *ended, made = done.stdout.split()
        return ended == ["end"], int(made)

    return run


@pytest.mark.parametrize(
    ("thread", "call"),
    [
        ("main", ("alloc", 2 * MIB)),  # of its headroom
        ("main", ("alloc", 2 * GIB)),  # more than that: some has to be taken from the sibling
        ("convgpu", ("alloc", 2 * GIB)),
        ("main", ("free", 2 * MIB)),
        ("main", ("context",)),
        ("convgpu", ("context",)),
    ],
)
def test_killed_between_any_two_instructions(
    daemon: Daemon, join: Join, kill: Kill, thread: str, call: tuple[object, ...]
) -> None:
    folder = daemon.container("a", memory="4g")
    sibling = join(folder)
    assert sibling.call(f"alloc {512 * MIB}").code == SUCCESS
    ended, instructions = kill(folder, 10**8, thread, *call)
    assert ended
    kills = int(os.environ.get("CONVGPU_KILLS", KILLS))
    dice = random.Random(f"{thread} {call}")  # noqa: S311 - where to kill, the same each time
    for number in range(kills):
        place = (number * instructions + dice.randrange(instructions)) // kills
        kill(folder, place, thread, *call)
        wait_until(lambda: len(daemon.state("a")["sessions"]) == 1, "the victim's session has ended")
        [device, _other] = daemon.state("a")["devices"]
        assert device["usage"] == CONTEXT + 512 * MIB, f"killed after {place} of {instructions} instructions"
        # What the victim had is there again, to the last byte.
        rest = LIMIT - CONTEXT - 512 * MIB
        allocated = sibling.call(f"alloc {rest}")
        assert allocated.code == SUCCESS
        assert sibling.call("alloc 512").code == OUT_OF_MEMORY
        assert sibling.call(f"free {allocated.number}").code == SUCCESS
    assert daemon.process is not None
    assert daemon.process.poll() is None
