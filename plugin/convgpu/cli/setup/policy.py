"""`convgpu policy`: the policy in force, and the rules of a site."""

from pathlib import Path
from typing import Final

import click

from convgpu.cli.completion import complete_policy
from convgpu.cli.connect.discovery import open_scheduler
from convgpu.cli.setup import site_rules
from convgpu.cli.setup.policy_choice import print_choice
from convgpu.cli.setup.strict import command as strict_list
from convgpu.cli.terminal.errors import EXIT_CODES
from convgpu.cli.terminal.options import as_json, directory, volume_driver

_POLICY: Final = """Show the policy, or choose another one for the containers that wait.

The policy chooses who of the waiting is next (docs/policies.md). The choice holds until the plugin starts again; for
good: docker plugin set convgpu CONVGPU_POLICY=NAME.
"""


@click.group(help=_POLICY, epilog=EXIT_CODES, invoke_without_command=True)
@as_json
@directory
@volume_driver
@click.pass_context
def policy(ctx: click.Context, *, as_json: bool, directory: Path | None, driver: str) -> None:
    """Show the policy."""
    ctx.obj = (directory, driver)
    if ctx.invoked_subcommand is not None:
        return
    choice = open_scheduler(directory, driver).policy()
    print_choice(choice, as_json=as_json)


@policy.command("use", epilog=EXIT_CODES)
@click.argument("name", shell_complete=complete_policy)
@click.pass_obj
def use(source: tuple[Path | None, str], name: str) -> None:
    """Choose the policy NAME from now on."""
    choice = open_scheduler(*source).policy(name)
    click.echo(f"The policy is {choice.policy} from now on.")


# The same word for the rules of a site: which containers may be, and which of them is next.
policy.add_command(site_rules.check)
policy.add_command(site_rules.test)
policy.add_command(strict_list.write)
