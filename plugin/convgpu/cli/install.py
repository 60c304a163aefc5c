"""`convgpu install`: makes `docker convgpu ...` work."""

import os
import sys
from pathlib import Path
from typing import Final

import click

from convgpu.cli.errors import EXIT_CODES, Refused

_LINK: Final = "docker-convgpu"
_SYSTEM: Final = Path("/usr/local/lib/docker/cli-plugins")

_HELP: Final = """Link this command where Docker's command line finds its plugins, so that `docker convgpu ...` works.

For you alone into ~/.docker/cli-plugins (or $DOCKER_CONFIG/cli-plugins), with --system for all users into
/usr/local/lib/docker/cli-plugins. --uninstall removes the link again. A file that is not such a link is left alone.

\b
Completion of `convgpu` itself, for bash (zsh and fish in the same way):
  eval "$(_CONVGPU_COMPLETE=bash_source convgpu)"
"""


@click.command(help=_HELP, epilog=EXIT_CODES)
@click.option("--system", is_flag=True, help="For all users.")
@click.option("--uninstall", is_flag=True, help="Remove what this command made.")
def install(*, system: bool, uninstall: bool) -> None:
    """Make `docker convgpu` work."""
    folder = _SYSTEM if system else Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "cli-plugins"
    link = folder / _LINK
    if link.is_symlink() or link.exists():
        _check_ours(link)
    elif uninstall:
        click.echo(f"There is no {link}: nothing to remove.")
        return
    try:
        _remove(link) if uninstall else _make(link)
    except PermissionError as error:
        raise Refused(f"no permission to change {folder}.\nRun this as root: sudo convgpu install --system") from error
    except OSError as error:
        raise Refused(f"{link} cannot be changed: {error}") from error


def program() -> Path:
    """Return the `convgpu` that runs."""
    found = Path(sys.argv[0]).absolute()
    beside = Path(sys.executable).parent / "convgpu"
    return found if found.name in {"convgpu", _LINK} else beside


def _make(link: Path) -> None:
    target = program().resolve() if program().name == _LINK else program()
    if not target.exists():
        raise Refused(f"{target} is missing.\nInstall the package (pip install convgpu) and run its convgpu install")
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(f".{_LINK}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)
    click.echo(f"{link} -> {target}\nTry it: docker convgpu ps")


def _remove(link: Path) -> None:
    link.unlink()
    click.echo(f"Removed {link}")


def _check_ours(link: Path) -> None:
    if not link.is_symlink() or link.readlink().name != "convgpu":
        raise Refused(f"{link} is not a link that convgpu install made.\nLook what it is, and remove it yourself")
