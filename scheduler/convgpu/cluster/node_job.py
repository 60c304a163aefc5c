"""What a node knows of a job that runs on it: the file that the Prolog writes and the Epilog removes. Pure."""

import msgspec

from convgpu.cluster.shares import Card


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
