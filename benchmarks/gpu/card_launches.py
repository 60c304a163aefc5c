"""What a launch costs on a card with the hook: an empty kernel by the driver's own function and by the hook's.

In turns, and in one process, so that what differs between processes is not in the figures.
"""

import statistics
import subprocess
from pathlib import Path

from _card import ROOT, Bench, at_most, bench, report
from _report import Figure

ROUNDS, TURNS = 400, 5
FUNCTIONS = (1, 200)
LIMIT = 4  # GiB


def measure(running: Bench, count: int) -> tuple[float, float]:
    """Return the nanoseconds of a launch without the hook, and the ratio of with and without it."""
    container = running.daemon.container(f"launches{count}", memory=f"{LIMIT}g")
    program, image = running.folder.parent / "launches", Path(__file__).parent / "src/empty.ptx"
    if running.simulated:
        image = running.folder.parent / "image"
        image.write_text("variables=0 code=0")
    subprocess.run(["cc", "-O2", "-o", program, ROOT / "benchmarks/src/launches.c", "-ldl"], check=True)
    words = [str(program), str(ROUNDS), str(container / "libconvgpu.so"), str(count), str(image)]
    alone, ratios = [], []
    for _turn in range(TURNS):
        pairs = [tuple(map(float, line.split())) for line in running.run_command(None, words).splitlines()]
        alone += [one for one, _other in pairs]
        ratios += [other / one for one, other in pairs]
    return statistics.median(alone), statistics.median(ratios)


def main() -> None:
    """Measure, and print medians."""
    figures: list[Figure] = []
    with bench() as running:
        for count in FUNCTIONS:
            alone, ratio = measure(running, count)
            figures += [
                Figure(f"a launch, {count} functions in turn, without the hook", alone, "ns"),
                at_most(f"a launch, {count} functions in turn, with / without", ratio, "", 1.002),
                Figure(f"a launch, {count} functions in turn, added", alone * (ratio - 1), "ns"),
            ]
    report("card_launches", figures)


if __name__ == "__main__":
    main()
