"""`convgpu submit`: a container as a job of the cluster."""

import re
import shlex
from pathlib import Path
from typing import Any, Final

import click

from convgpu.cli.cluster import slurm_client
from convgpu.cli.cluster.submission import DEFAULTS, OWN, submission, told
from convgpu.cli.cluster.words import WordsCommand, container_options, pyxis_words, whole_gigabits
from convgpu.cli.run.docker_arguments import CommandLine, UsageError, check
from convgpu.cli.terminal.errors import EXIT_CODES, Refused, did_you_mean
from convgpu.cli.terminal.options import checked
from convgpu.cluster import faults
from convgpu.cluster.request import (
    ImpossibleError,
    Submission,
    batch_script,
    check_fits,
    clock_time,
    sbatch_words,
)
from convgpu.protocol.durations import parse_duration
from convgpu.protocol.sizes import parse_size

AUTO: Final = "auto"
_SLURM_TIME: Final = re.compile(r"(\d+-\d+(:\d+){0,2}|\d+(:\d+){1,2})")


def _time(text: str) -> str:
    if _SLURM_TIME.fullmatch(text):
        return text
    if text.isdecimal():
        raise ValueError(f"{text} of what? Write {text}m, {text}h, or as Slurm does: 4:00:00")
    return clock_time(parse_duration(text))


def _network(text: str) -> str:
    try:
        found = whole_gigabits(text)
    except ValueError as error:
        raise ValueError(f"{error}. Docker's network is --net {text}") from error
    if found == "0":
        raise ValueError("0 is no bandwidth: write whole Gbit/s, 5gbit, or leave out --network")
    return found


def _size(text: str) -> str:
    return AUTO if text == AUTO else str(parse_size(text))


def _seconds(text: str) -> str:
    return str(parse_duration(text))


@click.command(
    "submit",
    cls=WordsCommand,
    own=OWN,
    pieces=["[--gpu-memory SIZE]", "[docker run options]", "IMAGE", "[COMMAND] [ARG...]"],
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["--help"]},
)
@click.option(
    "--gpu-memory",
    callback=checked(_size),
    metavar="SIZE",
    help="Memory of each GPU: 8g; auto: as earlier runs needed. Without it: whole GPUs.",
)
@click.option("--gpus", type=click.IntRange(1), default=DEFAULTS["gpus"], show_default=True, help="GPUs on each node.")
@click.option(
    "--nodes",
    type=click.IntRange(1),
    default=DEFAULTS["nodes"],
    show_default=True,
    help="Nodes, all at once or not at all.",
)
@click.option("--time", callback=checked(_time), metavar="TIME", help="The longest it may run: 30m, 4h, 2-00:00:00.")
@click.option(
    "--network",
    callback=checked(_network),
    metavar="RATE",
    help="Bandwidth on each node: 5gbit; on a bridge (--net bridge) no more.",
)
@click.option("--near", callback=checked(_seconds), metavar="TIME", help="Wait so long for nodes at one switch: 10m.")
@click.option("--partition", metavar="NAME", help="Slurm's partition.  [default: the cluster's]")
@click.option("--name", default=DEFAULTS["name"], show_default=True, help="The job's name.")
@click.option("--output", default=DEFAULTS["output"], show_default=True, metavar="FILE", help="Its output; %j: its id.")
@click.option("--cpus-per-gpu", type=click.IntRange(1), metavar="N", help="Processors for each GPU.")
@click.option("--no-requeue", is_flag=True, help="It cannot go on from a checkpoint: never queue it again.")
@click.option("--sbatch", multiple=True, metavar="OPTION", help="One more option of sbatch: --sbatch=--account=lab.")
@click.option("--dry-run", is_flag=True, help="Print what sbatch would get; submit nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print data instead of lines.")
@container_options
@click.pass_obj
def submit(line: CommandLine, /, *, dry_run: bool, as_json: bool, **given: Any) -> None:
    r"""Run a container on the cluster, as a job of Slurm.

    All options that are not listed are those of `docker run`. With --nodes the container starts once on each node, and
    torchrun finds the others without options.

    \b
    Examples:
      convgpu submit --gpu-memory 8g IMAGE python train.py
      convgpu submit --nodes 2 --gpus 2 --gpu-memory 20g --time 4h IMAGE torchrun train.py
    """
    line = _checked_line(pyxis_words(line, given))
    granule = slurm_client.granule()
    asked = submission(line, given, _memory(given, granule), auto=given["gpu_memory"] == AUTO)
    script = batch_script(asked, line.image[0])
    words = sbatch_words(asked, granule)
    if dry_run:
        click.echo(f"# sbatch {shlex.join(words)}\n{script}", nl=False)
        return
    _check_cluster(asked, granule)
    counted = _only_counted(line, asked)
    if counted:
        click.echo(counted, err=True)
    number = slurm_client.call("sbatch", "--parsable", *words, text=script).strip().partition(";")[0]
    if as_json:
        from convgpu.cli.terminal.output import echo_data  # noqa: PLC0415 - it imports much, and not all pay for it

        echo_data({"job": int(number), "sbatch": words})
        return
    click.echo(told(number))


def _checked_line(line: CommandLine) -> CommandLine:
    try:
        check(line)
    except UsageError as error:
        raise click.UsageError(str(error).replace("convgpu run --gpu-memory 2g", "convgpu submit")) from error
    if any(option.name == "detach" for option in line.options):
        raise click.UsageError("a job runs in the background anyhow: leave out -d")
    image = line.image[0]
    if image.endswith((".sh", ".py")) or image.startswith(("./", "/", "../")):
        there = "a script" if Path(image).exists() else "a script, and it is missing"
        raise click.UsageError(
            f"{image} is {there}, not an image: write IMAGE before the command, or type sbatch {image} "
            "and `convgpu job` in it"
        )
    return line


def _only_counted(line: CommandLine, asked: Submission) -> str:
    """Say that nothing will hold the container to the bandwidth that is asked for; empty where something can."""
    network = next((option.value for option in line.options if option.name == "net"), "host")
    if asked.network is None or network != "host":
        return ""
    return (
        f"convgpu: the {asked.network} Gbit/s are counted, and nothing holds the job to them on the host's network; "
        "--net bridge does"
    )


def _memory(given: dict[str, Any], granule: int) -> int | None:
    """Return the bytes of each card that are asked for: of a size that is to be learned, a whole card's."""
    if given["gpu_memory"] == AUTO:
        return granule * max((size.shards for size in slurm_client.sizes(given["partition"])), default=1)
    return int(given["gpu_memory"]) if given["gpu_memory"] else None


def _check_cluster(asked: Submission, granule: int) -> None:
    """Check at once what would wait for ever in the queue.

    Raises:
        Refused: the cluster is not set up, or cannot run it.
    """
    config, listed, known = slurm_client.cluster(asked.partition)
    fault = next(faults.faults(config), None)
    if fault is not None:
        raise Refused(fault)
    if asked.partition and asked.partition not in known:
        alike = did_you_mean(asked.partition, known)
        raise Refused(f"there is no partition {asked.partition!r}.{alike}\nThere are: {', '.join(known)}")
    try:
        check_fits(asked, listed, granule)
    except ImpossibleError as error:
        raise Refused(str(error)) from error
