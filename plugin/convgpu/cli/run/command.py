"""`convgpu run` and `convgpu create`: Docker's own, with a limit on GPU memory."""

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from convgpu.cli.connect.engine import Engine, Plugin
from convgpu.cli.connect.quick_http import QuickHttp
from convgpu.cli.run import gpu_access
from convgpu.cli.run.docker_arguments import CommandLine, UsageError, check, scan
from convgpu.cli.run.injection import (
    SIMULATED,
    Request,
    Surroundings,
    check_memory,
    check_priority,
    check_wait,
    docker_words,
    explain,
)
from convgpu.cli.run.probed_images import is_occupied
from convgpu.cli.terminal.errors import EXIT_CODES, Unavailable
from convgpu.cli.terminal.options import checked, volume_driver
from convgpu.cli.terminal.person import person
from convgpu.protocol.layout import PRELOAD_FILE

OWN: Final = {
    "gpu-memory": True,
    "gpus": True,
    "wait": True,
    "gpu-wait": True,
    "priority": True,
    "suspend": True,
    "backing": True,
    "admit": True,
    "gang": True,
    "gpu-volume-driver": True,
    "dry-run": False,
    "help": False,
}
_OK: Final = 200
_OLDEST: Final = (20, 10)  # Engine whose plugins and mounts we know

_HELP: Final = """{does} a container with a limit on its GPU memory.

Every other option is one of `docker {verb}` and is passed on as it stands; words behind IMAGE belong to the
command in the container. An allocation within the limit that finds no free memory is paused until another
container gives memory back; one beyond the limit fails.

What is added to your line: the volume with library and socket at /run/convgpu, /etc/ld.so.preload, which loads the
library into every program of the container (`docker exec` too), LD_PRELOAD for images that have no use for that
file, and the options that give the container its GPUs. --dry-run shows it.

\b
Examples:
  convgpu {verb} --gpu-memory 2g --rm -it pytorch/pytorch python train.py
  convgpu {verb} --gpu-memory 512m --wait 5m --gpus 1 --name worker my/image
"""


class DockerCommand(click.Command):
    """Leaves Docker's options to Docker, as the user wrote them; click parses ConvGPU's only."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split the words; click then parses ours, with its types, defaults and messages."""
        try:
            ctx.obj = scan(args, OWN)
        except UsageError as error:
            if not ctx.resilient_parsing:
                raise click.UsageError(str(error), ctx) from error
            ctx.obj = scan([], OWN)
        return super().parse_args(ctx, list(ctx.obj.own))

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show Docker's words in the usage line."""
        return ["--gpu-memory SIZE", f"[docker {ctx.command.name} options]", "IMAGE", "[COMMAND] [ARG...]"]


def _check_gpus(text: str) -> str:
    gpu_access.parse_gpus(text)
    return text


# The options that `run` and `create` share, in the order of the help.
_OPTIONS: Final[Sequence[Callable[[Callable[..., None]], Callable[..., None]]]] = (
    click.option(
        "--gpu-memory",
        required=True,
        callback=checked(check_memory),
        metavar="SIZE",
        help="The most memory the container may use on each of its GPUs: 512m, 2g, 2GiB, or a share of each, 50%. "
        "One limit per GPU: GPU-uuid:2g,GPU-uuid:4g.",
    ),
    click.option(
        "--gpus",
        callback=checked(_check_gpus),
        metavar="GPUS",
        help="any or a count: so many, which the scheduler chooses; all; as for docker device=0, '\"device=0,1\"'.  "
        "[default: any]",
    ),
    click.option(
        "--wait",
        "--gpu-wait",
        "wait",
        callback=checked(check_wait),
        metavar="DURATION",
        help="How long an allocation may be paused, for example 30s or 5m; after that it fails as out of memory. "
        "Default: no end.",
    ),
    click.option(
        "--priority",
        callback=checked(check_priority),
        metavar="NUMBER",
        help="Of the containers that wait, those with a higher number are served first.  [default: 0]",
    ),
    click.option(
        "--admit",
        type=click.Choice(["part", "whole"]),
        help="whole: the first allocation waits until the whole limit is free, and the container never waits again. "
        "part: it takes what it needs.  [default: part]",
    ),
    click.option(
        "--gang",
        metavar="NAME[:SIZE]",
        help="Containers of one gang start with their whole limits together, or not at all; SIZE: how many.",
    ),
    click.option(
        "--suspend",
        type=click.Choice(["no", "auto"]),
        help="auto: while the container waits or idles its memory may leave the GPU for others; it comes back to the "
        "same addresses.  [default: no]",
    ),
    click.option(
        "--backing",
        type=click.Choice(["vmm", "unified"]),
        help="unified: managed memory, so that one container can have more than its GPU, which it has alone while it "
        "runs; slower than memory of the GPU.  [default: vmm]",
    ),
    volume_driver,
    click.option("--dry-run", is_flag=True, help="Print the docker command, and say what was added; run nothing."),
    click.pass_obj,
)


def _command(verb: str, does: str) -> Callable[[Callable[..., None]], click.Command]:
    """Return the decorator that makes a command of a function; `does`: the verb of its help."""

    def decorate(function: Callable[..., None]) -> click.Command:
        for option in reversed(_OPTIONS):
            function = option(function)
        # -h is --hostname of docker run
        settings = {"help_option_names": ["--help"]}
        text = _HELP.format(verb=verb, does=does)
        return click.command(verb, cls=DockerCommand, help=text, epilog=EXIT_CODES, context_settings=settings)(function)

    return decorate


@_command("run", "Run")
def run(line: CommandLine, **given: Any) -> None:
    """Run a container with a limit on its GPU memory."""
    _run("run", line, **given)


@_command("create", "Make, but do not start,")
def create(line: CommandLine, **given: Any) -> None:
    """Create a container with a limit on its GPU memory."""
    _run("create", line, **given)


def _run(verb: str, line: CommandLine, *, driver: str, dry_run: bool, **given: str | None) -> None:
    try:
        check(line)
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    terms = {name: given[name] for name in ("priority", "suspend", "backing", "admit", "gang")}
    request = Request(str(given["gpu_memory"]), given["wait"], driver, given["gpus"], verb=verb, **terms)
    words, added = prepare(line, request, Engine.connect())
    if dry_run:
        click.echo("\n".join(f"# {text}" for text in added), err=True)
        click.echo(shlex.join(words))
        return
    execute(words)


def execute(words: list[str]) -> NoReturn:
    """Replace this process by `docker`, which keeps its terminal, signals and exit code.

    Raises:
        Unavailable: there is no such program.
    """
    try:
        os.execvp(words[0], words)  # noqa: S606 - no shell is wanted
    except FileNotFoundError as error:
        raise Unavailable("the program docker is not installed.\nInstall it: apt install docker.io") from error


def prepare(line: CommandLine, request: Request, engine: Engine, *, probe: bool = True) -> tuple[list[str], list[str]]:
    """Return the whole docker command for a scanned command line, and what was added to it in words.

    Args:
        line: of the user.
        request: of ConvGPU.
        engine: that runs it.
        probe: look into the image for files where the volume has to be, which takes a container.

    Raises:
        click.UsageError: the command line cannot work.
        Unavailable: no Engine, no plugin, no answer, no way to the GPUs.
    """
    plugin = engine.plugin(request.driver)
    check_version(engine)
    name = line.image[0]
    image = engine.image(name)
    around = Surroundings(
        access=find_access(engine, plugin, request),
        preload=str(engine.directory(plugin) / PRELOAD_FILE),
        docker=("docker", *engine.endpoint.flags),
        inherited=os.environ,
        env_files=[_read(path) for path in line.values("env-file")],
        image_environment=image.environment if image else (),
        image_volumes=image.volumes if image else (),
        occupied=probe and image is not None and is_occupied(engine, name, image),
        user=person(),
    )
    try:
        return docker_words(line, request, around), explain(line, request, around)
    except UsageError as error:
        raise click.UsageError(str(error)) from error


def check_version(engine: Engine) -> None:
    """Check the version of the Engine.

    Raises:
        Unavailable: it is too old.
    """
    text = str(engine.info.get("ServerVersion", ""))
    parts = text.split(".")[:2]
    if all(part.isdecimal() for part in parts) and tuple(map(int, parts)) < _OLDEST:
        raise Unavailable(f"the Docker Engine is version {text}; ConvGPU needs 20.10 or newer.\nUpgrade the Engine.")


def find_access(engine: Engine, plugin: Plugin, request: Request) -> gpu_access.Access:
    """Return how a container of this Engine gets access to the GPUs.

    Raises:
        Unavailable: there is no way.
    """
    if _is_simulated(plugin):
        return SIMULATED
    host = gpu_access.inspect_host() if engine.endpoint.socket is not None else None
    try:
        return gpu_access.choose(engine.info, host, request.docker_gpus, request.devices)
    except gpu_access.NoAccess as error:
        raise Unavailable(str(error)) from error


def _is_simulated(plugin: Plugin) -> bool:
    """Ask the plugin; where its socket is out of reach (not root, a remote Engine), its settings say it."""
    if os.access(plugin.socket, os.W_OK):
        answer = _ask_devices(plugin.socket)
        if answer is not None:
            return answer.get("volume_library_path") is not None
        from convgpu.cli.connect.discovery import open_plugin  # noqa: PLC0415 - explains why there is no answer

        return open_plugin(plugin.socket).devices().volume_library_path is not None
    return plugin.settings.get("CONVGPU_DEVICES", "").startswith("simulated:")


def _ask_devices(socket: Path) -> dict[str, Any] | None:
    """Return the plugin's answer as it is, without msgspec's records, whose import costs what all else here does."""
    try:
        reply = QuickHttp(socket).ask("GET", "/v1/devices")
        answer = reply.json()
    except (OSError, ValueError):
        return None
    return answer if reply.status == _OK and isinstance(answer, dict) else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""  # docker itself says what is wrong with the file
