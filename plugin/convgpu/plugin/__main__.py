"""`python -m convgpu.plugin`: the scheduler daemon and the plugin's server, together."""

import argparse
import logging.config
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from convgpu.plugin import log_setup, reader_access
from convgpu.plugin.engine.propagation import needs_restart
from convgpu.plugin.settings import Settings, read_possible_settings, read_settings
from convgpu.plugin.supervisor import Supervisor

_OPTIONS: Final = {
    "name": "the plugin's name in the Engine",
    "directory": "the scheduler's directory",
    "socket": "where the Engine looks for the plugin",
    "engine": "the Engine's own socket",
    "log": "the lowest level that is logged: debug, info, warning or error",
    "log_format": "of the log's lines: text, or json",
}


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Run until a signal (0), a child ends soon after its start, or the Engine lost our mounts (1).

    2 for a setting that is not possible. With CONVGPU_EXPLAIN_FAILURE the plugin runs without that setting, and its
    scheduler only says what is wrong; and it starts a child again that ends soon after its start.
    """
    given, refusal = {**environment, **_parse(arguments)}, []
    try:
        settings = read_settings(given)
    except ValueError as error:
        sys.stderr.write(f"convgpu.plugin: {error}\n")
        if not environment.get("CONVGPU_EXPLAIN_FAILURE"):
            return 2
        settings, refusal = read_possible_settings(given), [f"--refuse={error}"]
    logging.config.dictConfig(log_setup.configuration(settings.log, settings.log_format))
    if settings.read_only_folders is not None and needs_restart(settings.directory):
        return 1
    settings.socket.parent.mkdir(parents=True, exist_ok=True)
    commands = _commands(refusal, has_readers=reader_access.prepare(settings))
    persists = bool(environment.get("CONVGPU_EXPLAIN_FAILURE"))
    supervisor = Supervisor(
        commands, {**environment, **settings.environment()}, {"server": settings.socket}, gives_up=not persists
    )
    return supervisor.run()


def _parse(arguments: Sequence[str] | None) -> dict[str, str]:
    """Return the given options as environment variables."""
    defaults = Settings()
    parser = argparse.ArgumentParser(prog="python -m convgpu.plugin", description=__doc__)
    for name, meaning in _OPTIONS.items():
        text = f"{meaning} (CONVGPU_{name.upper()}, default {getattr(defaults, name)})"
        parser.add_argument(f"--{name.replace('_', '-')}", help=text)
    given = vars(parser.parse_args(arguments))
    return {f"CONVGPU_{name.upper()}": value for name, value in given.items() if value is not None}


def _commands(refusal: Sequence[str], *, has_readers: bool) -> dict[str, list[str]]:
    """Return the processes; `refusal`: options of a scheduler that only says what is wrong with the settings."""
    gunicorn = [sys.executable, "-m", "gunicorn", "--config"]
    package = "convgpu.plugin.server"
    commands = {
        "scheduler": [sys.executable, "-m", "convgpu.daemon", *refusal],
        "server": [*gunicorn, f"python:{package}.gunicorn_config", f"{package}.wsgi:create()"],
    }
    if has_readers:
        commands["readers"] = [*gunicorn, f"python:{package}.readers_config", f"{package}.readers:create()"]
    return commands


if __name__ == "__main__":
    sys.exit(main())
