"""What the controller remembers: of each job, and of each kind of work. Plain data, stored as JSON."""

import re
from typing import Final

import msgspec

from convgpu.cluster.listing import Job
from convgpu.ranking import JobKind

# As `request.job_comment` writes it.
_COMMENT: Final = re.compile(r"convgpu kind=([0-9a-f]{16})( memory=auto)?")
OURS: Final = "convgpu: "
"""How the controller begins a job's AdminComment; it leaves those of others alone."""


class JobRecord(msgspec.Struct):
    """One job.

    Attributes:
        user, kind, cards: what makes it a run of the same work as another one; a kind is image and command, or of plain
            `sbatch` the script and its arguments; empty where Slurm knows neither.
        requeues: whether Slurm may queue it again when it is displaced.
        asked, shards: of one card by task: as its user asked, and as it asks now; None for whole cards.
        auto: its user left the size to us.
        silent: somebody else writes its AdminComment.
        seconds, run: of its ended runs together, and of the last.
        forgiven: seconds that do not count any more, because it waited long.
        started, nodes: of the run that goes on; None while it waits.
        seen, stopped: when it was last seen running; when it was seen that it does not, None while it runs.
        displacer: the job that it made room for.
        factor, comment: what Slurm was told, and took; factor None: not known.
        retried: it failed with a smaller request than its user's, and is queued again with his.
        failed: when the run that did so started; None: none did.
        learned: it has ended, and what is to be learned from it is.
    """

    job: int
    user: str
    kind: str
    cards: int
    requeues: bool
    asked: int | None
    shards: int | None
    auto: bool = False
    silent: bool = False
    seconds: float = 0.0
    run: float = 0.0
    forgiven: float = 0.0
    started: float | None = None
    nodes: str = ""
    seen: float = 0.0
    stopped: float | None = None
    displacer: int | None = None
    factor: int | None = None
    comment: str = ""
    retried: bool = False
    failed: float | None = None
    learned: bool = False

    @property
    def work(self) -> JobKind:
        """The kind of its work."""
        return JobKind(self.user, self.kind, "", self.cards)


class KindRecord(msgspec.Struct):
    """Runs of one kind that completed, the newest last: seconds, and the most bytes that any of its cards had."""

    user: str
    kind: str
    cards: int
    seconds: list[float] = []
    peaks: list[int] = []

    @property
    def work(self) -> JobKind:
        """The kind itself."""
        return JobKind(self.user, self.kind, "", self.cards)


def record_of(job: Job) -> JobRecord:
    """Return what is remembered of a job that Slurm describes for the first time."""
    found = _COMMENT.fullmatch(job.comment)
    foreign = bool(job.admin_comment) and not job.admin_comment.startswith(OURS)
    return JobRecord(
        job=job.job_id,
        user=job.user_name,
        kind=found[1] if found else job.command,
        cards=job.cards,
        requeues=job.requeue,
        asked=job.shards,
        shards=job.shards,
        auto=bool(found and found[2]),
        silent=foreign,
    )
