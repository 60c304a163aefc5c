"""`convgpu install`: registers ConvGPU with Docker, as its command, as CDI devices, or as a runtime."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from convgpu.cli.run.injection import check_memory
from convgpu.cli.setup import cdi_file
from convgpu.cli.setup.docker_script import LINK, is_our_link, plugins_folder, script
from convgpu.cli.setup.engine_process import pid_file, settings_file
from convgpu.cli.setup.host_programs import ask, check_reachable, program
from convgpu.cli.terminal.errors import EXIT_CODES, Refused, Unavailable
from convgpu.cli.terminal.options import checked, volume_driver

_HELP: Final = """Put ConvGPU where Docker finds it; --uninstall undoes it.

\b
docker   `docker convgpu ...`: puts a script for this command into ~/.docker/cli-plugins (or
         $DOCKER_CONFIG/cli-plugins), with --system for all users
plugin   the plugin itself: convgpu install plugin REGISTRY/convgpu:VERSION [SETTING=VALUE...]
         (a released package knows the image); then `convgpu upgrade` and `uninstall`
cdi      `docker run --device convgpu.io/memory=2g IMAGE` on Docker 28.2 and newer:
         writes /etc/cdi/convgpu.json
runtime  containers of an OCI runtime, or all of them (--default), are covered without
         options: prints what belongs into daemon.json; --write changes the file, keeps
         all else, and has the Engine read it

Without a word it is docker. A link or file that this command did not make is left alone.

\b
Completion of `convgpu` itself, for bash (zsh and fish in the same way; the Debian package has it):
  eval "$(_CONVGPU_COMPLETE=bash_source convgpu)"
"""


@click.command(help=_HELP, epilog=EXIT_CODES)
@click.argument("what", type=click.Choice(["docker", "plugin", "cdi", "runtime"]), default="docker")
@click.argument("words", nargs=-1, metavar="[IMAGE [SETTING=VALUE]...]")
@click.option("--system", is_flag=True, help="docker: for all users.")
@click.option("--uninstall", is_flag=True, help="Remove what this command made.")
@click.option(
    "--cdi-folder",
    type=click.Path(path_type=Path),
    default=cdi_file.FOLDER,
    show_default=True,
    metavar="DIR",
    help="cdi: where the Engine looks (its setting cdi-spec-dirs).",
)
@click.option("--write", is_flag=True, help="runtime: change daemon.json, and have the Engine read it.")
@click.option("--default", is_flag=True, help="runtime: with --write, for all containers that name no other one.")
@click.option(
    "--memory",
    default="2g",
    show_default=True,
    callback=checked(check_memory),
    help="runtime: the limit of a container that names none.",
)
@click.option("--grant-all-permissions", "grant", is_flag=True, help="plugin: do not ask, as for docker.")
@settings_file
@pid_file
@volume_driver
def install(*, what: str, words: tuple[str, ...], driver: str, **options: Any) -> None:
    """Put ConvGPU where Docker finds it."""
    if words and what != "plugin":
        raise click.UsageError(f"{' '.join(words)}: only `convgpu install plugin` takes more words")
    match what:
        case "plugin":
            _install_plugin(driver, words, uninstall=options["uninstall"], grant=options["grant"])
        case "runtime":
            _install_runtime(driver, **options)
        case _:
            folder = options["cdi_folder"] if what == "cdi" else plugins_folder(system=options["system"])
            for_all = what == "docker" and options["system"]
            _install_file(what, folder, driver, uninstall=options["uninstall"], for_all=for_all)


def _install_plugin(driver: str, words: tuple[str, ...], *, uninstall: bool, grant: bool) -> None:
    from convgpu.cli.setup.lifecycle import plugin_image  # noqa: PLC0415 - the other things need none of it

    if uninstall:
        raise click.UsageError("the plugin is removed, with all that was set up beside it, by: convgpu uninstall")
    plugin_image.install(driver, words, grant=grant)


def _install_runtime(
    driver: str, *, write: bool, uninstall: bool, default: bool, memory: str, path: Path, pid_file: Path, **_: Any
) -> None:
    from convgpu.cli.setup import runtime_setting  # noqa: PLC0415 - as above

    if not write:
        if default:
            raise click.UsageError("--default needs --write")
        runtime_setting.show(driver, memory, uninstall=uninstall)
    elif uninstall:
        runtime_setting.uninstall(path, pid_file)
    else:
        runtime_setting.install(driver, memory, path, pid_file, default=default)


def _install_file(what: str, folder: Path, driver: str, *, uninstall: bool, for_all: bool) -> None:
    file = folder / (cdi_file.NAME if what == "cdi" else LINK)
    is_ours = cdi_file.is_ours if what == "cdi" else is_our_link
    exists = file.is_symlink() or file.exists()
    if exists and not is_ours(file):
        raise Refused(f"{file} is not what convgpu install makes.\nLook what it is, and remove it yourself")
    try:
        if not uninstall:
            if for_all:
                check_reachable(program("convgpu"))
            (_write_specification(file, driver) if what == "cdi" else make_link)(file)
        elif exists:
            file.unlink()
            click.echo(f"Removed {file}")
        else:
            click.echo(f"There is no {file}: nothing to remove.")
    except PermissionError as error:
        raise Refused(f"no permission to change {folder}.\nRun this as root: sudo convgpu install ...") from error
    except OSError as error:
        raise Refused(f"{file} cannot be changed: {error}") from error


def make_link(link: Path) -> None:
    """Write the script for `docker convgpu`."""
    target = program("convgpu")
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(f".{LINK}.new")
    fresh.unlink(missing_ok=True)
    fresh.write_text(script(str(target)), encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(link)
    click.echo(f"{link} -> {target}\nTry it: docker convgpu ps")


def _write_specification(file: Path, driver: str) -> Callable[[Path], None]:
    from convgpu.runtime.cdi import KIND  # noqa: PLC0415 - as above

    host, engine, devices = ask(driver)
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
