"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from convgpu.cli.terminal.option_table import VOLUME_DRIVER, OptionRow

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def checked(check: Callable[[str], str]) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Make click ask `check`, and show its text as a usage error."""

    def callback(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
        try:
            return None if value is None else check(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return callback


def as_click(row: OptionRow) -> Callable[[FunctionT], FunctionT]:
    """Return the decorator that adds an option of a table to a command."""
    settings: dict[str, Any] = {"help": row.help, "is_flag": row.is_flag, "required": row.required}
    if row.metavar is not None:
        settings["metavar"] = row.metavar
    if row.check is not None:
        settings["callback"] = checked(row.check)
    if row.choices:
        settings["type"] = click.Choice(row.choices)
    if row.default is not None:
        settings |= {"default": row.default, "show_default": True}
    if row.variable:
        settings |= {"envvar": row.variable, "show_envvar": True}
    return click.option(*row.names, row.key, **settings)


volume_driver = as_click(VOLUME_DRIVER)

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
