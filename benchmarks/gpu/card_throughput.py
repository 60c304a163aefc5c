"""What training and decoding lose below a limit: the same program with and without the hook, in turns."""

import json
import statistics

from _card import GIB, ROOT, Bench, at_most, bench, report
from _report import Figure

TURNS = 6
LIMIT = 60  # GiB; the program needs about 20
WORKLOADS = {"ResNet-50 training step": "training", "transformer decoding, a token": "decoding"}


def once(running: Bench, container: object) -> dict[str, float]:
    """Return what one process measured, milliseconds; prove that the limit was on or off as it should."""
    command = ["python3", str(ROOT / "benchmarks/gpu/src/workloads.py")]
    measured = json.loads(running.run_command(container, command))
    limited = measured["total"] == LIMIT * GIB
    if limited != (container is not None):
        raise SystemExit(f"the limit is not what it should be: {measured}")
    return measured


def main() -> None:
    """Measure, and print medians."""
    pairs: list[tuple[dict[str, float], dict[str, float]]] = []
    with bench() as running:
        if running.simulated:
            print("A rehearsal has no PyTorch: nothing is measured")
            return
        container = running.daemon.container("work", memory=f"{LIMIT}g")
        for turn in range(TURNS):
            order = (None, container) if turn % 2 else (container, None)
            found = {place: once(running, place) for place in order}
            pairs.append((found[None], found[container]))
            print(pairs[-1], flush=True)
    figures: list[Figure] = []
    for words, name in WORKLOADS.items():
        for side, place in ((0, "without"), (1, "with")):
            figures.append(Figure(f"{words}, {place}", statistics.median(pair[side][name] for pair in pairs), "ms"))
        ratios = [pair[1][name] / pair[0][name] for pair in pairs]
        figures.append(at_most(f"{words}, with / without", statistics.median(ratios), "", 1.01))
        figures.append(Figure(f"{words}: range of the ratio in {TURNS} turns", max(ratios) - min(ratios), ""))
    report("card_throughput", figures)


if __name__ == "__main__":
    main()
