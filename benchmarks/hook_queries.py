"""What the hook costs in cuMemGetInfo, which takes no memory; and how much of a limit can be used."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import _test_folders  # noqa: F401 - for the imports below
from _report import ROOT, Figure, at_most, report
from daemon import GIB, Daemon, running_daemon

TURNS = 9
LIMIT = 20 * GIB
USABLE = 97.3  # percent: what NVIDIA's driver 615 leaves of a limit of its own


class Program:
    """`src/calls.c` in a container's place, or without the hook."""

    def __init__(self, program: Path, folder: Path, *, hooked: bool) -> None:
        environment = os.environ | {"LD_LIBRARY_PATH": str(folder / "driver")}
        if hooked:
            environment["LD_PRELOAD"] = str(folder / "libconvgpu.so")
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(
            [program], env=environment, stdin=pipe, stdout=pipe, stderr=null if hooked else None, text=True
        )

    def ask(self, word: str) -> dict[str, float]:
        """Return what it answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return dict(json.loads(self._process.stdout.readline()))

    def end(self) -> None:
        """Let it end."""
        self._process.communicate()


def measure_calls(program: Path, folder: Path, *, siblings: int) -> list[Figure]:
    """Measure in turns without and with the hook; `siblings` other processes are in the container."""
    others = [Program(program, folder, hooked=True) for _ in range(siblings)]
    for other in others:
        other.ask("times")
    turns: list[tuple[dict[str, float], dict[str, float]]] = []
    for _ in range(TURNS):
        pair = []
        for hooked in (False, True):
            process = Program(program, folder, hooked=hooked)
            pair.append(process.ask("times"))
            process.end()
        turns.append((pair[0], pair[1]))
    for other in others:
        other.end()
    if any(hooked["total"] != LIMIT for _, hooked in turns):
        raise SystemExit(f"the limit is not on: {turns}")
    added = statistics.median(hooked["query"] - plain["query"] for plain, hooked in turns)
    words = f"{siblings} other process in the container" if siblings else "alone in the container"
    return [
        Figure(
            f"cuMemGetInfo, simulated driver alone ({words})",
            statistics.median(p["query"] for p, _ in turns) / 1e3,
            "us",
        ),
        Figure(f"cuMemGetInfo, added by the hook ({words})", added / 1e3, "us"),
    ]


def counted_by_nvml(daemon: Daemon) -> int:
    """Return what the driver says that is in use, in bytes."""
    script = (
        "import ctypes, sys, pynvml as n; ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL); n.nvmlInit()\n"
        "print(n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0)).used)"
    )
    library = daemon.directory / "driver/libnvidia-ml.so.1"
    return int(subprocess.check_output([sys.executable, "-c", script, str(library)], text=True))


def measure_limit(daemon: Daemon, program: Path) -> list[Figure]:
    """Fill a limit to the brim."""
    process = Program(program, daemon.container("full", memory="20g"), hooked=True)
    usable = 100 * process.ask("fill")["bytes"] / LIMIT
    above = counted_by_nvml(daemon) - LIMIT
    process.end()
    return [
        Figure("usable part of a limit of 20 GiB, a context inside", usable, "%", f">= {USABLE} %", usable >= USABLE),
        at_most("NVML's count above the limit then", max(above, 0), "bytes", 0),
    ]


def main() -> None:
    """Measure on a simulated device of 24 GiB."""
    with tempfile.TemporaryDirectory() as scratch, running_daemon(Path(scratch) / "d", "simulated:24GiB") as daemon:
        program = Path(scratch) / "calls"
        subprocess.run(
            ["cc", "-D_GNU_SOURCE", "-O2", "-o", program, ROOT / "benchmarks/src/calls.c", "-ldl"], check=True
        )
        figures = measure_limit(daemon, program)
        folder = daemon.container("bench", memory="20g")
        for siblings in (0, 1):
            figures += measure_calls(program, folder, siblings=siblings)
    report("hook_queries", figures)


if __name__ == "__main__":
    main()
