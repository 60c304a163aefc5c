"""What a node knows of a job that runs on it: the file that the Prolog writes and the Epilog removes. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from convgpu.cluster.listing import Job
from convgpu.cluster.shares import Card, read_portion, shards_of

LABEL: Final = "convgpu.job"
NODE_LABEL: Final = "convgpu.node"


class NodeCard(msgspec.Struct, frozen=True):
    """A card of a node as `convgpu slurm setup` found it; the same fields as `shares.Card`."""

    uuid: str
    file: str
    capacity: int

    @property
    def card(self) -> Card:
        """The card itself."""
        return Card(self.uuid, self.file, self.capacity)


class Settings(msgspec.Struct, frozen=True):
    """The cluster as its nodes see it: `convgpu.json` beside slurm.conf, the same file on all of them or one for each.

    Attributes:
        nodes: cards by the node's name in Slurm.
        granule: bytes of a shard.
        threshold: what Slurm may promise of a card, as a multiple of its capacity.
        jobs: folder for the files of the jobs that run here; the plugin sees it through its mount `run`.
        engine: where the node's Engine listens.
        plugin: ConvGPU's name in the Engine.
        grace: seconds between SIGTERM and SIGKILL, Slurm's KillWait.
        networks: Gbit/s by the node's name in Slurm; a node without is not counted.
    """

    nodes: dict[str, tuple[NodeCard, ...]]
    granule: int = 1 << 30
    threshold: float = 1.0
    jobs: str = "/run/convgpu/jobs"
    engine: str = "unix:///run/docker.sock"
    plugin: str = "convgpu"
    grace: int = 30
    networks: dict[str, int] = {}


class NodeJob(msgspec.Struct, frozen=True):
    """A job's share of one node.

    Attributes:
        job: Slurm's id.
        user: whose it is, as a number.
        restarts: how often it was requeued.
        cards: bytes by UUID that its containers may use together.
        fault: why its containers must not start; one line, empty for none.
        network: Gbit/s of the node that Slurm counts for it; 0: it asked for none.
    """

    job: int
    node: str
    user: int
    restarts: int
    cards: dict[str, int]
    fault: str = ""
    network: int = 0


# Short jobs of several nodes may be over before the Prolog of a node has begun, and Slurm has taken their cards back.
_OVER: Final = frozenset({"COMPLETING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "PREEMPTED", "NODE_FAIL"})


def file_name(job: int, node: str) -> str:
    """Return the name of a job's file; with the node, because test clusters have several on one host."""
    return f"{job}.{node}.json"


def read_settings(text: str | bytes) -> Settings:
    """Return the settings of a file.

    Raises:
        ValueError: the text has another form.
    """
    return msgspec.json.decode(text, type=Settings)


def read_node_job(text: str | bytes) -> NodeJob:
    """Return a job's share of a node.

    Raises:
        ValueError: the text has another form.
    """
    return msgspec.json.decode(text, type=NodeJob)


def node_job(job: Job, node: str, settings: Settings) -> NodeJob:
    """Return a job's share of a node, from what Slurm gave it.

    Raises:
        ValueError: the settings do not know the node.
    """
    if node not in settings.nodes:
        raise ValueError(f"{node} is not in the settings of the cluster: run `convgpu slurm setup` there")
    cards = {row.card.number: row.card for row in settings.nodes[node]}
    portion = read_portion(job.portions().get(node, ""), sorted(cards))
    whole = {number: shards_of(cards[number], settings.granule, settings.threshold) for number in portion.whole}
    limits = {
        cards[number].uuid: min(count * settings.granule, cards[number].capacity)
        for number, count in {**whole, **portion.shards}.items()
    }
    fault = _fault(job, portion.shards) if limits or not job.cards else _why_nothing(job)
    return NodeJob(job.job_id, node, job.user_id, job.restart_cnt, limits, fault, job.network)


def _why_nothing(job: Job) -> str:
    """Say why Slurm names no cards of this node for a job that asks for some."""
    states = " ".join(job.job_state).lower()
    if _OVER.isdisjoint(job.job_state):
        return f"Slurm names no cards of this node for the job, which is {states}"
    return f"the job is {states}: it ended before its Prolog ran on this node"


def _fault(job: Job, shards: Mapping[int, int]) -> str:
    """Say what is wrong with shares: each must hold what one task asked for, whole."""
    asked = job.shards
    if not shards or (asked and all(count % asked == 0 for count in shards.values())):
        return ""
    if asked is None and len(shards) == 1:
        return ""
    return (
        "Slurm has split the share over cards, because its job_submit.lua is not ConvGPU's.\n"
        "Type: --tres-per-task=gres/shard:N in place of --gres=shard:N, or convgpu submit"
    )
