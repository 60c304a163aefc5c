"""What the hook costs on a card: each call against the same program without the hook, in turns."""

import json
import statistics

from _card import GIB, Bench, at_most, bench, report
from _report import Figure

TURNS = 15
LIMIT = 20  # GiB
OUT_OF_MEMORY = 2


def prove_that_the_limit_is_on(without: dict[str, float], hooked: dict[str, float]) -> None:
    """A limiter that was not on is the classic wrong benchmark."""
    if (without["refusal"], hooked["refusal"]) != (0, OUT_OF_MEMORY):
        raise SystemExit(f"the limit is not on: without hook {without}, with hook {hooked}")


def measure(running: Bench) -> dict[str, list[tuple[float, float]]]:
    """Return, by what was measured, a pair of each turn: without and with the hook."""
    container = running.daemon.container("costs", memory=f"{LIMIT}g")
    measured: dict[str, list[tuple[float, float]]] = {}
    for turn in range(TURNS):
        order = (None, container) if turn % 2 else (container, None)
        pair = {place: json.loads(running.run(place, "costs", (LIMIT + 1) * GIB)) for place in order}
        prove_that_the_limit_is_on(pair[None], pair[container])
        for name in pair[None]:
            measured.setdefault(name, []).append((pair[None][name], pair[container][name]))
    return measured


def spread(values: list[float]) -> float:
    """Return half of the distance between the quartiles over the median: the noise of one side."""
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / 2 / middle


def main() -> None:
    """Measure, and print medians."""
    with bench() as running:
        measured = measure(running)
    figures: list[Figure] = []
    for name in ("allocate", "free", "allocate many", "free many", "launch", "memory", "cuInit", "context"):
        without, hooked = ([pair[side] for pair in measured[name]] for side in (0, 1))
        figures.append(Figure(f"{name}: without", statistics.median(without) / 1e3, "us"))
        figures.append(Figure(f"{name}: with", statistics.median(hooked) / 1e3, "us"))
        figures.append(Figure(f"{name}: noise without, with", spread(without), f"and {spread(hooked):.4f}"))
    pairs = {name: [hooked / without for without, hooked in measured[name]] for name in ("allocate", "free", "launch")}
    both = [
        (one[1] + other[1]) / (one[0] + other[0])
        for one, other in zip(measured["allocate"], measured["free"], strict=True)
    ]
    added = [(hooked - without) / 1e6 for without, hooked in measured["cuInit"]]
    figures.append(at_most("allocate + free 2 MiB, with / without", statistics.median(both), "", 1.01))
    figures.append(Figure("launch, with / without", statistics.median(pairs["launch"]), ""))
    figures.append(at_most("cuInit, added", statistics.median(added), "ms", 5))
    figures.append(Figure("refusal, with", statistics.median(pair[1] for pair in measured["refusing"]) / 1e3, "us"))
    report("card_costs", figures)


if __name__ == "__main__":
    main()
