"""The hook's own cost: an accepted allocate and free, and cuInit, against the same program without the hook."""

import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from _report import ROOT, Figure, at_most, report
from daemon import Daemon, running_daemon

from convgpu.client.admin import SchedulerRefused

TURNS, ROUNDS = 9, 15
MANY, MANY_TURNS = 1_000_000, 3


def run(program: Path, folder: Path, live: int, *, hooked: bool) -> list[float]:
    """One process: seconds of cuInit and of the first context, KiB that it takes, then ns per allocate and free."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder / "driver")}
    if hooked:
        environment["LD_PRELOAD"] = str(folder / "libconvgpu.so")
    command = [program, str(live), str(ROUNDS)]
    return [float(word) for word in subprocess.check_output(command, env=environment, text=True).split()]


def prove_that_the_limit_is_on(daemon: Daemon, program: Path) -> None:
    """A limiter that was not on is the classic wrong benchmark."""
    folder = daemon.container("tiny", memory="1m")
    environment = {"LD_LIBRARY_PATH": str(folder / "driver"), "LD_PRELOAD": str(folder / "libconvgpu.so")}
    refused = subprocess.run([program, "0", "1"], env=environment, capture_output=True, text=True, check=False)
    if "CUDA error 2" not in refused.stderr:
        raise SystemExit(f"the limit is not on: {refused}")
    try:
        daemon.admin.request("create", name="huge", options={"memory": "1t"})
    except SchedulerRefused:
        return
    raise SystemExit("a limit above the capacity was taken")


def measure_many(program: Path, folder: Path) -> list[Figure]:
    """A million live allocations: what one more costs, and what the table of them takes."""
    turns = [
        (run(program, folder, MANY, hooked=False), run(program, folder, MANY, hooked=True)) for _ in range(MANY_TURNS)
    ]
    added = statistics.median(statistics.median(w[3:]) - statistics.median(p[3:]) for p, w in turns)
    taken = statistics.median(with_hook[2] - without[2] for without, with_hook in turns) * 1024
    return [
        at_most(f"allocate + free, {MANY} live, added by the hook", added / 1e3, "us", 0.2),
        at_most(f"memory of the hook with {MANY} live, less 1 MiB, for each", (taken - (1 << 20)) / MANY, "bytes", 64),
    ]


def main() -> None:
    """Measure in turns: without, with, without, ..."""
    with tempfile.TemporaryDirectory() as scratch, running_daemon(Path(scratch) / "d") as daemon:
        program = Path(scratch) / "alloc_free"
        subprocess.run(["cc", "-O2", "-o", program, ROOT / "benchmarks/src/alloc_free.c", "-ldl"], check=True)
        prove_that_the_limit_is_on(daemon, program)
        folder = daemon.container("bench", memory="12g")
        figures = []
        for live in (0, 20_000):
            turns = [
                (run(program, folder, live, hooked=False), run(program, folder, live, hooked=True))
                for _ in range(TURNS)
            ]
            plain = statistics.median(statistics.median(without[3:]) for without, _ in turns)
            hooked = statistics.median(statistics.median(with_hook[3:]) for _, with_hook in turns)
            figures += [
                Figure(f"allocate + free, {live} live, simulated driver alone", plain / 1e3, "us"),
                at_most(f"allocate + free, {live} live, added by the hook", (hooked - plain) / 1e3, "us", 0.2),
            ]
        figures += measure_many(program, folder)
        init = statistics.median(with_hook[0] - without[0] for without, with_hook in turns)
        figures.append(at_most("cuInit, added by the hook", init * 1e3, "ms", 5))
    report("hook_cost", figures)


if __name__ == "__main__":
    main()
