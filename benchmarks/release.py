"""From the end of a holder's last process to the return of the waiting call, less the driver's own time to free."""

import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import _test_folders  # noqa: F401 - for the imports below
from _report import ROOT, Figure, at_most, percentile, report
from daemon import Daemon, running_daemon, wait_until

HOLD = ROOT / "tests/fakes/build/gpu-hold"
TURNS = 25


def start(folder: Path, *words: str) -> "subprocess.Popen[str]":
    """gpu-hold through the hook; it holds until its stdin ends."""
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(folder / "driver"),
        "LD_PRELOAD": str(folder / "libconvgpu.so"),
    }
    return subprocess.Popen(
        [HOLD, "--wait-for-stdin", *words],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line(process: "subprocess.Popen[str]", word: str) -> list[str]:
    """Wait for the line that begins, behind its time, with `word`."""
    assert process.stdout is not None
    for text in process.stdout:
        if text.split()[1] == word:
            return text.split()
    raise SystemExit(f"{process.args} never said {word}")


def once(daemon: Daemon, holder_folder: Path, waiter_folder: Path) -> float:
    """Milliseconds from SIGKILL of the holder to the return of the waiter's call."""
    holder = start(holder_folder, "9g")
    line(holder, "hold")
    waiter = start(waiter_folder, "9g")
    wait_until(lambda: daemon.state("waiter")["state"] == "waiting", "the waiter waits")
    killed = time.time()
    holder.kill()
    returned = float(line(waiter, "allocate")[0])
    holder.wait()
    waiter.communicate("")
    wait_until(lambda: not daemon.state("waiter")["sessions"], "the waiter is gone")
    wait_until(lambda: not daemon.admin.request("devices")["devices"][0]["settling"], "nothing is settling")
    return (returned - killed) * 1e3


def measure(directory: Path, settle: int) -> list[float]:
    """All turns with a driver that needs `settle` microseconds to free a GiB."""
    with running_daemon(directory, "simulated:16GiB", f"--simulated-settle={settle}") as daemon:
        folders = [daemon.container(name, memory="10g") for name in ("holder", "waiter")]
        return [once(daemon, *folders) for _ in range(TURNS)]


def main() -> None:
    """A driver that frees at once, and one that takes as long as an H200's."""
    with tempfile.TemporaryDirectory() as scratch:
        at_once = measure(Path(scratch) / "0", 0)
        late = measure(Path(scratch) / "3100", 3100)
    freeing = 3.1 * (9 + 526 / 1024)
    figures = [
        at_most("SIGKILL -> return, the driver frees at once, p50", statistics.median(at_once), "ms", 2),
        Figure("the same, p99", percentile(at_once, 99), "ms"),
        Figure("SIGKILL -> return, the driver needs 29.5 ms, p50", statistics.median(late), "ms"),
        Figure("the same, less the driver's time", statistics.median(late) - freeing, "ms"),
    ]
    report("release", figures)


if __name__ == "__main__":
    main()
