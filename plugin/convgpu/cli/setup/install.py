"""`convgpu install`: registers ConvGPU with Docker, as its command, as CDI devices, or as a runtime."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from convgpu.cli.connect.engine import Engine, Plugin
from convgpu.cli.setup.docker_script import MARK, script
from convgpu.cli.terminal.errors import EXIT_CODES, Refused, Unavailable
from convgpu.cli.terminal.options import volume_driver
from convgpu.protocol.records import Devices
from convgpu.runtime.edits import Host

_LINK: Final = "docker-convgpu"
_SYSTEM: Final = Path("/usr/local/lib/docker/cli-plugins")
_CDI_FOLDER: Final = Path("/etc/cdi")

_HELP: Final = """Put ConvGPU where Docker finds it; --uninstall undoes it.

\b
docker   `docker convgpu ...`: puts a script for this command into ~/.docker/cli-plugins (or
         $DOCKER_CONFIG/cli-plugins), with --system for all users
cdi      `docker run --device convgpu.io/memory=2g IMAGE` on Docker 28.2 and newer:
         writes /etc/cdi/convgpu.json
runtime  prints what to write into daemon.json, so that containers of an OCI runtime,
         or all of them, are covered without options

Without a word it is docker. A link or file that this command did not make is left alone.

\b
Completion of `convgpu` itself, for bash (zsh and fish in the same way):
  eval "$(_CONVGPU_COMPLETE=bash_source convgpu)"
"""


@click.command(help=_HELP, epilog=EXIT_CODES)
@click.argument("what", type=click.Choice(["docker", "cdi", "runtime"]), default="docker")
@click.option("--system", is_flag=True, help="docker: for all users.")
@click.option("--uninstall", is_flag=True, help="Remove what this command made.")
@click.option(
    "--cdi-folder",
    type=click.Path(path_type=Path),
    default=_CDI_FOLDER,
    show_default=True,
    metavar="DIR",
    help="cdi: where the Engine looks (its setting cdi-spec-dirs).",
)
@volume_driver
def install(*, what: str, system: bool, uninstall: bool, cdi_folder: Path, driver: str) -> None:
    """Put ConvGPU where Docker finds it."""
    if what == "runtime":
        _show_runtime(driver, uninstall=uninstall)
        return
    folder = cdi_folder if what == "cdi" else _plugins(system=system)
    file = folder / ("convgpu.json" if what == "cdi" else _LINK)
    is_ours = _is_our_specification if what == "cdi" else _is_our_link
    exists = file.is_symlink() or file.exists()
    if exists and not is_ours(file):
        raise Refused(f"{file} is not what convgpu install makes.\nLook what it is, and remove it yourself")
    try:
        if not uninstall:
            (_write_specification(file, driver) if what == "cdi" else _make_link)(file)
        elif exists:
            file.unlink()
            click.echo(f"Removed {file}")
        else:
            click.echo(f"There is no {file}: nothing to remove.")
    except PermissionError as error:
        raise Refused(f"no permission to change {folder}.\nRun this as root: sudo convgpu install ...") from error
    except OSError as error:
        raise Refused(f"{file} cannot be changed: {error}") from error


def _plugins(*, system: bool) -> Path:
    return _SYSTEM if system else Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "cli-plugins"


def program(name: str) -> Path:
    """Return a program of this installation.

    Raises:
        Refused: it is not there.
    """
    for folder in (Path(sys.argv[0]).resolve().parent, Path(sys.executable).parent):
        if (folder / name).exists():
            return folder / name
    raise Refused(f"the program {name} is missing.\nInstall the package: pip install convgpu")


def _make_link(link: Path) -> None:
    target = program("convgpu")
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(f".{_LINK}.new")
    fresh.unlink(missing_ok=True)
    fresh.write_text(script(str(target)), encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(link)
    click.echo(f"{link} -> {target}\nTry it: docker convgpu ps")


def _is_our_link(link: Path) -> bool:
    if link.is_symlink():  # as earlier versions made it
        return link.readlink().name == "convgpu"
    try:
        return MARK in link.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def describe_host(engine: Engine, plugin: Plugin, devices: Devices) -> Host:
    """Return the paths on the Engine's host that hooks name.

    Raises:
        Refused: `convgpu-runtime` is missing.
    """
    simulated = devices.volume_library_path is not None
    return Host(str(program("convgpu-runtime")), str(engine.directory(plugin)), simulated)


def _ask(driver: str) -> tuple[Host, Engine, Devices]:
    from convgpu.cli.connect.discovery import open_plugin  # noqa: PLC0415 - a link needs none
    from convgpu.cli.connect.requests_http import RequestsHttp  # noqa: PLC0415 - as above

    engine = Engine.connect(RequestsHttp)
    plugin = engine.plugin(driver)
    devices = open_plugin(plugin.socket, RequestsHttp).devices()
    return describe_host(engine, plugin, devices), engine, devices


def _write_specification(file: Path, driver: str) -> Callable[[Path], None]:
    from convgpu.cli.setup import cdi_file  # noqa: PLC0415 - as above
    from convgpu.runtime.cdi import KIND  # noqa: PLC0415 - as above

    host, engine, devices = _ask(driver)
    specification = cdi_file.wanted(host, devices)
    sizes = [device["name"] for device in specification["devices"]]
    if not sizes:
        raise Unavailable("the plugin has no GPU with memory to hand out.\nSee why: convgpu doctor")

    def write(file: Path) -> None:
        if cdi_file.read(file) == specification:
            click.echo(f"{file} is up to date.")
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            fresh = file.with_name(f".{file.name}.new")
            fresh.write_text(json.dumps(specification, indent=2) + "\n")
            fresh.replace(file)
            click.echo(f"{file} is written: sizes from {sizes[1]} to {sizes[-1]}.")
        click.echo(f"Try it: docker run --device {KIND}={sizes[-1]} IMAGE")

    if str(file.parent) not in (engine.info.get("CDISpecDirs") or ()):
        version = engine.info.get("ServerVersion")
        raise Unavailable(
            f"the Docker Engine {version} does not look for CDI devices in {file.parent}.\nFrom Docker 25 on it does "
            'with "features": {"cdi": true} in daemon.json, from 28.2 on by itself; older ones: convgpu install runtime'
        )
    return write


def _is_our_specification(file: Path) -> bool:
    from convgpu.cli.setup.cdi_file import read  # noqa: PLC0415 - as above

    return read(file) is not None


def _show_runtime(driver: str, *, uninstall: bool) -> None:
    host, _, _ = _ask(driver)
    words = ["--convgpu-memory=2g", f"--convgpu-directory={host.directory}"]
    runtimes = {"runtimes": {"convgpu": {"path": host.program, "runtimeArgs": words}}}
    click.echo(json.dumps(runtimes, indent=2))
    action = "Take this out of" if uninstall else "Write this into"
    click.echo(f"{action} /etc/docker/daemon.json, then: kill -HUP $(pidof dockerd)", err=True)
    if not uninstall:
        click.echo('Then: docker run --runtime convgpu IMAGE; for all: "default-runtime": "convgpu"', err=True)
