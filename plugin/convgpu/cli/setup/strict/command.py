"""`convgpu policy write`."""

import re
import time
from pathlib import Path
from typing import Final

import click

from convgpu.cli.connect.engine import Engine
from convgpu.cli.setup.strict.seen import read_what_ran
from convgpu.cli.terminal.errors import EXIT_CODES, Unavailable
from convgpu.cli.terminal.options import as_json, volume_driver
from convgpu.cli.terminal.output import echo_data

_WRITE: Final = """Write a starting list for strict rules, from what ran on this host.

It reads the Engine's containers, running and ended, and what authorization noted of those that were removed. What it
writes permits these containers and nothing else; a comment names who needed each line (docs/strict-rules.md).

\b
  convgpu policy write > rules.toml
  convgpu policy check rules.toml
"""
_SPAN: Final = re.compile(r"([0-9]{1,5})([dwh])", re.ASCII)
_SECONDS: Final = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


@click.command("write", help=_WRITE, epilog=EXIT_CODES)
@click.option("--since", default="3w", show_default=True, metavar="DURATION", help="How far back: 12h, 5d, 3w.")
@as_json
@volume_driver
def write(since: str, driver: str, *, as_json: bool) -> None:
    """Write the list."""
    span = _SPAN.fullmatch(since)
    if span is None:
        raise click.BadParameter(f"{since!r} is not a duration: write it as 12h, 5d or 3w", param_hint="--since")
    engine = Engine.connect()
    try:
        plugin = engine.plugin(driver)
    except Unavailable as error:
        click.echo(f"What authorization noted is missing, so only the Engine's own containers count: {error}", err=True)
        directory, identity = None, ""
    else:
        directory, identity = Path(engine.directory(plugin)), plugin.id
    begin = time.time() - int(span[1]) * _SECONDS[span[2]]
    found = read_what_ran(engine, driver, directory, identity, begin)
    if as_json:
        echo_data(found.as_data())
    else:
        click.echo(found.as_toml(), nl=False)
    click.echo(f"{found.containers} containers, {len(found.refused)} of them refused with any list.", err=True)
