"""Jobs as `squeue` lists them in lines: what changes while a job lives, fifty bytes for each. Pure."""

from dataclasses import dataclass
from typing import Final

# Behind SLURM_TIME_FORMAT=%s: id, state, start, end, nodes. No field holds text of a user.
FORMAT: Final = "%A|%T|%S|%e|%N"
_RUNNING: Final = frozenset({"running", "suspended", "stopped"})
_WAITING: Final = frozenset({"pending", "configuring", "completing", "requeued", "requeue_hold", "special_exit"})


@dataclass(frozen=True, slots=True)
class Row:
    """One job at one moment; times in Unix seconds, None where Slurm says none."""

    job: int
    state: str
    started: float | None
    ended: float | None
    nodes: str

    @property
    def running(self) -> bool:
        """Whether it has its nodes."""
        return self.state in _RUNNING

    @property
    def over(self) -> bool:
        """Whether it will not run any more."""
        return self.state not in _RUNNING | _WAITING


def read_rows(text: str) -> list[Row]:
    """Read what `squeue` printed.

    Raises:
        ValueError: a line has another form.
    """
    rows = []
    for line in text.splitlines():
        job, state, started, ended, nodes = line.split("|")
        rows.append(Row(int(job), state.lower(), _time(started), _time(ended), nodes))
    return rows


def _time(text: str) -> float | None:
    return float(text) if text.isdecimal() else None
