"""Nobody is refused who stays within the limit: random programs with the hook that fork, end, and begin anew."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from daemon import CONTEXT, running_daemon
from rounds import rounds

PROGRAM = Path(__file__).with_name("honest_programs.py")
LIMIT = 3072  # MiB


@pytest.mark.parametrize("seed", range(rounds(4, few=1)))
def test_programs_that_fork_and_end_within_their_limit_are_never_refused(
    tmp_path: Path, cgroup: Path, seed: int
) -> None:
    """Three of 160 were: what a child had kept stayed charged after it, until the next audit."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--audit=1s", "--overuse=stop") as daemon:
        folder = daemon.container("a", memory=f"{LIMIT}m")
        row = {"id": cgroup.name, "name": "a", "state": "running", "volumes": ["a"]}
        daemon.admin.request("listed", asked=time.time(), containers=[row], volumes=["a"])
        driver, hook = str(daemon.directory / "driver"), str(folder / "libconvgpu.so")
        done = subprocess.run(
            ["bash", "-c", 'echo $$ >"$0"; exec "$@"', cgroup / "cgroup.procs", sys.executable, PROGRAM]
            + [str(number) for number in (seed, 40, LIMIT, CONTEXT >> 20)],
            env=os.environ | {"LD_LIBRARY_PATH": driver, "LD_PRELOAD": hook},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "40 programs\n"), done.stderr
        assert daemon.events("overused", "stopped") == []
