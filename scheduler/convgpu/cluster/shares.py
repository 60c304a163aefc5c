"""GPU memory in Slurm's terms: one shard is one granule of one card. Pure.

Sharing of cards in Slurm: https://slurm.schedmd.com/gres.html#Sharding
"""

from __future__ import annotations

from convgpu.cluster.allotment import reuse_count
from convgpu.protocol.quick.record import Record

TYPE_CHECKING = False  # `convgpu submit` waits for imports (decision 152)
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30
DEFAULT_GRANULE: Final = GIB
LEAST_GRANULE: Final = 64 * MIB
"""A context of CUDA takes about eight times as much."""


class Card(Record):
    """One card of a node.

    Attributes:
        uuid: as the driver names it.
        file: its device node; Slurm wants one for each card.
        capacity: bytes that ConvGPU may hand out.
    """

    uuid: str
    file: str
    capacity: int


def shards_for(size: int, granule: int) -> int:
    """Return how many shards hold `size` bytes."""
    return -(-size // granule)


def shards_of(card: Card, granule: int, threshold: float = 1.0) -> int:
    """Return the reuse count of a card: how many containers of one granule it takes."""
    return reuse_count(card.capacity, granule, threshold)


def gres_lines(node: str, cards: Sequence[Card], granule: int, threshold: float = 1.0) -> list[str]:
    """Return the lines of gres.conf for a node.

    Raises:
        ValueError: a card is smaller than one granule.
    """
    small = next((card for card in cards if shards_of(card, granule, threshold) == 0), None)
    if small is not None:
        raise ValueError(f"{small.uuid} is smaller than the granule: choose a smaller one with --granule")
    whole = [f"NodeName={node} Name=gpu File={card.file}" for card in cards]
    parts = [
        f"NodeName={node} Name=shard Count={shards_of(card, granule, threshold)} File={card.file}" for card in cards
    ]
    return [*whole, *parts]


def node_gres(cards: Sequence[Card], granule: int, threshold: float = 1.0) -> str:
    """Return the value of `Gres=` on the node's line of slurm.conf."""
    return f"gpu:{len(cards)},shard:{sum(shards_of(card, granule, threshold) for card in cards)}"


class NodeSize(Record):
    """What a node of the cluster has: its cards, the shards of each, and Gbit/s of network that Slurm counts."""

    name: str
    cards: int
    shards: int
    network: int = 0


def node_size(name: str, gres: str) -> NodeSize:
    """Read the `Gres` of a node as Slurm prints it: `gpu:h200:2(S:0),shard:h200:160(S:0)`.

    The cards of a node are taken to be equal.
    """
    counts = {"gpu": 0, "shard": 0, "net": 0}
    for word in _without_places(gres).split(","):
        kind, _, rest = word.partition(":")
        count = rest.rpartition(":")[2]
        if kind in counts and count.isdecimal():
            counts[kind] += int(count)
    cards = counts["gpu"]
    return NodeSize(name, cards, counts["shard"] // cards if cards else 0, counts["net"])


def _without_places(gres: str) -> str:
    """Leave out what stands in parentheses: the sockets, which may hold commas."""
    first, *rest = gres.split("(")
    return first + "".join(part.partition(")")[2] for part in rest)


def read_nodes(listed: str, partition: str | None) -> tuple[list[NodeSize], list[str]]:
    """Return the nodes of a partition, or of all for None, and the names of all partitions.

    Args:
        listed: lines of `sinfo`: node, its Gres, partition, with `|` between them.
        partition: a name.
    """
    rows = [line.split("|") for line in listed.splitlines()]
    found = {name: node_size(name, gres) for name, gres, part in rows if partition in {None, part}}
    return list(found.values()), sorted({part for _, _, part in rows})
