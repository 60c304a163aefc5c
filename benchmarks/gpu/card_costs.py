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
    """Return half of the distance between the quartiles, in percent of the median: the noise of one side."""
    low, middle, high = statistics.quantiles(values, n=4)
    return 100 * (high - low) / 2 / middle


def ratio(measured: dict[str, list[tuple[float, float]]], *names: str) -> float:
    """Return the median over the turns of with the hook / without it, the named times added up."""
    turns = zip(*(measured[name] for name in names), strict=True)
    return statistics.median(sum(pair[1] for pair in turn) / sum(pair[0] for pair in turn) for turn in turns)


def main() -> None:
    """Measure, and print medians."""
    with bench() as running:
        measured = measure(running)
    figures: list[Figure] = []
    for name in ("allocate", "free", "allocate many", "free many", "launch", "memory", "cuInit", "context"):
        for side, words in ((0, "without"), (1, "with")):
            values = [pair[side] for pair in measured[name]]
            figures.append(Figure(f"{name}, {words}", statistics.median(values) / 1e3, "us"))
            figures.append(Figure(f"{name}, {words}: spread", spread(values), "%"))
    added = [(hooked - without) / 1e6 for without, hooked in measured["cuInit"]]
    refusing = statistics.median(hooked for _, hooked in measured["refusing"])
    figures += [
        at_most("allocate + free 2 MiB, with / without", ratio(measured, "allocate", "free"), "", 1.01),
        Figure("the same with up to 4,000 live", ratio(measured, "allocate many", "free many"), ""),
        Figure("launch, with / without", ratio(measured, "launch"), ""),
        at_most("cuInit, added", statistics.median(added), "ms", 5),
        Figure("an allocation over the limit is refused within", refusing / 1e3, "us"),
    ]
    report("card_costs", figures)


if __name__ == "__main__":
    main()
