"""`convgpu simulate`: what a cluster would have done with the jobs of a trace."""

import csv
import gzip
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import Progress, TaskID

from convgpu.cli.terminal.errors import Refused
from convgpu.cli.terminal.options import as_json as json_option
from convgpu.cli.terminal.output import Column, echo_data, print_table
from convgpu.simulate.cluster.engine import Cluster, Scheme
from convgpu.simulate.cluster.jobs import Request
from convgpu.simulate.cluster.metrics import Metrics, measure
from convgpu.simulate.cluster.report import Plot, Points, completions, page
from convgpu.simulate.cluster.schemes import ANY_NUMBER, schemes
from convgpu.simulate.cluster.traces import reader_for

_COLUMNS: Final = (
    Column("POLICY"),
    Column("MEAN JCT s", right=True),
    Column("P95 s", right=True, optional=True),
    Column("P99 s", right=True),
    Column("WAIT s", right=True),
    Column("MAKESPAN s", right=True),
    Column("OCCUPIED", right=True),
    Column("PREEMPTIONS", right=True, optional=True),
)
_SHARES: Final = (0.875, 0.75, 0.625, 0.5)  # of the cards, for the plot of the cards needed
_MANY: Final = 8  # nodes from which on some are left out, in place of cards
_GZIP_MAGIC: Final = b"\x1f\x8b"


def parse_nodes(text: str) -> list[int]:
    """Read `8x4`: eight nodes of four cards; several kinds are joined by `+`.

    Raises:
        ValueError: it is no such text, or there is no card.
    """
    nodes: list[int] = []
    for part in text.split("+"):
        count, found, cards = part.partition("x")
        if not (found and count.isdecimal() and cards.isdecimal() and int(count) and int(cards)):
            raise ValueError(f"{part!r} is not NODESxCARDS, for example 8x4: eight nodes of four cards")
        nodes += [int(cards)] * int(count)
    return nodes


def read_trace(path: Path) -> list[Request]:
    """Read a trace, gzipped or not.

    Raises:
        Refused: it cannot be read, or a row of it makes no sense; the message names the line.
    """
    try:
        packed = path.read_bytes()
        text = (gzip.decompress(packed) if packed.startswith(_GZIP_MAGIC) else packed).decode()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise Refused(f"{path}: {error}") from error
    rows = csv.DictReader(text.splitlines())
    try:
        requests = list(reader_for(rows.fieldnames or ())(rows))
    except (KeyError, ValueError, TypeError) as error:
        raise Refused(f"{path}, line {rows.line_num}: {error}") from error
    if not requests:
        raise Refused(f"{path} has no job that can be played")
    return requests


@contextmanager
def _progress(jobs: int) -> Iterator[tuple[Progress, TaskID]]:
    with Progress(console=Console(stderr=True), transient=True) as progress:
        yield progress, progress.add_task("", total=jobs)


@dataclass(slots=True)
class _Results:
    """What the runs amounted to by policy, and lines for the report's plots."""

    metrics: dict[str, Metrics] = field(default_factory=dict)
    completions: dict[str, Points] = field(default_factory=dict)
    usage: dict[str, Points] = field(default_factory=dict)
    needed: dict[str, Points] = field(default_factory=dict)


def _play(
    requests: Sequence[Request], policies: Sequence[str], nodes: list[int], known: Mapping[str, Scheme], *, plots: bool
) -> _Results:
    results = _Results()
    smaller = [shrunk(nodes, share) for share in _SHARES] if plots else []
    with _progress(len(requests) * len(policies) * (1 + len(smaller))) as (progress, task):
        for name in policies:
            progress.update(task, description=name)
            cluster = Cluster(known[name], nodes)
            jobs = cluster.run(requests, lambda ended: progress.advance(task, ended))
            results.metrics[name] = measure(jobs, sum(nodes))
            results.completions[name], results.usage[name] = completions(jobs), cluster.usage.line(sum(nodes))
            points = [(float(sum(nodes)), results.metrics[name].completion)]
            for fewer in smaller:
                points += _mean_on(fewer, known[name], requests)
                progress.advance(task, len(requests))
            results.needed[name] = sorted(points)
    return results


def shrunk(nodes: Sequence[int], share: float) -> list[int]:
    """Return a share of a cluster: of many nodes some, of few all with fewer cards."""
    if len(nodes) >= _MANY:
        return list(nodes[: max(1, math.ceil(len(nodes) * share))])
    return [max(1, math.ceil(cards * share)) for cards in nodes]


def _mean_on(nodes: list[int], scheme: Scheme, requests: Sequence[Request]) -> list[tuple[float, float]]:
    """Return cards and mean completion, in a list of at most one: a job may ask for more cards than there are."""
    try:
        return [(float(sum(nodes)), measure(Cluster(scheme, nodes).run(requests), sum(nodes)).completion)]
    except ValueError:
        return []


def _write_report(path: Path, trace: Path, nodes: str, results: _Results) -> None:
    plots = (
        Plot("Completion times", "seconds", "share of jobs", results.completions, logarithmic=True),
        Plot("Cards needed", "cards", "mean completion, s", results.needed),
        Plot("Memory in use", "hours", "share of all cards", results.usage),
    )
    table = [[column.title for column in _COLUMNS], *(_row(*pair) for pair in results.metrics.items())]
    try:
        path.write_text(page(f"{trace.name} on {nodes} cards", plots, table), encoding="utf-8")
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error
    click.echo(f"plots: {path}", err=True)


def _row(name: str, found: Metrics) -> list[str]:
    times = (found.completion, found.completion_p95, found.completion_p99, found.wait, found.makespan)
    return [name, *(f"{time:,.0f}" for time in times), f"{found.occupied:.0%}", f"{found.preemptions:,}"]


@click.command()
@click.argument("trace", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(list(schemes())),
    help="Policy to play; may be given again. All, if none is given.",
)
@click.option("--nodes", default="8x8", show_default=True, metavar="NxC", help="N nodes of C cards; 4x8+2x4 mixes.")
@click.option("--sharing", type=click.IntRange(1), metavar="N", help="Jobs at most on a shared card; memory decides.")
@click.option("--restart", type=click.FloatRange(0), default=30.0, show_default=True, help="Seconds a restart costs.")
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a page with plots (HTML): completion times, cards needed, use over time; it plays four times "
    "more, on fewer cards.",
)
@json_option
def simulate(
    trace: Path,
    policies: tuple[str, ...],
    nodes: str,
    sharing: int | None,
    restart: float,
    report: Path | None,
    *,
    as_json: bool,
) -> None:
    """Play the jobs of TRACE on a cluster that exists only here.

    TRACE is a CSV file, gzipped or not, with the columns submitted and duration (seconds), and as wanted name, cards,
    memory and use (shares of a card) and kind; or a trace of openb, Philly (Sia) or Muri as published.
    """
    try:
        parsed = parse_nodes(nodes)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--nodes") from error
    requests = read_trace(trace)
    try:
        known = schemes(sharing or ANY_NUMBER, restart)
        results = _play(requests, policies or tuple(known), parsed, known, plots=report is not None)
    except ValueError as error:
        raise Refused(f"{error}; --nodes {nodes} gives the cluster") from error
    if report is not None:
        _write_report(report, trace, nodes, results)
    metrics = results.metrics
    if as_json:
        echo_data({"trace": str(trace), "nodes": parsed, "policies": {name: asdict(m) for name, m in metrics.items()}})
        return
    print_table(_COLUMNS, [_row(name, found) for name, found in metrics.items()])
