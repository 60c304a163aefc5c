"""The Engine's process and its settings file, for commands that change settings and have it read them."""

import contextlib
import socket
import struct
from pathlib import Path

import click

from convgpu.cli.connect.engine import Engine
from convgpu.cli.terminal.errors import Unavailable

settings_file = click.option(
    "--daemon-json",
    "path",
    default="/etc/docker/daemon.json",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="The Engine's settings.",
)
pid_file = click.option(
    "--pid-file",
    default="/var/run/docker.pid",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Where the Engine's process is found, if not behind its socket.",
)


def engine_pid(engine: Engine, pid_file: Path) -> int:
    """Return the Engine's process.

    Raises:
        Unavailable: none is found.
    """
    pid = find_engine_pid(engine, pid_file)
    if pid is None:
        raise Unavailable(f"no Engine is found behind its socket or in {pid_file}.\nName the file with --pid-file.")
    return pid


def find_engine_pid(engine: Engine, pid_file: Path) -> int | None:
    """Return the Engine's process: the one that listens on its socket, unless systemd opened that for it."""
    pids = []
    if engine.endpoint.socket is not None:
        with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
            connection.connect(str(engine.endpoint.socket))
            pids.append(struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
    with contextlib.suppress(OSError, ValueError):
        pids.append(int(pid_file.read_text()))
    return next((pid for pid in pids if _program(pid) == "dockerd"), None)


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
