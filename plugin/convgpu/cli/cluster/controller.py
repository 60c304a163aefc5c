"""`convgpu slurm controller`: reads Slurm's jobs, and tells Slurm their order and sizes, until a signal ends it."""

import time
from collections.abc import Mapping
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
        self._unsaved = Step()  # its updates are of no account

    def turn(self) -> Step:
        """Read the jobs and tell Slurm what follows.

        Raises:
            Unavailable: Slurm does not answer, or the file cannot be written. The next turn tells Slurm what it did not
                take by then, and saves what is not saved.
        """
        step = self.decide()
        self._unsaved.changed |= step.changed
        self._unsaved.gone |= step.gone
        self._unsaved.kinds |= step.kinds
        try:
            for update in step.updates:
                if update.requeue:
                    # One that begins with an older file would not tell its size, and after the next failure queue it
                    # again: without end where each save fails.
                    self._save()
                echo(text(update))
                self._carry_out(update, update.jobs)
        finally:
            self._save()
        return step

    def decide(self) -> Step:
        """Read the jobs and return what follows."""
        rows = _read()
        unknown = self._controller.unknown(rows)
        for begin in range(0, len(unknown), _DESCRIBED):
            self._controller.add(slurm_jobs.described(unknown[begin : begin + _DESCRIBED]))
        peaks = _peaks() if self._controller.ends(rows) else {}
        return self._controller.step(rows, time.time(), peaks)

    def _carry_out(self, update: Update, jobs: tuple[int, ...]) -> None:
        """Tell Slurm, all jobs at once, and one by one where it refuses; say which ones it refuses, and why."""
        try:
            self._tell(update, jobs)
        except Refused as refused:
            if len(jobs) == 1:
                echo(f"job {jobs[0]}: {refused.message}")
                return
            for job in jobs:
                self._carry_out(update, (job,))

    def _tell(self, update: Update, jobs: tuple[int, ...]) -> None:
        names = ",".join(map(str, jobs))
        if update.requeue:
            self._requeue(jobs[0])
        self._unsaved.changed.update(jobs)
        try:
            slurm_client.call("scontrol", "update", f"jobid={names}", *update.words)
        except (Refused, Unavailable):
            for job in jobs:
                self._controller.may_lack(job, update)
            raise
        for job in jobs:
            self._controller.took(job, update)

    def _requeue(self, job: int) -> None:
        try:
            slurm_client.call("scontrol", "requeue", str(job))
        except Refused:
            self._controller.stays_failed(job)
            self._unsaved.changed.add(job)
            raise

    def _save(self) -> None:
        """Save what changed since it was saved last; what cannot be saved stays for the next time."""
        jobs = [self._controller.jobs[job] for job in self._unsaved.changed if job in self._controller.jobs]
        kinds = [self._controller.kinds[kind] for kind in self._unsaved.kinds]
        if jobs or kinds or self._unsaved.gone:
            self._store.save(jobs, self._unsaved.gone, kinds)
        self._unsaved = Step()


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
    """Turn until a signal comes; while Slurm does not answer, or the disk is full, say so once and go on."""
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
