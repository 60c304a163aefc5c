"""The hook's own cost: an accepted allocate and free beside the driver's own in one process; cuInit; its memory."""

import contextlib
import os
import statistics
import subprocess
import tempfile
import threading
from pathlib import Path
from uuid import UUID

import _test_folders  # noqa: F401 - for the imports below
from _report import ROOT, Figure, at_most, report
from daemon import GIB, Daemon, running_daemon
from scripted_scheduler import ScriptedScheduler

from convgpu.protocol.messages import Context, ContextSize, DeviceRow
from convgpu.protocol.wire import PageFlag

ROUNDS, TURNS = 1_000, 9
MANY, MANY_TURNS = 1_000_000, 3
FUNCTIONS = 2_000
OVER = 13 * GIB
"""Above the limit of 12 GiB, and below what the device has: the programs prove with it that the limit is on."""


def compiled(name: str, scratch: Path) -> Path:
    """A program of `src/`."""
    program = scratch / name
    subprocess.run(["cc", "-O2", "-pthread", "-o", program, ROOT / f"benchmarks/src/{name}.c", "-ldl"], check=True)
    return program


def output(command: list[str | Path], folder: Path, **settings: str) -> str:
    """What a program prints with the simulated driver of a container's folder."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder / "driver")} | settings
    return subprocess.check_output(command, env=environment, text=True)


def added(printed: str) -> tuple[float, float]:
    """Nanoseconds of the one way, and the median of what the other takes more in the same turn."""
    turns = [tuple(map(float, line.split())) for line in printed.splitlines()]
    return statistics.median(one for one, _ in turns), statistics.median(other - one for one, other in turns)


def measure_calls(turns: Path, folder: Path) -> list[Figure]:
    """The hook's functions and the driver's own in turns, in one process."""
    figures = []
    for live in (0, 20_000, MANY):
        words = [turns, str(live), str(ROUNDS), folder / "libconvgpu.so", str(OVER)]
        alone, more = added(output(words, folder))
        figures += [
            Figure(f"allocate + free, {live} live, simulated driver alone", alone / 1e3, "us"),
            at_most(f"allocate + free, {live} live, added by the hook", more / 1e3, "us", 0.2),
        ]
    _, thread = added(output([turns, "0", str(ROUNDS)], folder))
    what = "allocate + free, added by an idle thread in a process without the hook"
    return [*figures, Figure(what, thread / 1e3, "us")]


def added_to_launch(text: str) -> tuple[float, float]:
    """Nanoseconds of the driver alone and those added by the hook; what the driver took again is left out."""
    return added("\n".join(" ".join(line.split()[::2]) for line in text.splitlines()))


def answer(scheduler: ScriptedScheduler, row: DeviceRow) -> None:
    """Be the scheduler of one process that takes part in residency, until it ends."""
    peer, _hello = scheduler.accept()
    page = peer.welcome((row,), PageFlag.ELASTIC)
    page.give(0, GIB)
    page.give_fixed(0, GIB)
    with contextlib.suppress(EOFError):
        while True:
            request, message = peer.receive()
            if isinstance(message, Context):
                peer.send(ContextSize(0), request)


def measure_launches(launches: Path, folder: Path, scratch: Path) -> list[Figure]:
    """Launches of empty kernels, of which the simulated driver makes little: what look-up and gate add."""
    image, figures = scratch / "image", []
    image.write_text("variables=0 code=0")
    hook = folder / "libconvgpu.so"
    for count in (1, FUNCTIONS):
        alone, passing = added_to_launch(output([launches, str(ROUNDS), str(count), image, hook], folder))
        figures += [
            Figure(f"a launch, {count} functions in turn, simulated driver alone", alone, "ns"),
            at_most(f"a launch, {count} functions in turn, added by the hook", passing, "ns", 5),
        ]
    uuid = (folder / "driver/devices").read_text().split()[0]
    row = DeviceRow(UUID(uuid.removeprefix("GPU-")).bytes, 12 * GIB, 0)
    with ScriptedScheduler(scratch / "elastic.sock", ROOT / "hook/build/libconvgpu-page.so") as scheduler:
        thread = threading.Thread(target=answer, args=(scheduler, row))
        thread.start()
        settings = {"CONVGPU_SOCKET": str(scheduler.path)}
        _, gated = added_to_launch(output([launches, str(ROUNDS), "1", image, hook], folder, **settings))
        thread.join()
    return [*figures, at_most("a launch, added in an elastic container, with its gate", gated, "ns", 10)]


def run(program: Path, folder: Path, live: int, *, hooked: bool) -> list[float]:
    """One process: seconds of cuInit, KiB that it takes with `live` allocations."""
    preload = {"LD_PRELOAD": str(folder / "libconvgpu.so")} if hooked else {}
    return [float(word) for word in output([program, str(live)], folder, **preload).split()]


def measure_processes(program: Path, folder: Path, live: int, turns: int) -> tuple[float, float]:
    """Seconds of cuInit and KiB, of a process with the hook above one without it, in turns."""
    pairs = [(run(program, folder, live, hooked=False), run(program, folder, live, hooked=True)) for _ in range(turns)]
    init = statistics.median(hooked[0] - plain[0] for plain, hooked in pairs)
    return init, statistics.median(hooked[1] - plain[1] for plain, hooked in pairs)


def measure(scratch: Path, daemon: Daemon) -> list[Figure]:
    """All figures."""
    folder = daemon.container("bench", memory="12g")
    figures = measure_calls(compiled("turns", scratch), folder)
    figures += measure_launches(compiled("launches", scratch), folder, scratch)
    process = compiled("process", scratch)
    _, taken = measure_processes(process, folder, MANY, MANY_TURNS)
    each = (taken * 1024 - (1 << 20)) / MANY
    init, _ = measure_processes(process, folder, 0, TURNS)
    return [
        *figures,
        at_most(f"memory of the hook with {MANY} live, less 1 MiB, for each", each, "bytes", 64),
        at_most("cuInit, added by the hook", init * 1e3, "ms", 5),
    ]


def main() -> None:
    """Measure."""
    with tempfile.TemporaryDirectory() as scratch, running_daemon(Path(scratch) / "d") as daemon:
        report("hook_cost", measure(Path(scratch), daemon))


if __name__ == "__main__":
    main()
