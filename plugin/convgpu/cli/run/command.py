"""`convgpu run` and `convgpu create`: Docker's own, with a limit on GPU memory."""

import shlex
from collections.abc import Callable
from typing import Any, Final

import click

from convgpu.cli.connect.engine import Engine
from convgpu.cli.run.docker_arguments import CommandLine, UsageError, check, scan
from convgpu.cli.run.injection import Request
from convgpu.cli.run.own_options import OPTIONS, OWN, TERMS
from convgpu.cli.run.preparation import execute, prepare
from convgpu.cli.terminal.errors import EXIT_CODES, did_you_mean
from convgpu.cli.terminal.options import as_click

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
        try:
            return super().parse_args(ctx, list(ctx.obj.own))
        except click.MissingParameter as error:
            raise click.UsageError(error.format_message() + _misspelt(ctx.obj), ctx) from error

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show Docker's words in the usage line."""
        return ["--gpu-memory SIZE", f"[docker {ctx.command.name} options]", "IMAGE", "[COMMAND] [ARG...]"]


def _misspelt(line: CommandLine) -> str:
    """Say which of the words that were read as Docker's is spelled like the option that is missing."""
    for option in line.options:
        if alike := did_you_mean(f"--{option.name}", [OPTIONS[0].names[0]]):
            return f" --{option.name} is read as one of docker's.{alike}"
    return ""


def _command(verb: str, does: str) -> Callable[[Callable[..., None]], click.Command]:
    """Return the decorator that makes a command of a function; `does`: the verb of its help."""

    def decorate(function: Callable[..., None]) -> click.Command:
        function = click.pass_obj(function)
        for row in reversed(OPTIONS):
            function = as_click(row)(function)
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
    terms = {name: given[name] for name in TERMS}
    request = Request(str(given["gpu_memory"]), given["wait"], driver, given["gpus"], verb=verb, **terms)
    words, added = prepare(line, request, Engine.connect())
    if dry_run:
        click.echo("\n".join(f"# {text}" for text in added), err=True)
        click.echo(shlex.join(words))
        return
    execute(words)
