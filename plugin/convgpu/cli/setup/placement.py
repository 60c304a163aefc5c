"""`convgpu placement`: the policy that chooses the GPUs of containers."""

from pathlib import Path
from typing import Final

import click

from convgpu.cli.completion import complete_placement
from convgpu.cli.connect.discovery import open_scheduler
from convgpu.cli.setup.policy_choice import print_choice
from convgpu.cli.terminal.errors import EXIT_CODES
from convgpu.cli.terminal.options import as_json, directory, volume_driver

_PLACEMENT: Final = """Show the policy that chooses GPUs, or choose another one.

It decides where a container goes that leaves its GPUs to the scheduler, when its first process starts CUDA
(docs/policies.md). What has a place keeps it. The choice holds until the setting changes; for good:
docker plugin set convgpu CONVGPU_PLACEMENT=NAME.
"""


@click.group(help=_PLACEMENT, epilog=EXIT_CODES, invoke_without_command=True)
@as_json
@directory
@volume_driver
@click.pass_context
def placement(ctx: click.Context, *, as_json: bool, directory: Path | None, driver: str) -> None:
    """Show the policy of placement."""
    ctx.obj = (directory, driver)
    if ctx.invoked_subcommand is not None:
        return
    choice = open_scheduler(directory, driver).placement()
    print_choice(choice, as_json=as_json)


@placement.command("use", epilog=EXIT_CODES)
@click.argument("name", shell_complete=complete_placement)
@click.pass_obj
def use(source: tuple[Path | None, str], name: str) -> None:
    """Let the policy NAME choose GPUs from now on."""
    choice = open_scheduler(*source).placement(name)
    click.echo(f"GPUs are chosen by {choice.policy} from now on.")
