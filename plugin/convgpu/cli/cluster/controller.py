"""`convgpu slurm controller`: reads Slurm's jobs, and tells Slurm their order and sizes, until a signal ends it."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from convgpu.cli.cluster import cluster_settings, slurm_client, slurm_jobs
from convgpu.cli.cluster.controller_store import Store
from convgpu.cli.terminal.errors import Refused, Unavailable
from convgpu.cli.terminal.options import checked
from convgpu.cli.terminal.output import echo
from convgpu.cli.terminal.signals import until_signalled
from convgpu.cluster import faults
from convgpu.cluster.controller.controller import Controller, Step, Update
from convgpu.cluster.controller.levels import Levels
from convgpu.cluster.controller.rows import FORMAT, Row, read_rows
from convgpu.cluster.peaks import read_peaks
from convgpu.protocol.durations import parse_duration
from convgpu.ranking import geometric_levels

_EPOCH: Final = {"SLURM_TIME_FORMAT": "%s"}
_DESCRIBED: Final = 200  # jobs that Slurm describes in one answer; each takes 8 kB
_LEVELS: Final = 8
_FACTOR: Final = 4.0


def _read() -> list[Row]:
    return read_rows(slurm_client.call("squeue", "-h", "-t", "all", "-o", FORMAT, environment=_EPOCH))


def _peaks() -> Mapping[int, int]:
    return read_peaks(slurm_client.call("scontrol", "show", "node", "--json"))


def _seconds(given: str) -> str:
    return str(parse_duration(given))


class Loop:
    """The controller with Slurm on one side and its file on the other."""

    def __init__(self, controller: Controller, store: Store) -> None:
        self._controller, self._store = controller, store

    def turn(self) -> Step:
        """Read the jobs and tell Slurm what follows.

        Raises:
            Unavailable: Slurm does not answer.
        """
        step = self.decide()
        for update in step.updates:
            for job, reason in _carry_out(update):
                echo(f"job {job}: {reason}")
                self._controller.refused(job, update)
        self._save(step)
        return step

    def decide(self) -> Step:
        """Read the jobs and return what follows."""
        rows = _read()
        unknown = self._controller.unknown(rows)
        for begin in range(0, len(unknown), _DESCRIBED):
            self._controller.add(slurm_jobs.described(unknown[begin : begin + _DESCRIBED]))
        peaks = _peaks() if self._controller.ends(rows) else {}
        return self._controller.step(rows, time.time(), peaks)

    def _save(self, step: Step) -> None:
        jobs = [self._controller.jobs[job] for job in step.changed if job in self._controller.jobs]
        kinds = [self._controller.kinds[kind] for kind in step.kinds]
        if jobs or kinds or step.gone:
            self._store.save(jobs, step.gone, kinds)


def _carry_out(update: Update) -> Iterator[tuple[int, str]]:
    """Tell Slurm, all jobs at once, and one by one where it refuses; yield which jobs it refuses, and why."""
    echo(text(update))
    try:
        _tell(update, update.jobs)
    except Refused as refused:
        if len(update.jobs) == 1:
            yield update.jobs[0], refused.message
            return
        for job in update.jobs:
            try:
                _tell(update, (job,))
            except Refused as error:
                yield job, error.message


def _tell(update: Update, jobs: tuple[int, ...]) -> None:
    names = ",".join(map(str, jobs))
    if update.requeue:
        slurm_client.call("scontrol", "requeue", names)
    slurm_client.call("scontrol", "update", f"jobid={names}", *update.words)


def text(update: Update) -> str:
    """Return an update as a line of the log."""
    return f"job {','.join(map(str, update.jobs))}: {'requeue, ' if update.requeue else ''}{', '.join(update.words)}"


def open_controller(store: Store | None, first: float) -> Controller:
    """Return the controller with what is remembered, of the cluster that Slurm describes now."""
    settings = cluster_settings.settings()
    card = max((size.shards for size in slurm_client.sizes(None)), default=1)
    jobs, kinds = (store.jobs(), store.kinds()) if store else ((), ())
    return Controller(Levels(geometric_levels(first, _FACTOR, _LEVELS)), settings.granule, card, jobs, kinds)


@click.command()
@click.option(
    "--interval",
    default="5s",
    show_default=True,
    callback=checked(_seconds),
    metavar="TIME",
    help="How often Slurm is asked.",
)
@click.option(
    "--first-level",
    type=click.FloatRange(0, min_open=True),
    default=3250.0,
    show_default=True,
    metavar="S",
    help="GPU-seconds of the first level; each next one is four times longer.",
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    default="/var/lib/convgpu-cluster/state",
    show_default=True,
    metavar="FILE",
    help="What it learned.",
)
@click.option("--dry-run", is_flag=True, help="Print what Slurm would be told now; tell it nothing.")
def controller(*, interval: str, first_level: float, state: Path, dry_run: bool) -> None:
    """Order jobs by the service that they had, and ask for the memory that earlier runs needed.

    Runs beside slurmctld as SlurmUser or root. It only writes priorities, requests of waiting jobs and comments: with
    it stopped, Slurm goes on with the last ones. What was displaced goes on from its checkpoint.
    """
    for warning in faults.controller_faults(slurm_client.config()):
        echo(f"warning: {warning}")
    if dry_run:
        for update in _decide_once(state, first_level).updates:
            echo(text(update))
        return
    store = Store(state)
    _run(Loop(open_controller(store, first_level), store), float(interval))
    store.close()


def _decide_once(state: Path, first: float) -> Step:
    store = Store(state)
    try:
        return Loop(open_controller(store, first), store).decide()
    finally:
        store.close()


def _run(loop: Loop, interval: float) -> None:
    """Turn until a signal comes; while Slurm does not answer, say so once and go on."""
    echo(f"orders the jobs of this cluster every {interval:g} s")
    silent = ""
    with until_signalled() as ended:
        rest = 0.0
        while not ended(rest):
            begin = time.monotonic()
            try:
                loop.turn()
                silent = ""
            except (Unavailable, Refused, ValueError) as error:
                message = getattr(error, "message", str(error))
                if message != silent:
                    echo(message)
                silent = message
            rest = max(interval - (time.monotonic() - begin), 0.05)
