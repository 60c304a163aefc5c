"""What the hook costs where memory is given a descriptor (decisions 205 to 207), against the same without the hook."""

import json
import statistics
import subprocess
from pathlib import Path

from _card import Bench, bench, report
from _report import Figure

ROUNDS = 9
TURNS = 2000
NAMES = ("create", "release", "exported create", "export", "exported release")


def compiled(folder: Path) -> Path:
    """Compile the program."""
    program = folder / "exports"
    source = Path(__file__).parent / "src/exports.c"
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-o", program, source, "-ldl"], check=True)
    return program


def measure(running: Bench) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Return a pair of each round: nanoseconds by call, without and with the hook."""
    container = running.daemon.container("exports", memory="20g")
    command = [str(compiled(running.folder)), str(TURNS)]
    pairs = []
    for number in range(ROUNDS):
        order = (None, container) if number % 2 else (container, None)
        said = {place: json.loads(running.run_command(place, command)) for place in order}
        pairs.append((said[None], said[container]))
    return pairs


def main() -> None:
    """Measure, and print medians."""
    with bench() as running:
        pairs = measure(running)
    figures = []
    for name in NAMES:
        without, hooked = (statistics.median(pair[side][name] for pair in pairs) for side in (0, 1))
        figures.append(Figure(f"{name}, without", without / 1e3, "us"))
        figures.append(Figure(f"{name}, with", hooked / 1e3, "us"))
    for title, names in (("create + release", NAMES[:2]), ("create + export + release", NAMES[2:])):
        ratios = [sum(pair[1][name] for name in names) / sum(pair[0][name] for name in names) for pair in pairs]
        figures.append(Figure(f"{title}, with / without", statistics.median(ratios), ""))
    report("card_exports", figures)


if __name__ == "__main__":
    main()
