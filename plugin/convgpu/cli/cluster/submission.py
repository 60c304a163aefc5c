"""What `convgpu submit` reads of a line, and asks of Slurm: for click, and for the quick path (decision 152)."""

from __future__ import annotations

import os

from convgpu.cluster import layout
from convgpu.cluster.request import Submission, job_comment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

    from convgpu.cli.run.docker_arguments import CommandLine

# https://github.com/NVIDIA/pyxis: the option's name without dashes, and its help.
PYXIS: Final = {
    "container-image": ("IMAGE", "The same as IMAGE."),
    "container-mounts": ("SRC:DST[:ro],...", "The same as -v SRC:DST for each."),
    "container-workdir": ("PATH", "The same as -w."),
    "container-name": ("NAME", "The same as --name of docker run."),
    "container-env": ("NAME,...", "The same as -e NAME for each."),
}
# Our options without dashes; whether each takes a value.
OWN: Final = {
    "gpu-memory": True,
    "gpus": True,
    "nodes": True,
    "time": True,
    "network": True,
    "near": True,
    "partition": True,
    "name": True,
    "output": True,
    "cpus-per-gpu": True,
    "sbatch": True,
    "no-requeue": False,
    "dry-run": False,
    "json": False,
    "help": False,
}
DEFAULTS: Final = {"gpus": 1, "nodes": 1, "name": "convgpu", "output": "convgpu-%j.log"}
CLUSTER: Final = (("scontrol", "show", "config"), ("sinfo", "-h", "-N", "-o", "%N|%G|%R"))
"""Commands of Slurm that tell its configuration, and its nodes for `read_nodes`."""
_CORRECTING: Final = 10  # seconds in which the controller asks for less than a whole card


def submission(line: CommandLine, given: Mapping[str, Any], memory: int | None, *, auto: bool = False) -> Submission:
    """Return what a line asks for.

    Args:
        line: Docker's words.
        given: values of our options, by the names of their parameters.
        memory: bytes of each card; None: whole cards.
        auto: whether the size is to be learned.
    """
    container = [*line.docker, *(["--"] if line.image[0].startswith("-") else []), *line.image]
    return Submission(
        container=container,
        memory=memory,
        cards=given["gpus"],
        nodes=given["nodes"],
        time=given["time"],
        network=int(given["network"]) if given["network"] else None,
        near=float(given["near"]) if given["near"] else None,
        partition=given["partition"],
        name=given["name"],
        output=given["output"],
        requeue=not given["no_requeue"],
        cpus=given["cpus_per_gpu"],
        extra=given["sbatch"],
        comment=job_comment(line.image, auto=auto),
        wait=_CORRECTING if auto else None,
    )


def told(number: int | str) -> str:
    """Return what the user reads of a job that was submitted."""
    return f"job {number}: convgpu logs -f {number} · convgpu jobs {number} · convgpu cancel {number}"


def settings_file() -> str:
    """Return the file of the cluster's settings: beside slurm.conf, or as the environment says."""
    named, conf = os.environ.get(layout.SETTINGS_VARIABLE), os.environ.get("SLURM_CONF")
    # `pathlib` takes longer to import than all else of the quick paths
    beside = os.path.join(os.path.dirname(conf), "convgpu.json") if conf else ""  # noqa: PTH118, PTH120
    return named or beside or layout.SETTINGS_FILE
