"""No launch passes unseen before its function was looked at, whatever comes and goes, and in the end all do."""

import re
import subprocess
from pathlib import Path

import pytest
from compiled import ROOT, SOURCES, compile_c

HOOK = ROOT / "hook/src"
PARTS = [HOOK / "functions/functions.c", HOOK / "functions/short_path.c", HOOK / "accounting/allocations.c"]
STEPS = 30_000


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("first-launches") / "program"
    return compile_c(target, SOURCES / "standalone/first_launches.c", *PARTS, HOOK / "base/coarse_clock.c")


def run(program: Path, seed: int, *, strange: int = 0, foreign: int = 0) -> tuple[int, int, int]:
    """Return how many launches passed, how many were looked at, and whether the short path was shut."""
    done = subprocess.run(
        [program, str(seed), str(STEPS), str(strange), str(foreign)], text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout
    [(passed, looked, shut)] = re.findall(r"^passed (\d+), looked (\d+), shut (\d)$", done.stdout)
    return int(passed), int(looked), int(shut)


@pytest.mark.parametrize("seed", range(10))
def test_no_function_passes_before_it_was_looked_at(program: Path, seed: int) -> None:
    passed, looked, shut = run(program, seed)
    assert passed > 1000
    assert looked > 1000
    assert shut == 0


@pytest.mark.parametrize("seed", range(10))
def test_nothing_passes_any_more_once_a_handle_came_in_a_way_that_is_not_hooked(program: Path, seed: int) -> None:
    _passed, looked, shut = run(program, seed, strange=20)
    assert looked > 1000
    assert shut == 1


@pytest.mark.parametrize("seed", range(10))
def test_functions_of_a_librarys_module_wait_again_when_their_handles_come_again(program: Path, seed: int) -> None:
    passed, looked, shut = run(program, seed, foreign=4)
    assert passed > 100
    assert looked > 1000
    assert shut == 0
