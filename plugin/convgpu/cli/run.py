"""`convgpu run`: `docker run` with a limit on GPU memory."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from convgpu.cli.engine import Engine, Plugin
from convgpu.cli.errors import EXIT_CODES, Unavailable
from convgpu.cli.options import volume_driver
from convgpu.cli.run_options import MOUNT_PATH, CommandLine, UsageError, scan
from convgpu.cli.run_request import Request, Surroundings, check, check_memory, check_wait, docker_words
from convgpu.cli.scheduler import PluginDoor, Scheduler

_OWN: Final = {
    "gpu-memory": True,
    "gpu-wait": True,
    "gpu-volume-driver": True,
    "dry-run": False,
    "help": False,
}

_HELP: Final = """Run a container with a limit on its GPU memory.

Every other option is one of `docker run` and is passed on as it stands; words behind IMAGE belong to the
command in the container. An allocation within the limit that finds no free memory is paused until another
container gives memory back; one beyond the limit fails.

\b
Examples:
  convgpu run --gpu-memory 2g --rm -it pytorch/pytorch python train.py
  convgpu run --gpu-memory 512m --gpu-wait 5m -d --name worker my/image
"""


class DockerRunCommand(click.Command):
    """Gives click only ConvGPU's options; Docker's stay as the user wrote them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split the words; click then parses ours, with its types, defaults and messages."""
        try:
            ctx.obj = scan(args, _OWN)
        except UsageError as error:
            raise click.UsageError(str(error), ctx) from error
        return super().parse_args(ctx, list(ctx.obj.own))

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Show Docker's words in the usage line."""
        return ["--gpu-memory SIZE", "[docker run options]", "IMAGE", "[COMMAND] [ARG...]"]


def _checked(check: Callable[[str], str]) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Make click ask `check`, and show its text as a usage error."""

    def callback(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
        try:
            return None if value is None else check(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return callback


@click.command(
    cls=DockerRunCommand,
    help=_HELP,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["--help"]},  # -h is --hostname of docker run
)
@click.option(
    "--gpu-memory",
    required=True,
    callback=_checked(check_memory),
    metavar="SIZE",
    help="The most memory the container may use on each of its GPUs: 512m, 2g, 2GiB. "
    "One limit per GPU: GPU-uuid:2g,GPU-uuid:4g.",
)
@click.option(
    "--gpu-wait",
    callback=_checked(check_wait),
    metavar="DURATION",
    help="How long an allocation may be paused, for example 30s or 5m; after that it fails as out of memory. "
    "Default: no end.",
)
@volume_driver
@click.option("--dry-run", is_flag=True, help="Print the docker command and do not run it.")
@click.pass_obj
def run(line: CommandLine, gpu_memory: str, gpu_wait: str | None, driver: str, *, dry_run: bool) -> None:
    """Run a container with a limit on its GPU memory."""
    try:
        check(line)
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    words = prepare(line, Request(gpu_memory, gpu_wait, driver), Engine.connect())
    if dry_run:
        click.echo(shlex.join(words))
        return
    try:
        os.execvp(words[0], words)  # noqa: S606 - docker takes our place: its terminal, signals and exit code
    except FileNotFoundError as error:
        raise Unavailable("the program docker is not installed.\nInstall it: apt install docker.io") from error


def prepare(line: CommandLine, request: Request, engine: Engine) -> list[str]:
    """Return the whole `docker run` command for a scanned command line.

    Raises:
        click.UsageError: the command line cannot work.
        Unavailable: no Engine, no plugin, no answer.
    """
    plugin = engine.plugin(request.driver)
    name = line.image[0]
    image = engine.image(name)
    around = Surroundings(
        library_path=_library_path(plugin),
        inherited=os.environ,
        env_files=[_read(path) for path in line.values("env-file")],
        image_environment=image.environment if image else (),
        image_volumes=image.volumes if image else (),
        occupied=image is not None and engine.image_has(name, MOUNT_PATH),
    )
    try:
        return docker_words(line, request, around)
    except UsageError as error:
        raise click.UsageError(str(error)) from error


def _library_path(plugin: Plugin) -> str | None:
    """Ask the plugin; where its socket is out of reach (not root, a remote Engine), its settings say it."""
    if os.access(plugin.socket, os.W_OK):
        return Scheduler(PluginDoor(plugin.socket)).devices().volume_library_path
    simulated = plugin.settings.get("CONVGPU_DEVICES", "").startswith("simulated:")
    return f"{MOUNT_PATH}/driver" if simulated else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""  # docker itself says what is wrong with the file
