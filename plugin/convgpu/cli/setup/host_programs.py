"""The programs of this installation, and who can start or change them."""

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.engine_documents import Plugin
from convgpu.cli.terminal.errors import Refused
from convgpu.protocol.records import Devices
from convgpu.runtime.edits import Host

_FOR_ALL = "Install it for all: the Debian package, or by pip into an environment that root made, as /opt/convgpu"


def program(name: str) -> Path:
    """Return a program of this installation.

    Raises:
        Refused: it is not there.
    """
    for folder in (Path(sys.argv[0]).resolve().parent, Path(sys.executable).parent):
        if (folder / name).exists():
            return folder / name
    raise Refused(f"the program {name} is missing.\nInstall the package: pip install convgpu")


def check_reachable(program: Path) -> None:
    """Check that every user can start a program of this installation.

    Raises:
        Refused: one of its folders or files is closed to others.
    """
    for path in _parts(program):
        mode = path.stat().st_mode
        wanted = stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
        if not mode & wanted:
            raise Refused(f"{program} cannot be reached by other users: {path} is closed to them.\n{_FOR_ALL}")


def check_owner(program: Path) -> None:
    """Check that nobody but root can change a program of this installation, which the Engine is to run as root.

    Raises:
        Refused: somebody can.
    """
    for path in _parts(program):
        status = path.stat()
        others = status.st_mode & (stat.S_IWOTH | stat.S_IWGRP) and not status.st_mode & stat.S_ISVTX
        if status.st_uid != 0 or others:
            raise Refused(
                f"the Engine runs {program} as root, and others can change {path}: they would become root.\n{_FOR_ALL}"
            )


def _parts(program: Path) -> Iterator[Path]:
    """Yield the files that a start of a program reads, as far as they differ in who may, and all folders above them."""
    seen: set[Path] = set()
    for file in (program, Path(sys.executable), Path(__file__)):
        for path in (file.resolve(), Path(os.path.abspath(file))):  # noqa: PTH100 - with its symbolic links
            for each in (path, *path.parents):
                if each not in seen:
                    seen.add(each)
                    yield each


def describe_host(engine: Engine, plugin: Plugin, devices: Devices) -> Host:
    """Return the paths on the Engine's host that hooks name.

    Raises:
        Refused: `convgpu-runtime` is missing.
    """
    simulated = devices.volume_library_path is not None
    return Host(str(program("convgpu-runtime")), str(engine.directory(plugin)), simulated)


def ask(driver: str) -> tuple[Host, Engine, Devices]:
    """Ask Engine and plugin for what hooks name.

    Raises:
        Unavailable: one of them does not answer.
    """
    from convgpu.cli.connect.discovery import open_plugin  # noqa: PLC0415 - a link needs none
    from convgpu.cli.connect.requests_http import RequestsHttp  # noqa: PLC0415 - as above

    engine = Engine.connect(RequestsHttp)
    plugin = engine.plugin(driver)
    devices = open_plugin(plugin.socket, RequestsHttp).devices()
    return describe_host(engine, plugin, devices), engine, devices
