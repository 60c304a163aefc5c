"""The controller's decisions: what Slurm lists goes in, what Slurm is to be told comes out. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from convgpu.cluster.controller import memory, words
from convgpu.cluster.controller.levels import Levels, Ranked
from convgpu.cluster.controller.record import JobRecord, KindRecord, record_of
from convgpu.cluster.controller.rows import Row
from convgpu.cluster.listing import Job, node_names
from convgpu.ranking.history import LEAST_RUNS, MOST_RUNS, Durations, JobKind

PATIENCE: Final = 8.0
"""A job that waits so many times as long as its last run lasted is served as a new one (Tiresias)."""
LEAST_SHARE: Final = 1 / 8
"""Of a card; a job with less memory counts as this much of it, because it computes there as well."""
_REQUEST: Final = "trespertask="
_DISPLACING: Final = 120.0  # seconds after which another's start has nothing to do with the end of a run
_NEAR_LIMIT: Final = 0.9  # of its memory: a failed job that had so much of it may have failed by it


@dataclass(frozen=True, slots=True)
class Update:
    """What Slurm is to be told of jobs, as words of `scontrol update`; `requeue`: they are queued again before."""

    jobs: tuple[int, ...]
    words: tuple[str, ...]
    requeue: bool = False


@dataclass(slots=True)
class Step:
    """What follows from one list of jobs.

    Attributes:
        updates: for Slurm.
        changed, gone: jobs whose records changed, or are not needed any more.
        kinds: kinds of which more is known.
    """

    updates: list[Update] = field(default_factory=list)
    changed: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    kinds: set[JobKind] = field(default_factory=set)


class Controller:
    """What is known of the jobs of a cluster.

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

    def refused(self, job: int, update: Update) -> None:
        """Note that Slurm did not take an update of a job: it started meanwhile, or ended. The next step sees."""
        record = self.jobs.get(job)
        if record is None:
            return
        if any(word.startswith(_REQUEST) for word in update.words):
            record.shards = record.asked
        else:
            record.factor, record.comment = None, ""

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
        return step

    def _end(self, row: Row, job: JobRecord, peak: int | None, step: Step) -> None:
        """Learn from a job that has ended, once; Slurm lists it for some minutes more."""
        if row.state == "failed" and self._fails_by_us(job, peak):
            job.retried, job.shards = True, job.asked
            step.updates.append(Update((job.job,), (_request(job.asked),), requeue=True))
            self._learn(job, None, (job.asked or 0) * self._granule, step)
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
        batches: dict[tuple[str, ...], list[int]] = {}
        for row, job in known:
            # Apart from the others: a job that has just started does not take it.
            if row.state == "pending" and (correction := self._correction(job)):
                batches.setdefault(correction, []).append(job.job)
                step.changed.add(job.job)
            told = self._words(row, job, now, is_news=job.job in step.changed)
            if told:
                batches.setdefault(tuple(told), []).append(job.job)
                step.changed.add(job.job)
        step.updates += [Update(tuple(jobs), told) for told, jobs in batches.items()]

    def _words(self, row: Row, job: JobRecord, now: float, *, is_news: bool) -> list[str]:
        """Return what Slurm has to be told of one job."""
        told = []
        if row.state == "pending":
            _forgive(job, now)
        expected = self._expected(job)
        level = self._levels.level(self._ranked(row, job, now, expected))
        factor = self._levels.factor(level, running=row.running, displaceable=job.requeues)
        if factor != job.factor:
            job.factor = factor
            told.append(f"sitefactor={factor}")
        text = words.comment(job, level, expected, self._granule)
        # Between two changes of its place a comment stays as it is: each word costs Slurm a lock.
        if (told or is_news) and text != job.comment and not job.silent:
            job.comment = text
            told.append(f"admincomment={text}")
        return told

    def _correction(self, job: JobRecord) -> tuple[str, ...]:
        kind = self.kinds.get(job.work)
        if kind is None or job.asked is None or job.shards is None or job.retried:
            return ()
        shards = memory.corrected(job.asked, job.shards, kind.peaks, self._granule, auto=job.auto)
        if shards is None:
            return ()
        job.shards = shards
        return (_request(shards),)

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


def _request(shards: int | None) -> str:
    return f"{_REQUEST}gres/shard:{shards}"


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
