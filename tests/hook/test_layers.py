"""The check of the hook's layers finds what it is there for."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the hook with its objects, so that only what a test changes is built again."""
    return shutil.copytree(ROOT / "hook", tmp_path / "hook", ignore=shutil.ignore_patterns("address", "thread"))


def check(folder: Path) -> tuple[int, list[str]]:
    done = subprocess.run(
        [ROOT / "scripts/checks/check-hook-layers", folder], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.splitlines()


def plant(file: Path, text: str) -> None:
    file.write_text(file.read_text() + text)


def test_the_hook_is_one_straight_stack() -> None:
    assert check(ROOT / "hook") == (0, [])


def test_an_include_upwards_is_found(copy: Path) -> None:
    plant(copy / "src/scheduler/account.c", '\n#include "accounting/device.h"\n')
    assert check(copy) == (
        1,
        [
            "upwards, from scheduler/ to accounting/: scheduler/account.c includes accounting/device.h",
            "in a circle: accounting/device.c includes scheduler/account.h",
            "in a circle: scheduler/account.c includes accounting/device.h",
        ],
    )


def test_a_symbol_upwards_is_found_without_an_include(copy: Path) -> None:
    plant(
        copy / "src/base/log.c", "\nint session_is_open(void);\nint log_planted(void) { return session_is_open(); }\n"
    )
    code, lines = check(copy)
    assert (code, lines[0]) == (
        1,
        "upwards, from base/ to scheduler/: base/log.o uses session_is_open of scheduler/session.o",
    )
    assert "in a circle: base/log.o uses session_is_open of scheduler/session.o" in lines


def test_a_circle_in_one_folder_is_found(copy: Path) -> None:
    plant(copy / "src/accounting/headroom.c", '\n#include "accounting/charge.h"\n')
    code, lines = check(copy)
    assert code == 1
    assert "in a circle: accounting/headroom.c includes accounting/charge.h" in lines
