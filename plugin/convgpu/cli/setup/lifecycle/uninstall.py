"""`convgpu uninstall`: takes everything off this host that ConvGPU's commands have put there."""

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.requests_http import RequestsHttp
from convgpu.cli.setup import authorization, cdi_file, daemon_json, docker_script, runtime_setting
from convgpu.cli.setup.authorization import dry_run
from convgpu.cli.setup.engine_process import pid_file, settings_file
from convgpu.cli.setup.lifecycle.plugin_image import docker, look_up
from convgpu.cli.terminal.errors import EXIT_CODES, Refused, Unavailable
from convgpu.cli.terminal.options import volume_driver

_HELP: Final = """Take everything off this host that ConvGPU's commands have put there, in the safe order.

That is: the name in the Engine's authorization-plugins, the runtime in its daemon.json, /etc/cdi/convgpu.json, volumes
of no container, the plugin with its history, and `docker convgpu`. Containers that have a volume of the plugin stop it
before anything is changed. The rules in /etc/convgpu stay. The last line says how the command itself is removed.
"""
_DEBIAN: Final = Path("/usr/lib/convgpu")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to remove: its name for people, and what removes it."""

    text: str
    do: Callable[[], object]


@click.command(help=_HELP, epilog=EXIT_CODES)
@dry_run
@settings_file
@pid_file
@volume_driver
@click.pass_context
def uninstall(ctx: click.Context, path: Path, pid_file: Path, driver: str, *, dry_run: bool) -> None:
    """Take everything off."""
    engine = Engine.connect(RequestsHttp)
    plugin = look_up(engine, driver)
    if plugin and not plugin.get("Enabled") and not dry_run:
        plugin = _enabled(engine, driver, plugin)
    volumes = _volumes(engine, driver)
    _check_unused(engine, driver, volumes)
    settings = daemon_json.read(path)
    steps = [
        *_settings_steps(ctx, settings, path, pid_file, driver),
        *(Step(str(file), partial(_unlink, file)) for file in _files(engine)),
        *(Step(f"volume {name}", partial(docker, engine, "volume", "rm", name)) for name in volumes),
        *([Step(f"plugin {driver}", partial(_remove_plugin, engine, driver, plugin))] if plugin else []),
    ]
    for step in steps:
        if not dry_run:
            step.do()
        click.echo(f"{'Would remove' if dry_run else 'Removed'}: {step.text}")
    if not steps:
        click.echo("Nothing of ConvGPU is set up on this host.")
    click.echo(f"The command itself: {package_removal(str(Path(sys.executable).parents[1]))}", err=True)


def package_removal(prefix: str) -> str:
    """Return the line that removes the installation in `prefix`."""
    if Path(prefix) == _DEBIAN:
        return "apt remove convgpu"
    return "pipx uninstall convgpu" if "pipx" in Path(prefix).parts else f"{prefix}/bin/pip uninstall convgpu"


def _enabled(engine: Engine, driver: str, plugin: dict[str, Any]) -> dict[str, Any]:
    """Enable a disabled plugin if that can be, since only then the Engine lists its volumes.

    One that stays in the Engine's own list holds up each start of the Engine for 15 s, and cannot be removed any more.
    """
    with contextlib.suppress(Unavailable):
        docker(engine, "plugin", "enable", driver)
        return {**plugin, "Enabled": True}
    return plugin


def _volumes(engine: Engine, driver: str) -> list[str]:
    """Return the names of the plugin's volumes."""
    rows = engine.get("/volumes").get("Volumes") or ()
    return sorted(row["Name"] for row in rows if daemon_json.is_same_plugin(str(row.get("Driver")), driver))


def _check_unused(engine: Engine, driver: str, volumes: list[str]) -> None:
    """Raise, with their names, if containers have volumes of the plugin: they would not start again."""
    rows = engine.get("/containers/json", all=1)
    names = []
    for row in rows:
        has = {str(mount.get("Name")) for mount in row.get("Mounts") or ()} & set(volumes)
        if has:
            names.append(str(row["Names"][0]).lstrip("/"))
    if names:
        raise Refused(
            f"containers have volumes of the plugin {driver!r}: {', '.join(sorted(names))}.\n"
            f"Remove them first: docker rm -f -v {' '.join(sorted(names))}"
        )


def _settings_steps(
    ctx: click.Context, settings: dict[str, Any], path: Path, pid_file: Path, driver: str
) -> list[Step]:
    words = {"path": path, "pid_file": pid_file, "driver": driver, "dry_run": False}
    steps = []
    if any(daemon_json.is_same_plugin(each, driver) for each in daemon_json.names(settings)):
        steps.append(Step(f"{driver} in {path}, authorization", lambda: ctx.invoke(authorization.disable, **words)))
    if runtime_setting.removed(settings) != settings:
        steps.append(Step(f"the runtime in {path}", partial(runtime_setting.uninstall, path, pid_file)))
    return steps


def _files(engine: Engine) -> list[Path]:
    """Return the files that `convgpu install` has made."""
    links = [docker_script.plugins_folder(system=system) / docker_script.LINK for system in (False, True)]
    folders = {cdi_file.FOLDER, *map(Path, engine.info.get("CDISpecDirs") or ())}
    specifications = [folder / cdi_file.NAME for folder in sorted(folders)]
    found = [link for link in links if link.exists() and docker_script.is_our_link(link)]
    return [*found, *(file for file in specifications if cdi_file.is_ours(file))]


def _unlink(file: Path) -> None:
    try:
        file.unlink()
    except OSError as error:
        raise Refused(
            f"{file} cannot be removed: {error.strerror}.\nRun this as root: sudo convgpu uninstall"
        ) from error


def _remove_plugin(engine: Engine, driver: str, plugin: dict[str, Any]) -> None:
    if plugin.get("Enabled"):
        docker(engine, "plugin", "disable", driver)
    docker(engine, "plugin", "rm", driver)
