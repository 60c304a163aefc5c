"""What `convgpu job` adds to a line: for click, and for the quick path (decision 144)."""

from __future__ import annotations

import itertools
import os

from convgpu.cli.run.docker_arguments import Option
from convgpu.cli.run.injection import Request
from convgpu.cluster.environment import Place, variables
from convgpu.cluster.layout import LABEL, NODE_LABEL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Final

    from convgpu.cli.run.docker_arguments import CommandLine
    from convgpu.cluster.node_job import NodeJob

OWN: Final = {"pull-only": False, "dry-run": False, "help": False}
"""Our options without dashes; whether each takes a value."""
HOST: Final = "host"
_LOOPBACK: Final = "127.0.0.1"
_NO_INIT: Final = ("", "N/A")


def is_detached(line: CommandLine) -> bool:
    """Tell whether the container would not end with its job."""
    return any(option.name == "detach" and option.value != "false" for option in line.options)


def given(line: CommandLine, *names: str) -> str:
    """Return the value of the last of these options; empty for none."""
    return next((option.value or "" for option in reversed(line.options) if option.name in names), "")


def request(share: NodeJob, plugin: str) -> Request:
    """Return what `convgpu run` would have been asked for: all cards, each with its limit."""
    return Request(",".join(f"{uuid}:{size}" for uuid, size in share.cards.items()), None, plugin)


def with_words(line: CommandLine, words: Sequence[str]) -> CommandLine:
    """Return the line with our words, behind the user's: Docker takes the last of each label."""
    pairs = itertools.pairwise(words)
    variables_of_ours = [Option("env", value) for flag, value in pairs if flag == "-e"]
    return line.changed(docker=(*line.docker, *words), options=(*line.options, *variables_of_ours))


def ended(share: NodeJob) -> Mapping[str, Sequence[str]]:
    """Return the Engine's filters for containers of this job here that have ended; the Epilog removes the last."""
    return {"label": [f"{LABEL}={share.job}", f"{NODE_LABEL}={share.node}"], "status": ["exited"]}


def our_words(
    line: CommandLine, share: NodeJob, info: Mapping[str, Any], addresses: Callable[[str], Sequence[str]]
) -> list[str]:
    """Return the options of ours.

    Args:
        line: of the user.
        share: what the job has here.
        info: the document of `docker info`.
        addresses: of the nodes that a list such as n[1-4] stands for.
    """
    names = {option.name for option in line.options}
    defaults = {
        "network": None if "net" in names else HOST,
        "user": f"{os.getuid()}:{os.getgid()}" if os.getuid() else None,
        "cpus": _cpus(),
        "memory": f"{mib}m" if (mib := os.environ.get("SLURM_MEM_PER_NODE", "")).isdecimal() and int(mib) else None,
    }
    # Without --rm: where a start is refused, docker would wait for ever for a removal that nobody begins.
    words = ["--name", f"convgpu-{share.job}-{share.restarts}-{share.node}-{os.getpid()}"]
    words += ["--label", f"{LABEL}={share.job}", "--label", f"{NODE_LABEL}={share.node}"]
    words += [word for name, value in defaults.items() if value and name not in names for word in (f"--{name}", value)]
    if "init" not in names and info.get("InitCommit", {}).get("ID", "") not in _NO_INIT:
        words.append("--init")  # a program without a handler would ignore SIGTERM as process 1
    for name, value in variables(_place(share, given(line, "net", "network") or HOST, addresses)).items():
        words += ["-e", f"{name}={value}"]
    return words


def _cpus() -> str | None:
    allotted = os.environ.get("SLURM_CPUS_ON_NODE", "")
    return str(min(int(allotted), os.cpu_count() or 1)) if allotted.isdecimal() and int(allotted) else None


def _place(share: NodeJob, network: str, addresses: Callable[[str], Sequence[str]]) -> Place:
    """Return where the container runs; alone and on a network of its own it is the one that its workers meet at."""
    nodes = os.environ.get("SLURM_JOB_NODELIST", share.node)
    alone = share.node if network == HOST else _LOOPBACK
    meeting = [alone] if nodes == share.node else addresses(nodes)
    return Place(share.job, meeting, int(os.environ.get("SLURM_NODEID", "0")), len(share.cards), share.restarts)


def address_questions(nodes: str) -> tuple[tuple[str, ...], ...]:
    """Return the commands of Slurm that tell the addresses of the nodes that a list such as n[1-4] stands for."""
    return ("scontrol", "show", "hostnames", nodes), ("sinfo", "-h", "-N", "-n", nodes, "-o", "%N|%o")


def read_addresses(names: str, rows: str) -> list[str]:
    """Return the addresses, in the order of the list, by what `address_questions` print."""
    known = {name: address for name, _, address in (line.partition("|") for line in rows.splitlines())}
    return [known.get(name, name) for name in names.split()]
