"""What turns on a card save and cost: two jobs that together need more than it has, through the real scheduler.

Half busy, always busy, both fitting, and a suspension asked for by an administrator; each ratio within one run.
CONVGPU_TURN_SECONDS=20 is how long a job works, and then rests, at a time; CONVGPU_TURN_ROUNDS=6 how often;
CONVGPU_TURN_RESERVE=0 is how much of the card is not used, by default what half of the host's memory does not hold.
Without a card CONVGPU_DEVICES=simulated:4GiB rehearses.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from _card import DEVICES, GIB, ROOT, at_most, report
from _report import Figure
from daemon import Daemon, running_daemon, wait_until
from line_program import LineProgram

SOURCES = ROOT / "benchmarks/gpu/src"
SECONDS = float(os.environ.get("CONVGPU_TURN_SECONDS", "20"))
ROUNDS = int(os.environ.get("CONVGPU_TURN_ROUNDS", "6"))
FIXED = GIB if DEVICES == "nvml" else 640 << 20  # of each limit: contexts and small allocations
BLOCK = 256 << 20
MOVES = 5
LONG = 3600.0


def reserve() -> str:
    """Return how much of the card is not used: half of the host's memory has to hold the rest."""
    if DEVICES != "nvml":
        return "0"
    query = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    card = max(int(line) << 20 for line in subprocess.check_output(query, text=True).split())
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return str(max(0, card - host // 2 + GIB))


@dataclass
class Card:
    """A scheduler that promises its card twice, and the program. `capacity`: bytes to hand out."""

    daemon: Daemon
    program: Path
    capacity: int
    made: list["Job"] = field(default_factory=list)

    def job(self, held: int, **options: str) -> "Job":
        """Start a program in a container of its own that holds and has filled so many bytes."""
        name = f"job{len(self.made)}"
        limit = min(held + FIXED, self.capacity)
        folder = self.daemon.container(name, memory=str(limit), **options)
        self.made.append(Job(self, name, folder, held // BLOCK))
        return self.made[-1]

    def wait_for_pool(self) -> None:
        """Wait until the host's memory is pinned, which begins with the first process: moves are slower meanwhile."""
        begin = time.perf_counter()

        def is_pinned() -> bool:
            [device] = self.daemon.admin.request("devices")["devices"]  # type: ignore[misc] # a host with one card
            return bool(device["promised"] >= 2 * device["capacity"])

        wait_until(is_pinned, "the host's memory is pinned", LONG)
        print(f"  {time.perf_counter() - begin:.1f} s more until the host's memory is pinned", flush=True)


class Job(LineProgram):
    """A hooked program, driven line by line."""

    def __init__(self, card: Card, name: str, folder: Path, blocks: int) -> None:
        self.card, self.name = card, name
        environment = os.environ | {"LD_PRELOAD": str(folder / "libconvgpu.so")}
        if DEVICES != "nvml":
            environment["LD_LIBRARY_PATH"] = str(folder / "driver")
        command = [str(card.program), str(SOURCES / "residency_kernels.ptx")]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
        self.answer()
        self.say(f"alloc {blocks} {BLOCK}")
        self.say("fill 7")

    def end(self) -> int:
        """End the program; return how many words of its memory were wrong."""
        wrong = int(self.say("check 7"))
        self.process.communicate("end\n", timeout=60)
        return wrong


def together(jobs: list[Job], work: str) -> float:
    """Return the seconds until all jobs have done their work."""
    begin = time.perf_counter()
    for job in jobs:
        job.ask(work)
    for job in jobs:
        job.answer()
    return time.perf_counter() - begin


def one_after_the_other(card: Card, held: int, work: str) -> float:
    """Return the seconds of two jobs of which the second begins when the first has ended."""
    seconds = 0.0
    for _ in range(2):
        job = card.job(held)
        seconds += together([job], work)
        job.end()
    return seconds


def compare(card: Card, what: str, work: str, target: float) -> list[Figure]:
    """Compare two jobs that together need 1.9 times the card with the same, one after the other."""
    held = min(int(0.95 * card.capacity), card.capacity - 2 * FIXED)
    serial = one_after_the_other(card, held, work)
    jobs = [card.job(held, suspend="auto", fixed=str(FIXED)) for _ in range(2)]
    both = together(jobs, work)
    wrong = sum(job.end() for job in jobs)
    share = 2 * held / card.capacity
    return [
        at_most(
            f"two jobs, {what}, {share:.2f} times the card: makespan, of one after the other", both / serial, "", target
        ),
        at_most(f"words that are wrong after it ({what})", wrong, "", 0),
    ]


def half_busy(card: Card) -> list[Figure]:
    """Jobs that work and rest in turns."""
    part = int(SECONDS * 1e9)
    return compare(card, "each half busy", f"rounds {ROUNDS} {part} {part}", 0.74)


def always_busy(card: Card) -> list[Figure]:
    """Jobs that never rest."""
    return compare(card, "always busy", f"rounds {int(ROUNDS * SECONDS)} {10**9} 0", 1.05)


def all_fits(card: Card) -> list[Figure]:
    """Jobs that fit beside each other: nothing may be stopped."""
    held, work = int(0.4 * card.capacity) - FIXED // 2, f"rounds {ROUNDS} {int(1e9)} 0"
    rigid = [card.job(held) for _ in range(2)]
    without = together(rigid, work)
    wrong = sum(job.end() for job in rigid)
    jobs = [card.job(held, suspend="auto", fixed=str(FIXED)) for _ in range(2)]
    with_it = together(jobs, work)
    wrong += sum(job.end() for job in jobs)
    stops = [event for event in card.daemon.events("suspended") if event["container"] in {job.name for job in jobs}]
    return [
        at_most("two jobs that fit, with suspend=auto, of without", with_it / without, "", 1.01),
        at_most("stops of them", len(stops), "", 0),
        at_most("words that are wrong after it (all fits)", wrong, "", 0),
    ]


def suspension(card: Card) -> list[Figure]:
    """Time suspend and resume, asked of the scheduler until it says that all has moved."""
    held = min(40 * GIB, int(0.5 * card.capacity))
    job, out, back = card.job(held, suspend="auto", fixed=str(FIXED)), [], []
    wanted = held // BLOCK * BLOCK
    card.wait_for_pool()
    for _ in range(MOVES):
        for op, seconds, out_of in (("suspend", out, wanted), ("resume", back, 0)):
            begin = time.perf_counter()
            card.daemon.admin.request(op, name=job.name)
            wait_until(lambda size=out_of: card.daemon.state(job.name)["devices"][0]["out"] == size, op, LONG)
            seconds.append(time.perf_counter() - begin)
    wanted_seconds = 0.95 * wanted / (40 * GIB)
    return [
        at_most(f"suspend {wanted / GIB:.1f} GiB through the scheduler", statistics.median(out), "s", wanted_seconds),
        at_most(f"resume {wanted / GIB:.1f} GiB through the scheduler", statistics.median(back), "s", wanted_seconds),
        at_most("words that are wrong after it (suspension)", job.end(), "", 0),
    ]


PARTS: dict[str, Callable[[Card], list[Figure]]] = {
    "suspension": suspension,
    "all_fits": all_fits,
    "half_busy": half_busy,
    "always_busy": always_busy,
}


@contextmanager
def started() -> Iterator[Card]:
    """Compile the program, and start a scheduler that promises the card twice."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        program, source = folder / "residency", SOURCES / "residency.c"
        subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-o", program, source, "-ldl"], check=True)
        kept = os.environ.get("CONVGPU_TURN_RESERVE") or reserve()
        with running_daemon(folder / "d", DEVICES, "--oversubscribe=2", f"--reserve={kept}") as daemon:
            [device] = daemon.admin.request("devices")["devices"]  # type: ignore[misc] # a host with one card
            card = Card(daemon, program, int(device["capacity"]) - FIXED)
            yield card
            for job in card.made:
                job.process.kill()


def main() -> None:
    """Measure, and print medians. Arguments: parts of it, default all."""
    figures: list[Figure] = []
    with started() as card:
        for name in sys.argv[1:] or PARTS:
            begin = time.monotonic()
            figures += PARTS[name](card)
            print(f"  {name}: {time.monotonic() - begin:.1f} s", flush=True)
    report("turns", figures)


if __name__ == "__main__":
    main()
