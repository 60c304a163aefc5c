"""A page with plots of simulated runs: HTML with SVG in it, which any browser shows without anything else. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from convgpu.simulate.cluster.jobs import Job

Points = Sequence[tuple[float, float]]

# Told apart also by those who see no red or no green (Okabe and Ito).
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_WIDTH, _HEIGHT, _LEFT, _BELOW = 720, 320, 70, 45
_MOST: Final = 400  # points of a line
_DASHES: Final = ("", "6 3", "2 3", "8 3 2 3", "1 2", "12 4")


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines by name over one axis.

    Attributes:
        x, y: what the axes say.
        logarithmic: whether the axis of x is.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Points]
    logarithmic: bool = False


@dataclass(slots=True)
class Usage:
    """How many cards' memory was taken, from one change to the next."""

    changes: list[tuple[float, float]] = field(default_factory=list)

    def add(self, now: float, cards: float) -> None:
        """Take cards, or give them back with a negative number."""
        self.changes.append((now, cards))

    def line(self, cards: int) -> list[tuple[float, float]]:
        """Return hours and the share of all cards, as means over equal parts of the time."""
        if not self.changes:
            return []
        begin, end = self.changes[0][0], self.changes[-1][0]
        part = max((end - begin) / _MOST, 1e-9)
        sums = [0.0] * _MOST
        taken, since = 0.0, begin
        for at, change in self.changes:
            _spread(sums, (since - begin) / part, (at - begin) / part, taken)
            taken, since = taken + change, at
        return [((place + 0.5) * part / 3600, total / cards) for place, total in enumerate(sums)]


def _spread(sums: list[float], first: float, last: float, value: float) -> None:
    """Add a value that held from `first` to `last`, in parts, to the means of these parts."""
    for place in range(int(first), min(int(last), len(sums) - 1) + 1):
        sums[place] += value * (min(last, place + 1) - max(first, place))


def completions(jobs: Sequence[Job]) -> list[tuple[float, float]]:
    """Return the distribution of completion times: seconds, and the share of jobs that needed at most so many."""
    ordered = sorted(max(job.completion, 1.0) for job in jobs)
    step = max(len(ordered) // _MOST, 1)
    places = [*range(0, len(ordered), step), len(ordered) - 1]
    return [(ordered[place], (place + 1) / len(ordered)) for place in places]


def page(title: str, plots: Sequence[Plot], table: Sequence[Sequence[str]]) -> str:
    """Return the page: a table whose first row is its head, and the plots."""
    head, *rows = table
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        "<style>body{font:14px sans-serif;max-width:760px;margin:2em auto}td,th{padding:2px 8px;text-align:right}"
        f"td:first-child,th:first-child{{text-align:left}}</style><h1>{escape(title)}</h1>"
        f"<table><tr>{cells}</tr>{body}</table>" + "".join(map(_draw, plots)) + "</html>\n"
    )


def _draw(plot: Plot) -> str:
    places = [point for line in plot.lines.values() for point in line]
    if not places:
        return ""
    xs = [_scaled(x, plot.logarithmic) for x, _ in places]
    low, high, top = min(xs), max(xs), max(1e-9, *(y for _, y in places))
    span = (high - low) or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        right, up = _WIDTH - _LEFT - 10, _HEIGHT - _BELOW - 10
        return _LEFT + (_scaled(x, plot.logarithmic) - low) / span * right, _HEIGHT - _BELOW - y / top * up

    drawn = [_line(number, [at(*point) for point in line]) for number, line in enumerate(plot.lines.values())]
    ticks = [_unscaled(low + span * part / 4, plot.logarithmic) for part in range(5)]
    marks = [_text(at(x, 0)[0], _HEIGHT - _BELOW + 16, f"{x:,.3g}", "middle") for x in ticks]
    marks += [
        _text(_LEFT - 6, at(ticks[0], top * part / 4)[1] + 4, f"{top * part / 4:,.3g}", "end") for part in range(5)
    ]
    marks += [_text(_WIDTH / 2, _HEIGHT - 8, plot.x, "middle"), _text(4, 14, plot.y, "start")]
    frame = f'<path d="M{_LEFT} 10V{_HEIGHT - _BELOW}H{_WIDTH - 10}" fill="none" stroke="#888"/>'
    legend = " ".join(
        f'<span style="color:{_COLOURS[number % 6]}">&#9644; {escape(name)}</span>'
        for number, name in enumerate(plot.lines)
    )
    return (
        f'<h2>{escape(plot.title)}</h2><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(plot.title)}">{frame}{"".join(drawn + marks)}</svg><p>{legend}</p>'
    )


def _scaled(x: float, logarithmic: bool) -> float:
    return math.log10(max(x, 1e-9)) if logarithmic else x


def _unscaled(x: float, logarithmic: bool) -> float:
    return 10**x if logarithmic else x


def _line(number: int, points: Sequence[tuple[float, float]]) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    colour, dash = _COLOURS[number % 6], _DASHES[number % 6]
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dash}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12">{escape(text)}</text>'
