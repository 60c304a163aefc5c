"""Slurm's own commands, with their errors as lines for people. Imports little: `convgpu submit` waits for it."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NoReturn

from convgpu.cli.cluster.submission import CLUSTER, settings_file
from convgpu.cli.terminal.errors import Refused, Unavailable
from convgpu.cluster import faults
from convgpu.cluster.shares import DEFAULT_GRANULE, NodeSize, node_size, read_nodes

_SECONDS: Final = 60
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
# How Slurm's commands begin their errors, before what they are about.
_NOISE: Final = ("sbatch: ", "squeue: ", "scontrol: ", "scancel: ", "error: ", "slurm_load_jobs error: ")

# What Slurm's commands say when slurmctld is away or does not answer, also when it goes while it is asked.
_SILENT: Final = ("Unable to contact slurm controller", "Socket timed out on send/recv", "Zero Bytes were transmitted")


def call(*command: str, text: str | None = None, environment: Mapping[str, str] = _NOTHING) -> str:
    """Return what a command of Slurm prints.

    Args:
        command: its words.
        text: for its stdin.
        environment: variables beside ours.

    Raises:
        Unavailable: it is not there, or Slurm does not answer.
        Refused: Slurm refuses; the message is Slurm's own.
    """
    return _run(*command, text=text, environment=environment).stdout


def rewrites_requests() -> bool:
    """Tell whether Slurm's job_submit.lua is ours: it says what it makes of a request. Nothing is submitted."""
    try:
        return "convgpu:" in _run("sbatch", "--test-only", "--gres=gpumem:1G", "--wrap", "true").stderr
    except Refused:
        return False


def _run(
    *command: str, text: str | None = None, environment: Mapping[str, str] = _NOTHING
) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm; errors as of `call`."""
    return _finish(_start(command, environment, is_fed=text is not None), command, text)


def _start(
    command: tuple[str, ...], environment: Mapping[str, str] = _NOTHING, *, is_fed: bool = False
) -> subprocess.Popen[str]:
    """Start a command of Slurm; `is_fed`: it gets an input."""
    source = subprocess.PIPE if is_fed else subprocess.DEVNULL
    variables = {**os.environ, **environment}
    try:
        return subprocess.Popen(
            command, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables
        )
    except FileNotFoundError as error:
        raise Unavailable(f"the program {command[0]} is not here.\nInstall it: apt install slurm-client") from error


def _finish(
    process: subprocess.Popen[str], command: tuple[str, ...], text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Wait for a command of Slurm; errors as of `call`."""
    with process:
        try:
            out, err = process.communicate(text, timeout=_SECONDS)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise Unavailable(f"Slurm does not answer within {_SECONDS} s.\nSee: scontrol ping") from error
    if process.returncode != 0:
        _fail(err)
    return subprocess.CompletedProcess(command, 0, out, err)


def _fail(stderr: str) -> NoReturn:
    lines = [_clean(line) for line in stderr.splitlines() if line.strip() and not line.startswith('Try "')]
    if any(words in line for line in lines for words in _SILENT):
        raise Unavailable("Slurm's controller does not answer.\nSee: scontrol ping")
    ours = [line.removeprefix("convgpu: ") for line in lines if line.startswith("convgpu: ")]
    raise Refused("\n".join(ours or lines[-1:]) or "Slurm refuses, and says nothing about why")


def _clean(line: str) -> str:
    for noise in _NOISE:
        line = line.removeprefix(noise)
    return line.strip()


def config() -> dict[str, str]:
    """Return Slurm's configuration as it is in force."""
    return faults.read_config(call("scontrol", "show", "config"))


def cluster(partition: str | None) -> tuple[dict[str, str], list[NodeSize], list[str]]:
    """Return configuration, nodes of a partition or of all, and partitions, asked for at once: each takes its time."""
    started = [(_start(command), command) for command in CLUSTER]
    config_text, nodes = (_finish(*pair).stdout for pair in started)
    return faults.read_config(config_text), *read_nodes(nodes, partition)


def sizes(partition: str | None) -> list[NodeSize]:
    """Return what the nodes of a partition have, or those of all."""
    words = ("--partition", partition) if partition else ()
    rows = (line.partition("|") for line in call("sinfo", "-h", "-N", "-o", "%N|%G", *words).splitlines())
    return list({name: node_size(name, gres) for name, _, gres in rows}.values())


def settings_path() -> Path:
    """Return the file of the cluster's settings."""
    return Path(settings_file())


def granule() -> int:
    """Return the bytes of a shard; on a login node without settings, the default.

    Raises:
        Unavailable: the settings cannot be read.
    """
    path = settings_path()
    try:
        return int(json.loads(path.read_bytes()).get("granule", DEFAULT_GRANULE))
    except FileNotFoundError:
        return DEFAULT_GRANULE
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise Unavailable(f"{path}: {error}.\nType: convgpu slurm setup") from error
