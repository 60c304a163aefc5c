"""Command lines that end with Docker's words, and the options that users of Pyxis know."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from convgpu.cli.cluster.submission import PYXIS
from convgpu.cli.run.docker_arguments import CommandLine, Option, UsageError, scan

_RATE: Final = re.compile(r"([1-9][0-9]{0,4})\s*g(bit|bps|bit/s)?", re.IGNORECASE)
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def whole_gigabits(text: str) -> str:
    """Return the Gbit/s of a bandwidth, or `0`: Slurm counts in them.

    Raises:
        ValueError: it is none.
    """
    found = _RATE.fullmatch(text.strip())
    if found is None and text != "0":
        raise ValueError(f"{text!r} is no bandwidth: write whole Gbit/s, 5gbit")
    return found[1] if found else text


class WordsCommand(click.Command):
    """Leaves Docker's options to Docker; click parses ours.

    Args:
        own: our options without dashes; whether each takes a value.
        pieces: of the usage line.
    """

    def __init__(self, *args: Any, own: Mapping[str, bool], pieces: Sequence[str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._own = {**own, **dict.fromkeys(PYXIS, True)}
        self._pieces = list(pieces)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split the words; click then parses ours."""
        try:
            ctx.obj = scan(args, self._own)
        except UsageError as error:
            if not ctx.resilient_parsing:
                raise click.UsageError(str(error), ctx) from error
            ctx.obj = scan([], self._own)
        return super().parse_args(ctx, list(ctx.obj.own))

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Show Docker's words in the usage line."""
        return self._pieces


def container_options(function: FunctionT) -> FunctionT:
    """Add the options of Pyxis."""
    for name, (metavar, text) in reversed(PYXIS.items()):
        function = click.option(f"--{name}", metavar=metavar, help=text)(function)
    return function


def pyxis_words(line: CommandLine, given: Mapping[str, str | None]) -> CommandLine:
    """Return the command line with Docker's words in place of Pyxis' options."""
    words: list[str] = []
    read: list[Option] = []
    for name, option in (("mounts", "volume"), ("workdir", "workdir"), ("name", "name"), ("env", "env")):
        text = given.get(f"container_{name}")
        for value in (text.split(",") if name in {"mounts", "env"} else [text]) if text else []:
            words.append(f"--{option}={value}")
            read.append(Option(option, value))
    image = given.get("container_image")
    return line.changed(
        docker=(*line.docker, *words),
        options=(*line.options, *read),
        image=(image, *line.image) if image else line.image,
    )
