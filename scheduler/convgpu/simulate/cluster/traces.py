"""Traces of real clusters as requests; rows come in as dictionaries. Sources and licences: docs/simulation.md."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime  # noqa: TID251  only reads text, never a clock
from types import MappingProxyType
from typing import Final

from convgpu.simulate.cluster.jobs import Request

Row = Mapping[str, str]

OPENB_BEGIN: Final = 110 * 86400  # seconds; 99.8 % of openb's arrivals lie behind it
DAY_FORMAT: Final = "%Y-%m-%d %H:%M:%S"


def read_openb(rows: Iterable[Row]) -> Iterator[Request]:
    """Yield the pods of Alibaba's openb trace that share one GPU. Their share of it counts as memory and as use."""
    for row in rows:
        share = int(row["gpu_milli"] or 0) / 1000
        created = float(row["creation_time"])
        if row["num_gpu"] != "1" or share >= 1 or not row["scheduled_time"] or created < OPENB_BEGIN:
            continue
        duration = float(row["deletion_time"]) - float(row["scheduled_time"])
        yield Request(row["name"], created, duration, 1, share, share)


def read_philly(rows: Iterable[Row]) -> Iterator[Request]:
    """Yield the jobs of Microsoft's Philly trace (Sia's artifact); the trace says nothing of memory."""
    times = [(datetime.strptime(row["timestamp"], DAY_FORMAT), row) for row in rows]  # noqa: DTZ007  no zone is known
    begin = min((at for at, _ in times), default=None)
    for number, (at, row) in enumerate(sorted(times, key=lambda pair: pair[0])):
        if begin is not None:
            submitted = (at - begin).total_seconds()
            yield Request(str(number), submitted, float(row["duration"]), int(row["num_gpus"]), kind=row["cluster"])


def read_muri(rows: Iterable[Row]) -> Iterator[Request]:
    """Yield the jobs of a trace of Muri's artifact (SIGCOMM'22); times there are milliseconds."""
    for row in rows:
        duration = int(row["iterations"]) * int(row["iteration_time"]) / 1000
        submitted = int(row["submit_time"]) / 1000
        yield Request(row["job_id"], submitted, duration, int(row["num_gpu"]), kind=row["model_name"])


def read_plain(rows: Iterable[Row]) -> Iterator[Request]:
    """Yield the jobs of a plain trace: columns submitted, duration, and as wanted name, cards, memory, use, kind."""
    for number, row in enumerate(rows):
        yield Request(
            name=row.get("name") or str(number),
            submitted=float(row["submitted"]),
            duration=float(row["duration"]),
            cards=int(row.get("cards") or 1),
            memory=float(row.get("memory") or 1),
            utilisation=float(row.get("use") or row.get("memory") or 1),
            kind=row.get("kind") or "",
        )


Reader = Callable[[Iterable[Row]], Iterator[Request]]

# By the columns that tell a format from the others.
READERS: Final[Mapping[str, Reader]] = MappingProxyType(
    {"gpu_milli": read_openb, "num_gpus": read_philly, "iteration_time": read_muri, "submitted": read_plain}
)


def reader_for(columns: Iterable[str]) -> Reader:
    """Return the reader of a file with these columns.

    Raises:
        ValueError: no known format has them.
    """
    present = set(columns)
    for column, reader in READERS.items():
        if column in present:
            return reader
    raise ValueError(f"no trace has these columns: {', '.join(sorted(present))}; a plain one needs submitted, duration")
