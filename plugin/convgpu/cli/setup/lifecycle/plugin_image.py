"""The plugin's image: installed from a registry by `convgpu install plugin`, replaced by `convgpu upgrade`."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from convgpu.cli.connect.discovery import open_plugin
from convgpu.cli.connect.engine import Engine, EngineRefused, explain
from convgpu.cli.connect.http_answer import BEGINNING
from convgpu.cli.connect.requests_http import RequestsHttp
from convgpu.cli.run.preparation import NO_DOCKER
from convgpu.cli.setup import authorization, daemon_json
from convgpu.cli.setup.engine_process import pid_file, settings_file
from convgpu.cli.terminal.errors import EXIT_CODES, Refused, Unavailable
from convgpu.cli.terminal.options import volume_driver
from convgpu.protocol.records import Devices
from convgpu.protocol.sizes import format_size

_HELP: Final = """Replace the plugin by another version; containers that run go on.

IMAGE is REGISTRY/convgpu:VERSION; without it the one of this command's own version, where that was released with one.
The image is looked for first, so that a wrong name changes nothing. Then authorization is turned off if it is on, the
plugin is disabled, replaced and enabled, and authorization is turned on again. Meanwhile new memory waits, and
containers with a limit cannot be started. If the image cannot be installed, the old one is enabled again.

Upgrade the command itself first, as you installed it: apt install ./convgpu_VERSION.deb, or pipx upgrade convgpu.
"""
_RELEASE: Final = Path(__file__).parents[3] / "release.json"  # written by scripts/release/build_hook.py
_STEP: Final = 0.1
_NOT_FOUND: Final = 404
_STDERR: Final = 2  # stdout is for the result
_FORM: Final = "Name the image: REGISTRY/convgpu:VERSION"

grant_all = click.option(
    "--grant-all-permissions", "grant", is_flag=True, help="Do not ask whether the plugin may have what it needs."
)


def released_image(file: Path = _RELEASE) -> str | None:
    """Return the plugin's image with which this package was released; None if it names none."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return str(found["plugin_image"]) if isinstance(found, dict) and found.get("plugin_image") else None


def look_up(engine: Engine, driver: str) -> dict[str, Any] | None:
    """Return what the Engine says of the plugin, enabled or not; None without one."""
    try:
        found: dict[str, Any] = engine.get(f"/plugins/{quote(driver)}/json")
    except EngineRefused as error:
        if error.status == _NOT_FOUND:
            return None
        raise
    return found


def install(driver: str, words: Sequence[str], *, grant: bool) -> None:
    """Install and enable the plugin, and wait until its scheduler answers.

    Args:
        driver: its name in the Engine.
        words: the image, and settings NAME=VALUE.
        grant: do not ask for its permissions.

    Raises:
        Refused: there is a plugin of the name, or no image.
        Unavailable: it cannot be fetched, or does not come up.
    """
    engine = Engine.connect(RequestsHttp)
    found = look_up(engine, driver)
    if found is not None:
        state = "is there" if found.get("Enabled") else f"is there and disabled: docker plugin enable {driver}"
        raise Refused(f"the plugin {driver!r} {state}.\nAnother version: convgpu upgrade IMAGE")
    settings = [word for word in words if "=" in word]
    image = _image([word for word in words if "=" not in word])
    if driver != "convgpu":
        settings.append(f"CONVGPU_NAME={driver}")
    options = ["--alias", driver, *(["--grant-all-permissions"] if grant else [])]
    docker(engine, "plugin", "install", *options, image, *settings, mend=_FORM)
    devices = wait_for(engine, driver).devices
    gpus = ", ".join(f"{device.index}: {device.name}, {format_size(device.capacity)}" for device in devices)
    click.echo(f"The plugin {driver} is enabled. GPUs: {gpus or 'none'}.\nProve that limits hold: convgpu doctor")


def _image(named: Sequence[str]) -> str:
    image = named[0] if named else released_image()
    if image is None:
        raise Refused(f"this package was not released with a plugin's image.\n{_FORM}")
    if len(named) > 1:
        raise click.UsageError(f"{' '.join(named)}: one image only; settings are NAME=VALUE")
    return image


def wait_for(engine: Engine, driver: str) -> Devices:
    """Wait until the scheduler of an enabled plugin answers; return its devices.

    Raises:
        Unavailable: it does not, with its reason as far as it says one.
    """
    end = time.monotonic() + BEGINNING
    while True:
        try:
            return open_plugin(engine.plugin(driver).socket, RequestsHttp).devices()
        except (Unavailable, Refused):
            if time.monotonic() > end:
                raise
        time.sleep(_STEP)


@click.command(help=_HELP, epilog=EXIT_CODES)
@click.argument("image", required=False)
@grant_all
@settings_file
@pid_file
@volume_driver
@click.pass_context
def upgrade(ctx: click.Context, image: str | None, path: Path, pid_file: Path, driver: str, *, grant: bool) -> None:
    """Replace the plugin."""
    engine = Engine.connect(RequestsHttp)
    before = look_up(engine, driver)
    if before is None:
        raise Unavailable(f"the Docker Engine has no plugin {driver!r}.\nInstall it: convgpu install plugin IMAGE")
    image = _image([image] if image else [])
    _confirm(driver, image, _permissions(engine, image), grant=grant)
    guarded = any(daemon_json.is_same_plugin(each, driver) for each in daemon_json.names(daemon_json.read(path)))
    words = {"path": path, "pid_file": pid_file, "driver": driver, "dry_run": False}
    if guarded:
        ctx.invoke(authorization.disable, **words)
    try:
        _replace(engine, driver, image, enabled=bool(before["Enabled"]))
    finally:
        if guarded:
            ctx.invoke(authorization.enable, **words)
    click.echo(f"The plugin {driver} is {image}; it was {before.get('PluginReference') or 'made here'}.")


def _replace(engine: Engine, driver: str, image: str, *, enabled: bool) -> None:
    """Disable, replace and enable; whatever happens in between, a plugin that was enabled is enabled at the end."""
    if enabled:
        docker(engine, "plugin", "disable", "-f", driver)
    try:
        options = ("--skip-remote-check", "--grant-all-permissions")
        docker(engine, "plugin", "upgrade", *options, driver, image, mend=_FORM)
    finally:
        if enabled:
            docker(engine, "plugin", "enable", driver)
            wait_for(engine, driver)


def _permissions(engine: Engine, image: str) -> list[dict[str, Any]]:
    """Return what a plugin's image needs, as its registry says.

    Raises:
        Unavailable: it is not an image of a plugin, or not to be had.
    """
    from docker.errors import DockerException  # noqa: PLC0415 - the SDK is needed here only

    try:
        api: Any = engine.client.api
        api.inspect_distribution(image)  # an Engine of 20.10 says of an image that is not there: no permissions
        found: list[dict[str, Any]] = api.plugin_privileges(image)
    except DockerException as error:
        text = str(getattr(error, "explanation", None) or explain(error, engine.endpoint.host).message)
        raise Unavailable(f"{image} cannot be had: {text.strip()}.\nNothing was changed. {_FORM}") from error
    return found


def _confirm(driver: str, image: str, permissions: Sequence[dict[str, Any]], *, grant: bool) -> None:
    if grant:
        return
    if not sys.stdin.isatty():
        raise Refused("the plugin's permissions have to be granted.\nAdd --grant-all-permissions")
    click.echo(f"{image} needs on this host:")
    for each in permissions:
        click.echo(f"  {each.get('Name')}: {', '.join(map(str, each.get('Value') or ()))}")
    click.confirm(f"Replace the plugin {driver}", abort=True)


def docker(engine: Engine, *words: str, mend: str = "See: docker plugin ls") -> None:
    """Run docker, which knows the registries' credentials, with its questions and its progress on stderr.

    Raises:
        Unavailable: it failed; the text is the last line that it said, and the next step.
    """
    try:
        done = subprocess.run(
            ["docker", *engine.endpoint.flags, *words],
            check=False,
            stdout=_STDERR,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise Unavailable(NO_DOCKER) from error
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"]
        reason = said[-1].removeprefix("Error response from daemon: ").removeprefix("Error: ")
        if reason.startswith("permission denied while"):
            mend = "Its permissions have to be granted: type y"
        raise Unavailable(f"docker {words[0]} {words[1]} {words[-1]} failed: {reason}.\n{mend}")
