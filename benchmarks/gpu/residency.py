"""What it costs that memory leaves a card and comes back: hook and porter, driven without a scheduler's decisions.

Rows of the issue's table "Figures"; each ratio is taken within one run, in turns. CONVGPU_RESIDENCY_GIB=40 is what each
of two programs holds.
"""

import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from _card import DEVICES, GIB, ROOT, at_most, report
from _report import Figure, at_least
from conductor import Conductor, Member

SOURCES = ROOT / "benchmarks/gpu/src"
HELD = int(os.environ.get("CONVGPU_RESIDENCY_GIB", "40"))
BLOCK = int(os.environ.get("CONVGPU_RESIDENCY_BLOCK_MIB", "1024")) << 20
POOL = (2 * HELD + 1) * GIB  # what goes out may be ahead of what comes in
COUNT = HELD * GIB // BLOCK
ROUNDS = 5
MIB = 1 << 20
FRAMEWORKS = (
    "torch",
    "torch-graph",
    "torch-expandable",
    "torch-async",
    "triton",
    "cupy",
    "cupy-async",
    "jax",
)
PAIRS = (2, 20, 64, 512)  # MiB: what PyTorch's allocator asks for, and more


class Bench:
    """The conductor, and programs in its containers."""

    def __init__(self, conductor: Conductor, program: Path) -> None:
        self.conductor, self.program = conductor, program

    @property
    def command(self) -> tuple[Path, Path]:
        """Return the program's command line."""
        return self.program, SOURCES / "residency_kernels.ptx"

    def holder(self, name: str, seed: int, count: int = COUNT) -> Member:
        """Start a program that holds and has filled its blocks."""
        member = self.conductor.start(name, *self.command)
        assert member.answer() == "0"
        assert member.say(f"alloc {count} {BLOCK}").isdigit()
        assert member.say(f"fill {seed}") == "0"
        return member

    def native(self) -> Member:
        """Start the program without a hook."""
        process = self.conductor.spawn(None, *self.command)
        member = Member(self.conductor, None, process)  # type: ignore[arg-type] # it has no connection
        assert member.answer() == "0"
        return member


def moves(bench: Bench) -> list[Figure]:
    """Time suspension and resumption of one program, contents compared after each round."""
    member, out, back, drained, wrong = bench.holder("a", 11), [], [], [], 0
    for _ in range(ROUNDS):
        gone = member.suspend(HELD * GIB)
        came = member.resume()
        wrong += int(member.say("check 11"))
        out.append(gone.seconds)
        drained.append(gone.drained)
        back.append(came.seconds)
    member.end()
    return [
        at_most(f"suspend {HELD} GiB, asked until done", statistics.median(out), "s", 0.95),
        at_most(f"resume {HELD} GiB, asked until done", statistics.median(back), "s", 0.95),
        Figure(
            "of the suspension: until the gate is closed and all work is done", statistics.median(drained) * 1e3, "ms"
        ),
        at_most(f"words that are wrong after {ROUNDS} rounds", wrong, "", 0),
    ]


def in_parallel(*parts: Callable[[], object]) -> float:
    """Return the seconds until all are done."""
    begin = time.perf_counter()
    with ThreadPoolExecutor() as threads:
        for running in [threads.submit(part) for part in parts]:
            running.result()
    return time.perf_counter() - begin


def exchange(bench: Bench) -> list[Figure]:
    """Time one program's way out while another's memory comes in."""
    first, second, taken, wrong = bench.holder("a", 21), bench.holder("b", 22), [], 0
    second.suspend(HELD * GIB)
    seeds = [21, 22]
    for _ in range(ROUNDS):
        taken.append(in_parallel(partial(first.suspend, HELD * GIB), second.resume))
        wrong += int(second.say(f"check {seeds[1]}"))
        first, second, seeds = second, first, seeds[::-1]
    second.resume()
    first.end()
    second.end()
    return [
        at_most(f"{HELD} GiB out while another's {HELD} GiB come in", statistics.median(taken), "s", 1.1),
        at_most("words that are wrong after it", wrong, "", 0),
    ]


def served(bench: Bench) -> list[Figure]:
    """Time an allocation whose room is another program's memory."""
    size, waiter, taken = HELD * GIB, bench.holder("a", 31), []
    taker = bench.conductor.start("b", *bench.command)
    taker.answer()
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        waiter.suspend(size)
        assert taker.say(f"alloc {COUNT} {BLOCK}").isdigit()
        taken.append(time.perf_counter() - begin)
        taker.say("free")
        waiter.resume()
    wrong = int(waiter.say("check 31"))
    waiter.end()
    taker.end()
    limit = size / 45e9 + 0.05
    return [
        at_most(
            f"an allocation of {HELD} GiB, served by moving a waiter's memory", statistics.median(taken), "s", limit
        ),
        at_most("words that are wrong after it", wrong, "", 0),
    ]


def in_turns(bench: Bench, line: str, prepare: str = "") -> tuple[float, float, float]:
    """Ask a backed and a native program in turns: medians of both, and of their ratios."""
    programs = [bench.conductor.start("a", *bench.command), bench.native()]
    programs[0].answer()
    if prepare:
        for program in programs:
            assert program.say(prepare).isdigit()
    found: list[list[int]] = [[], []]
    for turn in range(2 * ROUNDS + 1):
        for index in (0, 1) if turn % 2 else (1, 0):
            found[index].append(int(programs[index].say(line)))
    for program in programs:
        program.end()
    ratios = [backed / native for backed, native in zip(*found, strict=True)]
    return statistics.median(found[0]), statistics.median(found[1]), statistics.median(ratios[1:])


def kernels(bench: Bench) -> list[Figure]:
    """Compare kernels on backed memory, launches and allocations with native ones."""
    few = max(1, COUNT // 4)
    backed, native, ratio = in_turns(bench, "passes 20", f"alloc {few} {BLOCK}")
    bandwidth = 2 * 20 * few * BLOCK / native
    figures = [
        at_least("kernels on backed memory, of native", 1 / ratio, "", 0.99),
        Figure("read and written natively", bandwidth, "GB/s"),
    ]
    backed, native, ratio = in_turns(bench, "launches 4000")
    figures += [
        at_most("a launch through the gate, of native", ratio, "", 1.005),
        Figure("a native launch", native / 100, "ns"),
    ]
    figures.append(Figure("a launch through the gate", backed / 100, "ns"))
    for size in PAIRS:
        backed, native, ratio = in_turns(bench, f"pairs 500 {size * MIB}")
        figures.append(at_most(f"allocate and free {size} MiB, of native", ratio, "", 1.02))
        figures.append(Figure(f"allocate and free {size} MiB, native", native / 1e3, "us"))
    return figures


def neighbour(bench: Bench) -> list[Figure]:
    """Compare a running program alone with the same while another's memory goes out and in."""
    runner, mover = bench.native(), bench.holder("a", 41)
    runner.say(f"alloc {max(1, COUNT // 4)} {BLOCK}")
    alone, beside = [], []
    for _ in range(ROUNDS):
        alone.append(int(runner.say("passes 100")))
        stop = threading.Event()

        def go(ended: threading.Event = stop) -> None:
            while not ended.is_set():
                mover.suspend(HELD * GIB)
                mover.resume()

        thread = threading.Thread(target=go)
        thread.start()
        beside.append(int(runner.say("passes 100")))
        stop.set()
        thread.join()
    wrong = int(mover.say("check 41"))
    runner.end()
    mover.end()
    ratios = [one / two for one, two in zip(alone, beside, strict=True)]
    return [
        at_least("a running neighbour while others move, of alone", statistics.median(ratios), "", 0.97),
        at_most("words that are wrong after it", wrong, "", 0),
    ]


def move_everything(member: Member) -> int:
    """Suspend and resume all that can move; return how many bytes that was."""
    size = member.suspend_all()
    member.resume()
    return size


def frameworks(bench: Bench) -> list[Figure]:
    """Move all that each framework holds, and compare what it computes."""
    figures = []
    for name in FRAMEWORKS:
        command = ("python3", ROOT / "tests/gpu/programs/moving.py", name)
        member = bench.conductor.start("a", *command, cwd=ROOT / "tests/gpu/programs")
        try:
            ready = json.loads(member.answer())
            moved = [move_everything(member) for _ in range(2)]
            member.process.send_signal(signal.SIGUSR1)
            again = json.loads(member.answer())
            found = "equal" if again["equal"] else "DIFFERENT"
        except (AssertionError, ValueError) as error:
            ready, moved, found = {}, [0], f"FAILED: {error}"
        print(
            f"  {name}: {found}, moved {[size >> 20 for size in moved]} MiB {ready.get('digest', '')[:8]}", flush=True
        )
        figures.append(at_least(f"{name}: moved, and computes the same", float(found == "equal"), "", 1))
        figures.append(Figure(f"{name}: of 4 GiB and more that it holds, moved", moved[0] / MIB, "MiB"))
        member.process.kill()
        member.process.wait()
    return figures


PARTS = {
    "moves": moves, "exchange": exchange, "served": served, "kernels": kernels, "neighbour": neighbour,
    "frameworks": frameworks,
}  # fmt: skip


@contextmanager
def started() -> Iterator[Bench]:
    """Compile the program, start the porter, and wait until its pool is pinned."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        program = folder / "residency"
        source = SOURCES / "residency.c"
        subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-o", program, source, "-ldl"], check=True)
        uuid, total, driver = card(folder)
        conductor = Conductor(folder, uuid, total, driver, POOL)
        bench = Bench(conductor, program)
        first = conductor.start("a", *bench.command)
        print(f"{conductor.wait_for_pool():.1f} s until {POOL >> 30} GiB are pinned", flush=True)
        first.answer()
        first.end()
        yield bench
        conductor.close()


def card(folder: Path) -> tuple[str, int, Path | None]:
    """Return the device's UUID and size, and the folder of the simulated driver, if it is one."""
    if DEVICES == "nvml":
        query = ["nvidia-smi", "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits"]
        uuid, size = subprocess.check_output(query, text=True).splitlines()[0].split(", ")
        return uuid, int(size) * MIB, None
    from gpu_host import GpuHost  # noqa: PLC0415 - of the tests, and only for a rehearsal

    driver = folder / "driver"
    driver.mkdir()
    host = GpuHost(driver, [140 * GIB], copy_mib_per_s=2000)
    return host.uuids[0], 140 * GIB, driver


def main() -> None:
    """Measure, and print medians. Arguments: parts of it, default all."""
    figures: list[Figure] = []
    with started() as bench:
        for name in sys.argv[1:] or PARTS:
            begin = time.monotonic()
            try:
                figures += PARTS[name](bench)
            except (AssertionError, OSError, ValueError, queue.Empty) as error:
                print(f"  {name} FAILED: {error!r}", flush=True)
                figures.append(at_least(f"{name}: it worked", 0, "", 1))
            print(f"  {name}: {time.monotonic() - begin:.1f} s", flush=True)
    report("residency", figures)


if __name__ == "__main__":
    main()
