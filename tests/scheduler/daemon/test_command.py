"""convgpud as a command: settings that cannot be."""

import subprocess
import sys
from pathlib import Path

import pytest
from daemon import DRIVER, HOOK


def run(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "convgpu.daemon", f"--directory={directory}", f"--libraries={HOOK}"]
    return subprocess.run(
        [*command, f"--simulated-driver={DRIVER}", *options], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--devices=simulated:"], "write simulated:16GiB"),
        (["--devices=simulated:16GB"], "write simulated:16GiB"),
        (["--devices=simulated:1g", "--reserve=-5"], "not a size"),
        (["--devices=simulated:1g", "--policy=worst"], "best-fit"),
        (["--devices=nvml"], "CONVGPU_DEVICES=simulated:16GiB"),
        (["--devices=simulated:1g", "--simulated-driver=/nowhere"], "/nowhere"),
    ],
)
def test_a_setting_that_cannot_be_is_one_clear_error(tmp_path: Path, options: list[str], text: str) -> None:
    ended = run(tmp_path, *options)
    assert ended.returncode != 0
    assert text in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
