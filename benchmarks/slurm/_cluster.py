"""The cluster of `scripts/slurm start`, for the benchmarks of this folder."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from _report import ROOT

SLURM = ROOT / "scripts/slurm"
CARDS = 8
CARD = 16  # GiB


def run(*words: str) -> str:
    """Run a command on the cluster's login node."""
    return subprocess.check_output([SLURM, "run", *words], text=True, stderr=subprocess.DEVNULL).strip()


def need_cluster(name: str) -> None:
    """End with NOT RUN where none runs."""
    if subprocess.run([SLURM, "status"], capture_output=True, check=False).returncode != 0:
        sys.exit(f"{name}: NOT RUN: no cluster runs: scripts/slurm start")


def wait_until(condition: Callable[[], bool], seconds: float = 120.0, pause: float = 0.02) -> float:
    """Return the seconds until a condition holds."""
    begin = time.perf_counter()
    while not condition():
        if time.perf_counter() - begin > seconds:
            sys.exit(f"cluster: a job did not get on within {seconds:g} s")
        time.sleep(pause)
    return time.perf_counter() - begin


def state(job: str) -> str:
    """Return Slurm's word for a job."""
    return run("squeue", "-h", "-t", "all", "-o", "%T", "-j", job)


@contextmanager
def controller(folder: Path, *options: str) -> Iterator[Path]:
    """Run the controller; yield its log."""
    log = folder / "controller.log"
    words = ("convgpu", "slurm", "controller", f"--state={folder}/state", *options)
    with log.open("wb") as file:
        process = subprocess.Popen([SLURM, "run", *words], stdout=file, stderr=file)
    try:
        wait_until(lambda: "orders the jobs" in log.read_text())
        yield log
    finally:
        run("pkill", "-TERM", "-f", f"controller --state={folder}/state")
        process.wait()
