"""What a launch costs on a card with the hook: an empty kernel by the driver's own function and by the hook's.

In turns of 400 launches, and in one process, so that what differs between processes is not in the figures; in several
processes, because where code and data lie differs too. The driver's function is measured twice: what these two differ
by, which are the same, is what the measure cannot tell; the hook's is compared with the mean of both. Other hooks to
compare: CONVGPU_HOOKS=FILE:FILE.
"""

import os
import shutil
import statistics
import subprocess
from itertools import chain
from pathlib import Path

from _card import ROOT, Bench, at_most, bench, report
from _report import Figure

ROUNDS, PROCESSES = 1_500, 12
FUNCTIONS = (1, 200)
LIMIT = 4  # GiB


def prepare(running: Bench) -> list[str]:
    """Compile the program; return the words of its command, which lacks the number of functions and the hook."""
    program, image = running.folder.parent / "launches", Path(__file__).parent / "src/empty.ptx"
    if running.simulated:
        image = running.folder.parent / "image"
        image.write_text("variables=0 code=0")
    subprocess.run(["cc", "-O2", "-o", program, ROOT / "benchmarks/src/launches.c", "-ldl"], check=True)
    return [str(program), str(ROUNDS), str(image)]


def find_hooks(running: Bench, count: int) -> dict[str, Path]:
    """Return the hooks to measure by name, each in a container's folder, where it finds its socket."""
    hooks = {}
    for name in ["the hook", *filter(None, os.environ.get("CONVGPU_HOOKS", "").split(":"))]:
        hook = running.daemon.container(f"launches{count}-{len(hooks)}", memory=f"{LIMIT}g") / "libconvgpu.so"
        if hooks:
            hook.unlink()  # it is a link to the installed one
            shutil.copy(name, hook)
        hooks[name] = hook
    return hooks


def added(processes: list[list[list[float]]], way: int) -> tuple[float, list[float]]:
    """Return the median of what a way adds to the driver's before it, of all rounds, and of each process."""
    differences = [[took[way] - statistics.mean(took[:way]) for took in rounds] for rounds in processes]
    return statistics.median(chain.from_iterable(differences)), sorted(map(statistics.median, differences))


def compare(name: str, processes: list[list[list[float]]]) -> list[Figure]:
    """Return what a launch by a hook adds, in nanoseconds and as a ratio, and what the measure cannot tell."""
    alone = statistics.median(took[0] for rounds in processes for took in rounds)
    (again, agains), (more, mores) = added(processes, 1), added(processes, 2)
    return [
        Figure(f"{name}: a launch by the driver", alone, "ns"),
        Figure(f"{name}: by the same again ({agains[0]:.1f} to {agains[-1]:.1f} in a process), added", again, "ns"),
        at_most(f"{name}: by the hook ({mores[0]:.1f} to {mores[-1]:.1f} in a process), added", more, "ns", 5),
        at_most(f"{name}: with / without", 1 + more / alone, "", 1.002),
    ]


def main() -> None:
    """Measure, and print medians."""
    figures: list[Figure] = []
    with bench() as running:
        program, rounds, image = prepare(running)
        for count in FUNCTIONS:
            hooks = find_hooks(running, count)
            seen: dict[str, list[list[list[float]]]] = {name: [] for name in hooks}
            for name in list(hooks) * PROCESSES:
                said = running.run_command(None, [program, rounds, str(count), image, str(hooks[name])])
                seen[name].append([[float(word) for word in line.split()] for line in said.splitlines()])
            for name, processes in seen.items():
                figures += compare(f"{count} functions, {name}", processes)
    report("card_launches", figures)


if __name__ == "__main__":
    main()
