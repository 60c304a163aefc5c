"""`convgpu simulate`: what a cluster would have done with the jobs of a trace."""

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import Progress, TaskID

from convgpu.cli.terminal.errors import Refused
from convgpu.cli.terminal.options import as_json as json_option
from convgpu.cli.terminal.output import Column, echo_data, print_table
from convgpu.simulate.cluster.engine import Cluster
from convgpu.simulate.cluster.jobs import Request
from convgpu.simulate.cluster.metrics import Metrics, measure
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


def _play(
    requests: Sequence[Request], policies: Sequence[str], nodes: list[int], sharing: int, restart: float
) -> dict[str, Metrics]:
    known = schemes(sharing, restart)
    results: dict[str, Metrics] = {}
    with _progress(len(requests) * len(policies)) as (progress, task):
        for name in policies:
            progress.update(task, description=name)
            cluster = Cluster(known[name], nodes)
            results[name] = measure(cluster.run(requests, lambda ended: progress.advance(task, ended)), sum(nodes))
    return results


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
@json_option
def simulate(
    trace: Path, policies: tuple[str, ...], nodes: str, sharing: int | None, restart: float, *, as_json: bool
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
        results = _play(requests, policies or tuple(schemes()), parsed, sharing or ANY_NUMBER, restart)
    except ValueError as error:
        raise Refused(f"{error}; --nodes {nodes} gives the cluster") from error
    if as_json:
        echo_data({"trace": str(trace), "nodes": parsed, "policies": {name: asdict(m) for name, m in results.items()}})
        return
    print_table(_COLUMNS, [_row(name, found) for name, found in results.items()])
