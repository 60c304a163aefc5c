"""`docker convgpu ...`: the protocol of Docker's command-line plugins (docs.docker.com/engine/extend/cli_plugins).

Docker calls `docker-convgpu [its global options] convgpu WORDS...`, the same with `help` or `__complete` in front of
`convgpu`, and `docker-convgpu docker-cli-plugin-metadata`.
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from convgpu.cli.setup.docker_script import METADATA, metadata

_NAME: Final = "convgpu"
_WITH_VALUE: Final = frozenset(
    {
        "-H",
        "--host",
        "-c",
        "--context",
        "--config",
        "-l",
        "--log-level",
        "--tlscacert",
        "--tlscert",
        "--tlskey",
    }
)
_COMPLETE: Final = frozenset({"__complete", "__completeNoDesc"})


def split(words: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """Split the arguments of a call by Docker.

    Returns:
        The action (`run`, `help` or `__complete`), Docker's global options, and the arguments behind our name.
    """
    wanted = "run"
    options: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == _NAME:
            return wanted, options, list(rest)
        if word == "help" or word in _COMPLETE:
            wanted = "__complete" if word in _COMPLETE else word
            continue
        options.append(word)
        if word in _WITH_VALUE:
            options.append(next(rest, ""))
    return wanted, options, []


def start_plugin(main: click.Group, words: Sequence[str]) -> NoReturn:
    """Answer one call by Docker's command line, and exit."""
    if list(words) == [METADATA]:
        click.echo(json.dumps(metadata()))
        sys.exit(0)
    # A `docker run` that replaces this process is no plugin, and has its own signals.
    os.environ.pop("DOCKER_CLI_PLUGIN_SOCKET", None)
    wanted, options, rest = split(words)
    if wanted == "__complete":
        from convgpu.cli.completion import complete  # noqa: PLC0415 - not needed otherwise

        click.echo("\n".join(complete(main, [*options, *rest[:-1]], rest[-1] if rest else "")))
        sys.exit(0)
    arguments = [*options, *rest, "--help"] if wanted == "help" else [*options, *rest]
    main(arguments or ["--help"], prog_name="docker convgpu")
    sys.exit(0)
