"""The controller's decisions: what Slurm lists goes in, what Slurm is to be told comes out. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from convgpu.cluster.controller import memory, words
from convgpu.cluster.controller.levels import Levels, Ranked
from convgpu.cluster.controller.record import OURS, JobRecord, KindRecord, record_of
from convgpu.cluster.controller.rows import Row
from convgpu.cluster.listing import Job, node_names
from convgpu.ranking.history import LEAST_RUNS, MOST_RUNS, Durations, JobKind

PATIENCE: Final = 8.0
"""A job that waits so many times as long as its last run lasted is served as a new one (Tiresias)."""
LEAST_SHARE: Final = 1 / 8
"""Of a card; a job with less memory counts as this much of it, because it computes there as well."""
_DISPLACING: Final = 120.0  # seconds after which another's start has nothing to do with the end of a run
_NEAR_LIMIT: Final = 0.9  # of its memory: a failed job that had so much of it may have failed by it


@dataclass(frozen=True, slots=True)
class Update:
    """What Slurm is to be told of jobs; None: it stays as it is.

    Attributes:
        shards: of one card by task, which they ask for.
        factor, comment: their SiteFactor and AdminComment.
        requeue: it is one job, and is queued again before.
    """

    jobs: tuple[int, ...]
    shards: int | None = None
    factor: int | None = None
    comment: str | None = None
    requeue: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The same as words of `scontrol update`."""
        told = (("trespertask=gres/shard:", self.shards), ("sitefactor=", self.factor), ("admincomment=", self.comment))
        return tuple(f"{name}{value}" for name, value in told if value is not None)


@dataclass(slots=True)
class Step:
    """What follows from one list of jobs.

    Attributes:
        updates: for Slurm; those that queue a job again come last.
        changed, gone: jobs whose records changed, or are not needed any more.
        kinds: kinds of which more is known.
    """

    updates: list[Update] = field(default_factory=list)
    changed: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    kinds: set[JobKind] = field(default_factory=set)


class Controller:
    """What is known of the jobs of a cluster.

    A step changes what is known of them, and `took` what Slurm was told: what it did not take is decided again.

    Args:
        levels: of service.
        granule: bytes of a shard.
        card: shards of a whole card.
        jobs, kinds: what an earlier controller remembered.
    """

    def __init__(
        self,
        levels: Levels,
        granule: int,
        card: int,
        jobs: Iterable[JobRecord] = (),
        kinds: Iterable[KindRecord] = (),
    ) -> None:
        self._levels, self._granule, self._card = levels, granule, max(card, 1)
        self.jobs = {job.job: job for job in jobs}
        self.kinds = {kind.work: kind for kind in kinds}
        # Jobs whose comment Slurm may lack; an earlier controller may have ended before it told one.
        self._unsaid = set(self.jobs)

    def unknown(self, rows: Sequence[Row]) -> list[int]:
        """Return the jobs that Slurm has to describe."""
        return [row.job for row in rows if row.job not in self.jobs]

    def add(self, jobs: Iterable[Job]) -> None:
        """Remember what Slurm says of new jobs."""
        for job in jobs:
            self.jobs.setdefault(job.job_id, record_of(job))

    def ends(self, rows: Sequence[Row]) -> bool:
        """Tell whether one has ended since the last step, so that its peak is wanted."""
        return any(row.over and not (row.job in self.jobs and self.jobs[row.job].learned) for row in rows)

    def took(self, job: int, update: Update) -> None:
        """Note that Slurm took an update of a job."""
        record = self.jobs[job]
        if update.shards is not None:
            record.shards = update.shards
        if update.factor is not None:
            record.factor = update.factor
        if update.comment is not None:
            record.comment = update.comment
            self._unsaid.discard(job)

    def may_lack(self, job: int, update: Update) -> None:
        """Note that Slurm refused an update of a job, or did not answer: what it has now is not known."""
        record = self.jobs[job]
        if update.factor is not None:
            record.factor = None
        if update.comment is not None:
            record.comment = OURS  # no comment is that alone, so the next one is told, whichever it is

    def stays_failed(self, job: int) -> None:
        """Note that Slurm refuses to queue a job again: asked once more, it would say the same."""
        self.jobs[job].learned = True

    def step(self, rows: Sequence[Row], now: float, peaks: Mapping[int, int]) -> Step:
        """Take a list of all jobs that Slurm knows.

        Args:
            rows: as read.
            now: Unix seconds.
            peaks: bytes of a card by job, of jobs that ended.
        """
        step = Step()
        known = [(row, self.jobs[row.job]) for row in rows if row.job in self.jobs and row.state != "completing"]
        for row, job in known:
            if _follow_runs(row, job, now):
                step.changed.add(row.job)
        self._name_displacers(known, now, step)
        for row, job in known:
            if row.over and not job.learned:
                self._end(row, job, peaks.get(row.job), step)
        self._forget({row.job for row in rows}, step)
        self._tell([(row, job) for row, job in known if not row.over], now, step)
        step.updates.sort(key=lambda update: update.requeue)
        return step

    def _end(self, row: Row, job: JobRecord, peak: int | None, step: Step) -> None:
        """Learn from a job that has ended, once; Slurm lists it for some minutes more."""
        if row.state == "failed" and self._fails_by_us(job, peak):
            job.retried, job.failed = True, row.started
            self._learn(job, None, (job.asked or 0) * self._granule, step)
            step.changed.add(job.job)
        # While Slurm lists that run it did not queue the job again, whatever became of our words.
        if job.failed is not None and row.started == job.failed:
            step.updates.append(Update((job.job,), shards=job.asked, requeue=True))
            return
        if row.state == "completed":
            if job.retried and peak:
                self._replace_guess(job)
            self._learn(job, job.seconds, peak, step)
        job.learned = True
        step.changed.add(job.job)

    def _fails_by_us(self, job: JobRecord, peak: int | None) -> bool:
        is_smaller = job.asked is not None and job.shards is not None and job.shards < job.asked
        return bool(
            is_smaller
            and not job.retried
            and job.requeues
            and peak is not None
            and peak >= _NEAR_LIMIT * (job.shards or 0) * self._granule
        )

    def _replace_guess(self, job: JobRecord) -> None:
        """Forget the user's size of a job that was queued again with it: what it needed is known now."""
        kind, guess = self.kinds.get(job.work), (job.asked or 0) * self._granule
        if kind is not None and guess in kind.peaks:
            last = len(kind.peaks) - 1 - kind.peaks[::-1].index(guess)
            kind.peaks = kind.peaks[:last] + kind.peaks[last + 1 :]

    def _learn(self, job: JobRecord, seconds: float | None, peak: int | None, step: Step) -> None:
        if not job.kind:
            return
        kind = self.kinds.setdefault(job.work, KindRecord(job.user, job.kind, job.cards))
        if seconds is not None:
            kind.seconds = [*kind.seconds, seconds][-MOST_RUNS:]
        if peak:
            kind.peaks = [*kind.peaks, peak][-MOST_RUNS:]
        step.kinds.add(job.work)

    def _forget(self, listed: set[int], step: Step) -> None:
        """Forget what Slurm does not list any more."""
        for job in [job for job in self.jobs if job not in listed]:
            del self.jobs[job]
            self._unsaid.discard(job)
            step.gone.add(job)

    def _name_displacers(self, known: Sequence[tuple[Row, JobRecord]], now: float, step: Step) -> None:
        """Say of each job that was displaced for which one: the first that started on a node of it since."""
        for row, job in known:
            if row.state != "pending" or job.displacer is not None or not now - job.seen < _DISPLACING:
                continue
            nodes = set(node_names(job.nodes))
            # A short job may have ended by now: then its last start is Slurm's word, not ours.
            starts = [(other.started if other.over else record.started, other) for other, record in known]
            since = [
                (started, other.job)
                for started, other in starts
                if started is not None and started >= job.seen and nodes & set(node_names(other.nodes))
            ]
            if since:
                job.displacer = min(since)[1]
                step.changed.add(row.job)

    def _tell(self, known: Sequence[tuple[Row, JobRecord]], now: float, step: Step) -> None:
        """Say what Slurm has to be told: the same words for many jobs at once."""
        batches: dict[tuple[int | None, int | None, str | None], list[int]] = {}
        for row, job in known:
            planned, is_news = job, job.job in step.changed or job.job in self._unsaid
            if row.state == "pending":
                _forgive(job, now)
                # Apart from the others: a job that has just started does not take it.
                if (shards := self._correction(job)) is not None:
                    batches.setdefault((shards, None, None), []).append(job.job)
                    planned, is_news = replace(job, shards=shards), True
            factor, comment = self._words(row, planned, now, is_news=is_news)
            if comment is None:
                self._unsaid.discard(job.job)
            else:
                self._unsaid.add(job.job)
            if factor is not None or comment is not None:
                batches.setdefault((None, factor, comment), []).append(job.job)
        step.updates += [Update(tuple(jobs), *told) for told, jobs in batches.items()]

    def _words(self, row: Row, job: JobRecord, now: float, *, is_news: bool) -> tuple[int | None, str | None]:
        """Return the factor and the comment that Slurm has to be told of one job; None: what it has."""
        expected = self._expected(job)
        level = self._levels.level(self._ranked(row, job, now, expected))
        factor = self._levels.factor(level, running=row.running, displaceable=job.requeues)
        text = words.comment(job, level, expected, self._granule)
        is_moved = factor != job.factor
        # Between two changes of its place a comment stays as it is: each word costs Slurm a lock.
        is_said = (is_moved or is_news) and text != job.comment and not job.silent
        return factor if is_moved else None, text if is_said else None

    def _correction(self, job: JobRecord) -> int | None:
        """Return the shards that a waiting job has to ask for; None: it does."""
        if job.asked is None or job.shards is None:
            return None
        if job.retried:
            return job.asked if job.shards != job.asked else None
        kind = self.kinds.get(job.work)
        if kind is None:
            return None
        return memory.corrected(job.asked, job.shards, kind.peaks, self._granule, auto=job.auto)

    def _expected(self, job: JobRecord) -> float | None:
        kind = self.kinds.get(job.work)
        if kind is None or len(kind.seconds) < LEAST_RUNS:
            return None
        return Durations({job.work: kind.seconds}).expected(job.work)

    def _ranked(self, row: Row, job: JobRecord, now: float, expected: float | None) -> Ranked:
        share = min(job.shards / self._card, 1.0) if job.shards is not None else 1.0
        cards = job.cards * max(share, LEAST_SHARE)
        seconds = job.seconds + (now - job.started if job.started is not None else 0.0)
        remaining = expected - seconds if expected is not None and expected > seconds else math.inf
        return Ranked(0.0, cards, max(seconds - job.forgiven, 0.0) * cards, remaining, row.running)


def _follow_runs(row: Row, job: JobRecord, now: float) -> bool:
    """Note the begin and the end of a run; return whether there was one."""
    changed = False
    if job.started is not None and not (row.running and row.started == job.started):
        _end_run(job, row.ended if row.over and row.ended else row.started if row.running else now)
        job.stopped, changed = now, True
    if row.running and row.started is not None and job.started is None:
        job.started, job.nodes, job.displacer, job.stopped, changed = row.started, row.nodes, None, None, True
        job.learned = False
    elif row.over and not job.learned and not job.seconds and row.started and row.ended:  # too short to be seen
        job.started = row.started
        _end_run(job, row.ended)
    if row.running:
        job.seen = now
    return changed


def _end_run(job: JobRecord, end: float | None) -> None:
    job.run = max((end or 0.0) - (job.started or 0.0), 0.0)
    job.seconds += job.run
    job.started = None


def _forgive(job: JobRecord, now: float) -> None:
    """Serve a job as a new one that has waited for much longer than it ran."""
    if job.stopped is not None and job.run and now - job.stopped >= PATIENCE * job.run:
        job.forgiven = job.seconds
        job.stopped = now
