"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path

import click

volume_driver = click.option(
    "--gpu-volume-driver",
    "driver",
    default="convgpu",
    envvar="CONVGPU_NAME",
    show_default=True,
    show_envvar=True,
    metavar="NAME",
    help="The name of the ConvGPU plugin in the Engine.",
)

directory = click.option(
    "--directory",
    envvar="CONVGPU_DIRECTORY",
    show_envvar=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Ask the convgpud that runs without Docker in DIR, instead of the plugin.",
)

plugin_socket = click.option(
    "--socket",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The plugin's socket, when no Engine of this machine is to be asked for it.",
)

as_json = click.option("--json", "as_json", is_flag=True, help="Print data instead of a table.")


def checked(check: Callable[[str], str]) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Make click ask `check`, and show its text as a usage error."""

    def callback(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
        try:
            return None if value is None else check(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return callback
