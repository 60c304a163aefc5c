"""How a choice among policies is shown, of memory as of placement."""

from convgpu.cli.terminal.output import echo, echo_data
from convgpu.protocol.records import PolicyChoice


def print_choice(choice: PolicyChoice, *, as_json: bool) -> None:
    """Print the policies that are known, with a star before the one in force."""
    if as_json:
        echo_data(choice)
        return
    for name in choice.known or (choice.policy,):
        chosen = name == choice.policy
        echo(f"{'*' if chosen else ' '} {name}", "bold" if chosen else "")
