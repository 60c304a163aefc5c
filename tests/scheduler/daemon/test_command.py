"""convgpud as a command: settings that cannot be, and a log that nobody reads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from daemon import DRIVER, GIB, HOOK, Process, running_daemon

from convgpu.protocol import messages as m


def run(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "convgpu.daemon", f"--directory={directory}", f"--libraries={HOOK}"]
    return subprocess.run(
        [*command, f"--simulated-driver={DRIVER}", *options], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--devices=simulated:"], "write simulated:16GiB"),
        (["--devices=simulated:16XB"], "write simulated:16GiB"),
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


def test_a_log_that_nobody_reads_stops_nobody(tmp_path: Path) -> None:
    """The plugin's pipe, while dockerd is away."""
    with running_daemon(tmp_path / "d") as daemon:
        daemon.kill()
        reading, writing = os.pipe()
        with subprocess.Popen(daemon.command, stdout=writing) as process:
            os.close(writing)
            process_of_container = Process(daemon.container("a", memory="2g"))
            process_of_container.hello()
            for _ in range(1000):  # some 200 bytes each, and the pipe holds 65,536
                assert isinstance(process_of_container.ask(m.Allocate(0, 3 * GIB, "cuMemAlloc")), m.Rejected)
            process.terminate()
            assert process.wait(timeout=120) == 0
        with os.fdopen(reading, "rb") as log:
            assert log.read().count(b"\n") > 100
