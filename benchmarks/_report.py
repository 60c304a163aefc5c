"""What the benchmarks share: figures, a table for people, JSON for programs.

Every figure is a ratio or a difference of two things measured in turns in one run, so that a noisy machine
disturbs both alike; medians are quoted.
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "build/bench"


@dataclass(frozen=True)
class Figure:
    """One result. `value` in `unit`; `target` in words, `reached` None where there is none."""

    what: str
    value: float
    unit: str
    target: str = ""
    reached: bool | None = None


def at_most(what: str, value: float, unit: str, target: float) -> Figure:
    """A figure that must not be above its target."""
    return Figure(what, value, unit, f"<= {target:g} {unit}".strip(), value <= target)


def at_least(what: str, value: float, unit: str, target: float) -> Figure:
    """A figure that must not be below its target."""
    return Figure(what, value, unit, f">= {target:g} {unit}".strip(), value >= target)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that `percent` percent of the values do not exceed."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def report(name: str, figures: Sequence[Figure]) -> None:
    """Print the table and write `build/bench/NAME.json`."""
    table = Table(title=name, title_justify="left", show_edge=False)
    for column in ("what", "measured", "target", ""):
        table.add_column(column, justify="right" if column == "measured" else "left")
    for one in figures:
        verdict = "" if one.reached is None else "reached" if one.reached else "missed"
        table.add_row(one.what, f"{one.value:.4g} {one.unit}".strip(), one.target, verdict)
    Console(width=110).print(table)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps([asdict(one) for one in figures], indent=1))
