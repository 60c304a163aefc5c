"""Peaks of jobs on their way from the nodes to the controller: in the field Extra of each node. Pure.

Only the node's own Epilog writes there, so nothing is lost between the nodes of a gang; the newest jobs come first.
"""

from typing import Final

import msgspec

_HEAD: Final = "convgpu-peaks"
MOST: Final = 50  # jobs that a node remembers


class _Node(msgspec.Struct, frozen=True):
    extra: str = ""


class _Nodes(msgspec.Struct, frozen=True):
    nodes: tuple[_Node, ...] = ()


def extra_of(text: str | bytes) -> str:
    """Return the field Extra of the one node of `scontrol show node NAME --json`.

    Raises:
        ValueError: it is none of Slurm's documents.
    """
    return next(iter(msgspec.json.decode(text, type=_Nodes).nodes), _Node()).extra


def read_peaks(text: str | bytes) -> dict[int, int]:
    """Return the most bytes that each job had of a card, on any of its nodes.

    Args:
        text: `scontrol show node --json`.

    Raises:
        ValueError: it is none of Slurm's documents.
    """
    found: dict[int, int] = {}
    for node in msgspec.json.decode(text, type=_Nodes).nodes:
        for job, peak in _parse(node.extra).items():
            found[job] = max(peak, found.get(job, 0))
    return found


def with_peak(extra: str, job: int, peak: int) -> str | None:
    """Return the field with one more job; None where the site uses it for something else."""
    if extra and not extra.startswith(_HEAD):
        return None
    known = _parse(extra)
    known = {job: max(peak, known.pop(job, 0)), **known}
    return " ".join([_HEAD, *(f"{number}={size}" for number, size in list(known.items())[:MOST])])


def _parse(extra: str) -> dict[int, int]:
    if not extra.startswith(_HEAD):
        return {}
    rows = (word.partition("=") for word in extra.split()[1:])
    return {int(job): int(size) for job, _, size in rows if job.isdecimal() and size.isdecimal()}
