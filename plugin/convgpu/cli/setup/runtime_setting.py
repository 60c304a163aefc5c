"""`convgpu install runtime`: our OCI runtime in the Engine's daemon.json, and out of it again."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any, Final

import click

from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.requests_http import RequestsHttp
from convgpu.cli.setup import daemon_json
from convgpu.cli.setup.daemon_json import is_our_runtime
from convgpu.cli.setup.engine_process import engine_pid, find_engine_pid
from convgpu.cli.setup.host_programs import ask, check_owner
from convgpu.cli.terminal.errors import Refused, Unavailable

NAME: Final = "convgpu"
_PROGRAM: Final = "convgpu-runtime"
_REAL: Final = "--convgpu-runtime="
_TIMEOUT: Final = 40.0  # seconds until the Engine has read its settings, as in `authorization`
_STEP: Final = 0.05


def entry(program: str, directory: str, memory: str, real: str | None = None) -> dict[str, Any]:
    """Return our runtime as daemon.json names it.

    Args:
        program: `convgpu-runtime`.
        directory: of the plugin, on the host.
        memory: the limit of a container that names none.
        real: the runtime that starts containers in the end; None: runc.
    """
    words = [f"--convgpu-memory={memory}", f"--convgpu-directory={directory}"]
    return {"path": program, "runtimeArgs": [*words, _REAL + real] if real else words}


def real_runtime(settings: dict[str, Any]) -> str | None:
    """Return the program of the default runtime, for which ours is to stand in; None: runc.

    Raises:
        Refused: it has arguments, which ours could not give it.
    """
    name = settings.get(daemon_json.DEFAULT_RUNTIME)
    found = daemon_json.runtimes(settings).get(str(name))
    if name == NAME:
        return next((word.removeprefix(_REAL) for word in _words(found) if word.startswith(_REAL)), None)
    if _words(found):
        raise Refused(
            f'the default runtime "{name}" has arguments, which {_PROGRAM} cannot give it.\n'
            "Name a program that gives them, or leave out --default"
        )
    return None if found is None or "path" not in found else str(found["path"])


def added(settings: dict[str, Any], ours: dict[str, Any], *, default: bool) -> dict[str, Any]:
    """Return the settings with our runtime, everything else as it was.

    Raises:
        Refused: they name another runtime by our name.
    """
    runtimes = daemon_json.runtimes(settings)
    if NAME in runtimes and not is_our_runtime(runtimes[NAME]):
        raise Refused(f'the settings name a runtime "{NAME}" that is not this one.\nTake it out first')
    chosen = NAME if default else settings.get(daemon_json.DEFAULT_RUNTIME)
    return daemon_json.with_runtimes(settings, {**runtimes, NAME: ours}, chosen)


def removed(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without our runtime; the one for which it stood in is the default again."""
    runtimes = daemon_json.runtimes(settings)
    ours = runtimes.get(NAME)
    if ours is None or not is_our_runtime(ours):
        return settings
    real = next((word.removeprefix(_REAL) for word in _words(ours) if word.startswith(_REAL)), None)
    left = {name: each for name, each in runtimes.items() if name != NAME}
    default = settings.get(daemon_json.DEFAULT_RUNTIME)
    if default == NAME:
        default = next((name for name, each in left.items() if each.get("path") == real), None)
    return daemon_json.with_runtimes(settings, left, default)


def _words(found: dict[str, Any] | None) -> list[str]:
    return [str(word) for word in (found or {}).get("runtimeArgs") or ()]


def show(driver: str, memory: str, *, uninstall: bool) -> None:
    """Print what belongs into daemon.json."""
    host, _, _ = ask(driver)
    runtimes = {daemon_json.RUNTIMES: {NAME: entry(host.program, host.directory, memory)}}
    click.echo(json.dumps(runtimes, indent=2))
    action = "Take this out of" if uninstall else "Write this into"
    click.echo(f"{action} /etc/docker/daemon.json, then: kill -HUP $(pidof dockerd)", err=True)
    click.echo("Or have both done: the same command with --write", err=True)
    if not uninstall:
        click.echo('Then: docker run --runtime convgpu IMAGE; for all: "default-runtime": "convgpu"', err=True)


def install(driver: str, memory: str, path: Path, pid_file: Path, *, default: bool) -> None:
    """Write our runtime into daemon.json, have the Engine read it, and prove that it has; else all is as before."""
    settings = daemon_json.read(path)
    host, engine, _ = ask(driver)
    check_owner(Path(host.program))
    ours = entry(host.program, host.directory, memory, real_runtime(settings) if default else None)
    wanted = added(settings, ours, default=default)
    pid = engine_pid(engine, pid_file)
    if wanted == settings and _is_in_force(engine, wanted):
        click.echo(f"{path} names the runtime already.")
        return
    _have_it_read(engine, path, wanted, pid, copy=not daemon_json.has_ours(settings, driver))
    daemon_json.write(path, wanted)
    click.echo(f"{path} names the runtime {NAME}, and the Engine has read it; a copy of the file is beside it.")
    covers = "Every container that gets a GPU is covered" if default else f"Try it: docker run --runtime {NAME} IMAGE"
    click.echo(f"{covers}. Undo it: convgpu install runtime --write --uninstall")


def uninstall(path: Path, pid_file: Path) -> None:
    """Take our runtime out of daemon.json; also without a plugin, and without an Engine that runs."""
    settings = daemon_json.read(path)
    wanted = removed(settings)
    if wanted == settings:
        click.echo(f"{path} names no runtime of this: nothing to remove.")
        return
    engine = Engine.connect(RequestsHttp)
    pid = find_engine_pid(engine, pid_file)
    if pid is not None:
        _have_it_read(engine, path, wanted, pid, copy=False)
    as_before = daemon_json.write_without(path, wanted)
    click.echo(f"{path} names the runtime {NAME} no more" + ("; it is as it was before." if as_before else "."))


def _have_it_read(engine: Engine, path: Path, wanted: dict[str, Any], pid: int, *, copy: bool) -> None:
    before = daemon_json.contents(path)
    daemon_json.write(path, daemon_json.explicit(wanted), copy=copy)
    os.kill(pid, signal.SIGHUP)
    end = time.monotonic() + _TIMEOUT
    while not _is_in_force(engine, wanted):
        if time.monotonic() > end:
            daemon_json.put_back(path, before)
            os.kill(pid, signal.SIGHUP)
            raise Unavailable(f"the Engine does not take these settings; {path} is as it was.\nIts log says why.")
        time.sleep(_STEP)


def _is_in_force(engine: Engine, wanted: dict[str, Any]) -> bool:
    info = engine.get("/info")
    named = daemon_json.runtimes(wanted).get(NAME)
    seen = (info.get("Runtimes") or {}).get(NAME)
    same = (seen is None) if named is None else seen is not None and seen.get("path") == named["path"]
    return same and (info.get("DefaultRuntime") == NAME) == (wanted.get(daemon_json.DEFAULT_RUNTIME) == NAME)
