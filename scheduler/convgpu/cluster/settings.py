"""The cluster as its nodes see it: what `convgpu slurm setup` found and chose. Pure."""

from typing import Final

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


_SETTINGS: Final = msgspec.json.Decoder(Settings)


def read_settings(text: str | bytes) -> Settings:
    """Return the settings of a file.

    Raises:
        ValueError: the text has another form.
    """
    return _SETTINGS.decode(text)
