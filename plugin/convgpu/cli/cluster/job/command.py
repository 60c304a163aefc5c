"""`convgpu job`: in a script of `sbatch` or `srun`, one container with all cards that the job has on this node."""

import os
import shlex
import subprocess
from typing import Final

import click

from convgpu.cli.cluster import cluster_settings, slurm_client
from convgpu.cli.cluster.job import container
from convgpu.cli.cluster.words import WordsCommand, container_options, pyxis_words
from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.engine_endpoint import Options, resolve
from convgpu.cli.run.docker_arguments import CommandLine, UsageError, check
from convgpu.cli.run.preparation import NO_DOCKER, execute, prepare
from convgpu.cli.terminal.errors import EXIT_CODES, Refused, Unavailable
from convgpu.cluster.layout import file_name
from convgpu.cluster.node_job import NodeJob, read_node_job
from convgpu.cluster.settings import Settings

_PULLING: Final = 3600.0  # seconds for an image


@click.command(
    "job",
    cls=WordsCommand,
    own=container.OWN,
    pieces=["[docker run options]", "IMAGE", "[COMMAND] [ARG...]"],
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["--help"]},
)
@click.option("--pull-only", is_flag=True, help="Only make sure that this node has IMAGE.")
@click.option("--dry-run", is_flag=True, help="Print the docker command; run nothing.")
@container_options
@click.pass_obj
def job(line: CommandLine, /, *, pull_only: bool, dry_run: bool, **pyxis: str | None) -> None:
    """Run a container with the job's GPUs on this node, each limited to the job's share.

    Options are those of `docker run`. The container gets what torchrun, TensorFlow and MXNet need to find the others,
    CONVGPU_JOB and CONVGPU_RESTART, and the host's network. SIGTERM reaches its first process.
    """
    line = pyxis_words(line, pyxis)
    settings = cluster_settings.settings()
    share = _share(settings)
    _check(line, share)
    engine = Engine(resolve(Options(host=settings.engine), os.environ))
    _pull(engine, line.image[0], share.node)
    if pull_only:
        return
    ours = [*container.our_words(line, share, engine.info, _addresses), *_network_words(line, share, engine)]
    line = container.with_words(line, ours)
    words, added = prepare(line, container.request(share, settings.plugin), engine, probe=False)
    if dry_run:
        click.echo("\n".join([*(f"# {text}" for text in added), shlex.join(words)]))
        return
    _remove_ended(engine, share)
    execute(words)


def _share(settings: Settings) -> NodeJob:
    """Return what the job has of this node.

    Raises:
        Refused: this is no job, or not the caller's, or it has no card.
    """
    number, node = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURMD_NODENAME")
    if not number or not number.isdecimal() or not node:
        raise Refused(
            "this is no job of Slurm.\nType: convgpu submit --gpu-memory 8g IMAGE COMMAND, "
            "or: srun --gres=gpumem:8G convgpu job IMAGE COMMAND"
        )
    path = f"{settings.jobs}/{file_name(int(number), node)}"
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a line less of imports where each start counts
            share = read_node_job(file.read())
    except FileNotFoundError as error:
        raise Unavailable(
            f"job {number} has no {path}: it has ended, or the Prolog is not ConvGPU's.\nSee: convgpu slurm check"
        ) from error
    except (OSError, ValueError) as error:
        raise Unavailable(f"{path}: {error}.\nSee: convgpu slurm check") from error
    if os.getuid() not in {0, share.user}:
        raise Refused(f"job {number} is that of another user.\nType: convgpu submit --gpu-memory 8g IMAGE COMMAND")
    return share


def _check(line: CommandLine, share: NodeJob) -> None:
    try:
        check(line)
    except UsageError as error:
        raise click.UsageError(str(error).replace("convgpu run --gpu-memory 2g", "convgpu job")) from error
    if share.fault:
        raise Refused(share.fault)
    if not share.cards:
        raise Refused(f"job {share.job} has no GPU on {share.node}.\nType: --gres=gpumem:8G, or --gres=gpu:1 (whole)")
    if container.is_detached(line):
        raise click.UsageError("a container of a job ends with it: leave out -d, the job itself is in the background")


def _pull(engine: Engine, image: str, node: str) -> None:
    """Make sure that the node has the image.

    Raises:
        Refused: it cannot be had.
    """
    if engine.image(image) is not None:
        return
    click.echo(f"convgpu: {node} pulls {image}", err=True)
    command = ["docker", *engine.endpoint.flags, "pull", "-q", image]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_PULLING)
    except FileNotFoundError as error:
        raise Unavailable(NO_DOCKER) from error
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["docker says nothing about why"])[-1]
        raise Refused(
            f"the image {image} cannot be pulled on {node}: {reason.removeprefix('Error response from daemon: ')}\n"
            f"Is the name right (REGISTRY/NAME:TAG)? Or load it on the nodes: docker load"
        )


def _remove_ended(engine: Engine, share: NodeJob) -> None:
    ended = engine.get("/containers/json", all=1, filters=container.ended(share))
    if ended:  # the import of Docker's SDK takes longer than all else here
        engine.remove_containers([row["Id"] for row in ended])


def _network_words(line: CommandLine, share: NodeJob, engine: Engine) -> list[str]:
    """Return what holds the container to its share of the network; say it where nothing does."""
    if not share.network:
        return []
    from convgpu.cli.cluster.job import network  # noqa: PLC0415 - few jobs ask for it

    place = container.given(line, "net", "network") or container.HOST
    words, obstacle = network.fence(share.network, place, container.given(line, "runtime"), engine)
    if obstacle:
        click.echo(f"convgpu: {obstacle}", err=True)
    return words


def _addresses(nodes: str) -> list[str]:
    names, rows = (slurm_client.call(*command) for command in container.address_questions(nodes))
    return container.read_addresses(names, rows)
