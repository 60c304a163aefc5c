"""Jobs as Slurm lists them in JSON (`squeue --json`, `scontrol show job --json`). Pure.

Of the documents only fields are read that Slurm 24.05 to 26.05 have (data parser v0.0.41 and later).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from convgpu.cluster.allotment import count_of


class Number(msgspec.Struct, frozen=True):
    """A number that may not be set."""

    number: float = 0
    set: bool = False
    infinite: bool = False

    def get(self) -> float | None:
        """Return it; None where it is not set, or has no end."""
        return self.number if self.set and not self.infinite else None


class Job(msgspec.Struct, frozen=True):
    """One job as Slurm knows it; the fields are Slurm's own."""

    job_id: int
    name: str = ""
    user_name: str = ""
    user_id: int = 0
    partition: str = ""
    job_state: tuple[str, ...] = ()
    state_reason: str = ""
    state_description: str = ""
    nodes: str = ""
    node_count: Number = Number()
    tasks: Number = Number()
    tres_per_task: str = ""
    tres_per_node: str = ""
    submit_time: Number = Number()
    start_time: Number = Number()
    end_time: Number = Number()
    restart_cnt: int = 0
    requeue: bool = True
    comment: str = ""
    command: str = ""
    standard_output: str = ""
    admin_comment: str = ""
    exit_code: Mapping[str, object] = {}

    @property
    def state(self) -> str:
        """The first of its states, in small letters: pending, running, completing, completed..."""
        return self.job_state[0].lower() if self.job_state else "unknown"

    @property
    def ended(self) -> bool:
        """Whether it will not run any more."""
        return self.state not in {"pending", "running", "suspended", "completing", "configuring"}

    @property
    def shards(self) -> int | None:
        """Shards of one card that each of its tasks asks for; None for a job of whole cards or none."""
        return count_of(self.tres_per_task, "shard")

    @property
    def cards(self) -> int:
        """All cards that it asks for."""
        if self.shards is not None:
            return int(self.tasks.number)
        return (count_of(self.tres_per_node, "gpu") or 0) * int(self.node_count.number)

    @property
    def network(self) -> int:
        """Gbit/s of each node that it asks for, counted as gres/net; 0 for none."""
        return count_of(self.tres_per_node, "net") or 0


class _Jobs(msgspec.Struct, frozen=True):
    jobs: tuple[Job, ...] = ()


_JOBS: Final = msgspec.json.Decoder(_Jobs)


def read_jobs(text: str | bytes) -> list[Job]:
    """Return the jobs of a document.

    Raises:
        ValueError: it is none of Slurm's.
    """
    return list(_JOBS.decode(text).jobs)


def with_comments(jobs: Sequence[Job], told: str) -> list[Job]:
    """Return jobs with their AdminComments of Slurm's accounting, where it has one: lines of `sacct`, `ID|TEXT`."""
    comments = dict(line.partition("|")[::2] for line in told.splitlines())
    return [
        msgspec.structs.replace(job, admin_comment=comments.get(str(job.job_id)) or job.admin_comment) for job in jobs
    ]


_NAMES: Final = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_BRACKET: Final = re.compile(r"\[([^\]]*)\]")


def node_names(text: str) -> list[str]:
    """Return the names that a list of Slurm's stands for: `n[1-2,4],m1` is n1, n2, n4 and m1."""
    return [name for word in _NAMES.findall(text) for name in _expand(word)]


def _expand(word: str) -> list[str]:
    found = _BRACKET.search(word)
    if found is None:
        return [word]
    heads = []
    for part in found[1].split(","):
        first, _, last = part.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        heads += [f"{word[: found.start()]}{number:0{len(first)}}" for number in numbers]
    return [head + tail for tail in _expand(word[found.end() :]) for head in heads]


# https://slurm.schedmd.com/job_reason_codes.html
REASONS: Final[Mapping[str, str]] = {
    "None": "",
    "Resources": "waits until its cards are free",
    "Priority": "other jobs are in front of it",
    "BeginTime": "starts again soon: it was displaced, or is to begin later",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "waits for a job that failed: convgpu cancel",
    "JobHeldUser": "held: scontrol release",
    "JobHeldAdmin": "held by the administrator",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionTimeLimit": "its time is above the partition's: a smaller --time",
    "ReqNodeNotAvail": "its nodes are down or reserved: sinfo -R",
    "NodeDown": "a node of it is down",
    "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions": (
        "the nodes that fit are down, or reserved: sinfo -R"
    ),
    "AssocMaxJobsLimit": "its account runs as many jobs as it may",
    "AssocGrpGRES": "its account has as many cards as it may",
    "QOSMaxGRESPerUser": "its user has as many cards as allowed",
    "Prolog": "the node is made ready",
    "Cleaning": "its last run is cleared away",
    "launch_failed_requeued_held": "its start failed twice, so it is held: scontrol release, after sinfo -R",
}


def reason_in_words(job: Job) -> str:
    """Return why a job waits or what became of it."""
    reason = REASONS.get(job.state_reason, job.state_reason.replace("_", " "))
    told = job.admin_comment.removeprefix("convgpu: ")
    if job.state != "pending":
        return told or reason
    return "; ".join(text for text in (reason, told) if text)
