"""Peaks of jobs, and what their containers sent, on their way from the nodes: in the field Extra of each node. Pure.

Only the node's own Epilog writes there, so nothing is lost between the nodes of a gang; the newest jobs come first.
"""

from typing import Final

import msgspec

_HEAD: Final = "convgpu-peaks"
_NETWORK: Final = ":net"  # behind the job's number, before bytes received and sent: 12:net=300/200
MOST: Final = 50  # jobs that a node remembers


class _Node(msgspec.Struct, frozen=True):
    extra: str = ""


class _Nodes(msgspec.Struct, frozen=True):
    nodes: tuple[_Node, ...] = ()


_NODES: Final = msgspec.json.Decoder(_Nodes)


def extra_of(text: str | bytes) -> str:
    """Return the field Extra of the one node of `scontrol show node NAME --json`.

    Raises:
        ValueError: it is none of Slurm's documents.
    """
    return next(iter(_NODES.decode(text).nodes), _Node()).extra


def read_peaks(text: str | bytes) -> dict[int, int]:
    """Return the most bytes that each job had of a card, on any of its nodes.

    Args:
        text: `scontrol show node --json`.

    Raises:
        ValueError: it is none of Slurm's documents.
    """
    found: dict[int, int] = {}
    for node in _NODES.decode(text).nodes:
        for job, peak in _parse(node.extra).items():
            found[job] = max(peak, found.get(job, 0))
    return found


def read_network(text: str | bytes) -> dict[int, tuple[int, int]]:
    """Return the bytes that each job's fenced containers received and sent, on all nodes together.

    Raises:
        ValueError: it is none of Slurm's documents.
    """
    found: dict[int, tuple[int, int]] = {}
    for node in _NODES.decode(text).nodes:
        for name, figures in _words(node.extra).items():
            job, net, _ = name.partition(_NETWORK)
            received, slash, sent = figures.partition("/")
            if net and slash and all(word.isdecimal() for word in (job, received, sent)):
                before = found.get(int(job), (0, 0))
                found[int(job)] = before[0] + int(received), before[1] + int(sent)
    return found


def with_peak(extra: str, job: int, peak: int) -> str | None:
    """Return the field with one more job; None where the site uses it for something else."""
    return _with(extra, str(job), str(max(peak, _parse(extra).get(job, 0))))


def with_network(extra: str, job: int, received: int, sent: int) -> str | None:
    """Return the field with the bytes that a job's containers received and sent; None as of `with_peak`."""
    return _with(extra, f"{job}{_NETWORK}", f"{received}/{sent}")


def _with(extra: str, name: str, figures: str) -> str | None:
    if extra and not extra.startswith(_HEAD):
        return None
    words = {name: figures, **{other: told for other, told in _words(extra).items() if other != name}}
    jobs = list(dict.fromkeys(other.removesuffix(_NETWORK) for other in words))[:MOST]
    kept = (f"{other}={told}" for other, told in words.items() if other.removesuffix(_NETWORK) in jobs)
    return " ".join([_HEAD, *kept])


def _words(extra: str) -> dict[str, str]:
    if not extra.startswith(_HEAD):
        return {}
    rows = (word.partition("=") for word in extra.split()[1:])
    return {name: figures for name, equals, figures in rows if equals}


def _parse(extra: str) -> dict[int, int]:
    rows = _words(extra).items()
    return {int(job): int(size) for job, size in rows if job.isdecimal() and size.isdecimal()}
