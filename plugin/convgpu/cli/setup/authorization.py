"""`convgpu authz`: turns authorization on and off, in the order that locks nobody out."""

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from convgpu.cli.connect.engine import Engine, EngineRefused
from convgpu.cli.connect.http_answer import BEGINNING
from convgpu.cli.connect.requests_http import RequestsHttp
from convgpu.cli.setup import daemon_json
from convgpu.cli.setup.daemon_json import is_same_plugin
from convgpu.cli.setup.engine_process import engine_pid, find_engine_pid, pid_file, settings_file
from convgpu.cli.setup.strict.promises import (
    accepted_removals,
    endless_servers,
    open_entries,
    open_nodes,
    setgid_paths,
    shared_ids,
    unfit_engine,
    unjudged_starts,
)
from convgpu.cli.terminal.errors import EXIT_CODES, Refused, Unavailable
from convgpu.cli.terminal.options import as_json, volume_driver
from convgpu.cli.terminal.output import echo_data
from convgpu.protocol.sizes import format_size

_HELP: Final = """Turn the authorization of the local Engine on or off, or show whether it works.

The Engine asks the plugin about each call only if its daemon.json names it, and it ends when it reads a daemon.json
that names a plugin which is not there. So these commands change daemon.json and the Engine in the safe order, and
refuse the deadly one. They must run as root on the Engine's own host. docs/operations.md has the whole story.
"""
_ENABLE: Final = """Turn authorization on: check the plugin, name it in daemon.json, have the Engine read it, prove it.

What cannot be proved is taken back.
"""
_DISABLE: Final = """Turn authorization off. Works also when the plugin is gone and every call to the Engine fails."""
_STATUS: Final = """Show whether the Engine asks the plugin, by which rules, and what is wrong.

\b
Ends with 1 if something is wrong. --json prints an object:
  plugin       enabled, disabled or missing
  named        daemon.json names the plugin
  in_force     the Engine asks it
  mode, rules, rules_error, engine_error   as the plugin says
  problems     lines for people
  warnings     lines for people about what the mode does not promise here
  quotas       what users and labels with a total quota have of each GPU: kind, name, device, running, left,
               total_quota (bytes)
"""

_PROOF_TIMEOUT: Final = 40.0  # seconds until the Engine has read its settings; a missing plugin holds a call for 16
_NOT_FOUND: Final = 404
_SEE_LOG: Final = "See its log: journalctl -u docker | grep plugin="
_STEP: Final = 0.05
_SOCKETS: Final = Path("/run/docker/plugins")

dry_run = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


@dataclass(frozen=True, slots=True)
class Status:
    """See `convgpu authz status --json`."""

    plugin: str
    named: bool
    in_force: bool
    mode: str | None = None
    rules: str | None = None
    rules_error: str | None = None
    engine_error: str | None = None
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    quotas: tuple[dict[str, Any], ...] = ()


@click.group(help=_HELP, epilog=EXIT_CODES)
def authz() -> None:
    """Turn authorization on or off."""


@authz.command("enable", help=_ENABLE, epilog=EXIT_CODES)
@settings_file
@pid_file
@volume_driver
@dry_run
def enable(path: Path, pid_file: Path, driver: str, *, dry_run: bool) -> None:
    """Turn it on."""
    engine = Engine.connect(RequestsHttp)
    settings = daemon_json.read(path)
    pid = engine_pid(engine, pid_file)
    _check_before(engine, driver, settings, pid)
    listed = daemon_json.names(settings)
    named = any(is_same_plugin(each, driver) for each in listed)
    wanted = daemon_json.with_names(settings, listed if named else [*listed, driver])
    steps = [] if named else [f"name {driver} in {path}, with a copy beside it"]
    steps += [f"send SIGHUP to the Engine, process {pid}, which then reads it", "prove that the Engine asks the plugin"]
    if _announce(steps, dry_run=dry_run):
        return
    before = daemon_json.contents(path)
    daemon_json.write(path, wanted, copy=not daemon_json.has_ours(settings, driver))
    os.kill(pid, signal.SIGHUP)
    if not _becomes(engine, driver, in_force=True):
        daemon_json.put_back(path, before)
        os.kill(pid, signal.SIGHUP)
        raise Unavailable(f"the Engine does not ask the plugin; {path} is as it was.\nThe Engine's log says why.")
    click.echo(f"Authorization is on: the Engine asks {driver}. Turn it off by: convgpu authz disable")


@authz.command("disable", help=_DISABLE, epilog=EXIT_CODES)
@settings_file
@pid_file
@volume_driver
@dry_run
def disable(path: Path, pid_file: Path, driver: str, *, dry_run: bool) -> None:
    """Turn it off. The Engine is asked only after it has read its settings: before, it may refuse every call."""
    engine = Engine.connect(RequestsHttp)
    settings = daemon_json.read(path)
    pid = find_engine_pid(engine, pid_file)
    left = [each for each in daemon_json.names(settings) if not is_same_plugin(each, driver)]
    steps = []
    if len(left) < len(daemon_json.names(settings)):
        steps.append(f"take {driver} out of {path}")
    if pid is not None:
        steps.append(f"send SIGHUP to the Engine, process {pid}, which then reads it")
    if _announce(steps, dry_run=dry_run):
        return
    if len(left) < len(daemon_json.names(settings)):
        daemon_json.write_without(path, daemon_json.with_names(settings, left))
    if pid is None:
        click.echo(f"Authorization is off, as soon as the Engine runs: no Engine has its pid in {pid_file}.")
        return
    os.kill(pid, signal.SIGHUP)
    if not _becomes(engine, driver, in_force=False):
        raise Unavailable(
            "the Engine still asks the plugin.\nThe Engine's log says why; restart it if nothing else helps."
        )
    click.echo("Authorization is off. The plugin may be disabled, upgraded or removed now.")


@authz.command("status", help=_STATUS, epilog=EXIT_CODES)
@settings_file
@volume_driver
@as_json
@click.pass_context
def status(ctx: click.Context, path: Path, driver: str, *, as_json: bool) -> None:
    """Show it."""
    found = _status(Engine.connect(RequestsHttp), path, driver)
    if as_json:
        echo_data(asdict(found))
    else:
        click.echo(
            f"plugin {driver}: {found.plugin}; named in {path}: {_yes(found.named)}; asked: {_yes(found.in_force)}"
        )
        if found.mode is not None:
            click.echo(f"mode {found.mode}, rules in {found.rules}")
        for quota in found.quotas:
            click.echo(f"{_quota_text(quota)} on {quota['device']}")
        for problem in found.problems:
            click.echo(f"! {problem}")
        for warning in found.warnings:
            click.echo(f"- {warning}")
    ctx.exit(1 if found.problems else 0)


def _status(engine: Engine, path: Path, driver: str) -> Status:
    named = any(is_same_plugin(each, driver) for each in daemon_json.names(daemon_json.read(path)))
    try:
        plugin, socket_path = _plugin(engine, driver)
    except EngineRefused as error:
        # An Engine that is away or not for this user says nothing of its authorization: that is no finding.
        problem = f"every call fails: {error.message}"
        problem += " Do `convgpu authz disable` now, before anything else." if named else ""
        return Status("unknown", named, in_force=False, problems=(problem,))
    answer = _read_status(socket_path) if socket_path is not None else {}
    in_force = bool(answer) and socket_path is not None and _is_asked(engine, socket_path)
    problems = list(_engine_problems(path, plugin, named=named, answers=bool(answer), in_force=in_force))
    if answer.get("error"):
        problems.append(f"{answer['rules']} cannot be used, {answer['instead']}: {answer['error']}")
    if answer.get("engine_error"):
        problems.append(f"the plugin cannot see containers: {answer['engine_error']}; set CONVGPU_ENGINE or run.source")
    if answer.get("quotas_error"):
        problems.append(f"the plugin cannot see what quotas are used for: {answer['quotas_error']}")
    quotas = tuple(answer.get("quotas") or ())
    problems += _exceeded(quotas)
    seen: dict[str, Any] = {name: answer.get(name) for name in ("mode", "rules", "engine_error")}
    strict_ones = answer.get("mode") == "strict"
    problems += _strict_problems(engine, answer) if strict_ones else ()
    texts: dict[str, Any] = {
        "problems": tuple(problems),
        "warnings": tuple(_warnings(engine, answer)) if strict_ones else (),
    }
    return Status(plugin, named, in_force, rules_error=answer.get("error"), quotas=quotas, **texts, **seen)


def _engine_problems(path: Path, plugin: str, *, named: bool, answers: bool, in_force: bool) -> Iterator[str]:
    if named and plugin != "enabled":
        yield (
            f"{path} names a plugin that is {plugin}: the Engine ends when it is restarted or reloaded. "
            "Do `convgpu authz disable` now."
        )
    elif named and not answers:
        yield (
            "the plugin does not answer, and the Engine refuses calls about which it would ask it. "
            f"If it was ended, it is started again within seconds: look again. {_SEE_LOG}"
        )
    elif named and not in_force:
        yield "the Engine does not ask the plugin although its settings name it: do `convgpu authz enable`."
    elif in_force and not named:
        yield f"the Engine asks the plugin, and {path} does not name it: after a restart it will not."


def _quota_text(quota: dict[str, Any]) -> str:
    behind = f", and ended ones left {format_size(quota['left'])}" if quota["left"] else ""
    return (
        f"{quota['kind']} {quota['name']}: containers have {format_size(quota['running'])} "
        f"of {format_size(quota['total_quota'])}{behind}"
    )


def _exceeded(quotas: Iterable[dict[str, Any]]) -> Iterator[str]:
    for quota in quotas:
        if quota["running"] + quota["left"] > quota["total_quota"]:
            yield (
                f"{_quota_text(quota)} on {quota['device']}, which is above the quota: the Engine started some without "
                "asking (by `--restart always`, when it started itself), an exemption let them pass, or the rules were "
                "others then. Stop some: `convgpu ps` shows them."
            )


def _strict_problems(engine: Engine, answer: dict[str, Any]) -> Iterator[str]:
    yield from unjudged_starts(engine.info)
    yield from unfit_engine(answer.get("accepted") or (), engine.get("/version"))
    yield from setgid_paths(answer.get("accepted") or (), answer.get("paths") or ())


def _warnings(engine: Engine, answer: dict[str, Any]) -> Iterator[str]:
    yield from accepted_removals(answer.get("accepted") or (), engine.get("/version"))
    yield from shared_ids(answer.get("ids") or (), engine.info)
    yield from open_nodes(answer.get("accepted") or ())
    yield from endless_servers()
    yield from open_entries(answer.get("calls") or (), answer.get("fields") or ())


def _check_before(engine: Engine, driver: str, settings: dict[str, Any], pid: int) -> None:
    """Raise if turning it on would end the Engine, or lock everybody out."""
    engine.plugin(driver)  # raises, with the next step, what is not there or not enabled
    for name in daemon_json.names(settings):
        if not is_same_plugin(name, driver) and not _is_there(engine, name):
            raise Refused(
                f"the settings name the authorization plugin {name}, which is not there: the Engine would end.\n"
                "Take it out first."
            )
    if b"--authorization-plugin" in Path(f"/proc/{pid}/cmdline").read_bytes():
        raise Refused(
            "the Engine was started with --authorization-plugin, which cannot be changed while it runs.\n"
            "Take the option out, restart the Engine, and do this again."
        )
    _, socket_path = _plugin(engine, driver)
    answer = _read_status_soon(socket_path) if socket_path is not None else {}
    if not answer:
        raise Unavailable(f"the plugin {driver} does not answer.\n{_SEE_LOG}")
    if answer.get("engine_error"):
        raise Refused(
            f"the plugin could not judge any start: {answer['engine_error']}.\n"
            f"Tell it where the Engine's socket is: docker plugin set {driver} run.source=DIR CONVGPU_ENGINE=PATH"
        )
    if answer.get("error"):
        raise Refused(f"{answer['rules']}: {answer['error']}\nMend the rules first: convgpu policy check FILE")


def _announce(steps: list[str], *, dry_run: bool) -> bool:
    """Print the steps of a dry run; return whether it is one."""
    for step in steps if dry_run else []:
        click.echo(f"would {step}")
    if dry_run and not steps:
        click.echo("nothing to do")
    return dry_run


def _plugin(engine: Engine, driver: str) -> tuple[str, Path | None]:
    """Return whether the plugin is enabled, disabled or missing, and where its socket is."""
    try:
        found = engine.get(f"/plugins/{quote(driver)}/json")
    except EngineRefused as error:
        if error.status != _NOT_FOUND:
            raise
        return "missing", None
    if not found.get("Enabled"):
        return "disabled", None
    return "enabled", _SOCKETS / found["Id"] / found["Config"]["Interface"]["Socket"]


def _is_there(engine: Engine, name: str) -> bool:
    if _plugin(engine, name)[0] == "enabled":
        return True
    bare = name.partition(":")[0]
    spots = [_SOCKETS / f"{bare}.sock", *(Path("/etc/docker/plugins") / f"{bare}.{end}" for end in ("spec", "json"))]
    return any(spot.exists() for spot in spots)


def _read_status(socket_path: Path, *, quotas: bool = True) -> dict[str, Any]:
    """Return the plugin's status of its authorization; empty if it does not answer.

    Without what quotas are used for it comes at once, also while the scheduler does not answer.
    """
    try:
        reply = RequestsHttp(socket_path).ask("GET", f"/v1/authorization?quotas={str(quotas).lower()}")
        answer = reply.json()
    except PermissionError as error:
        raise Unavailable(f"no permission to open {socket_path}.\nRun this as root: sudo convgpu authz ...") from error
    except (OSError, ValueError):
        return {}
    return answer if reply.status == 200 and isinstance(answer, dict) else {}


def _read_status_soon(socket_path: Path) -> dict[str, Any]:
    """The same without quotas, of a plugin that may have been enabled a moment ago."""
    end = time.monotonic() + BEGINNING
    while not (answer := _read_status(socket_path, quotas=False)) and time.monotonic() < end:
        time.sleep(_STEP)
    return answer


def _is_asked(engine: Engine, socket_path: Path) -> bool:
    """Prove whether the plugin is asked: by an empty create, which every Engine refuses."""
    if engine.endpoint.socket is None:
        raise Unavailable("authorization can be looked at on the Engine's own host only.\nLog in there.")
    before = _read_status(socket_path, quotas=False).get("judged")
    try:
        RequestsHttp(engine.endpoint.socket).ask("POST", "/containers/create", {})
    except (OSError, ValueError):
        return False
    return bool(_read_status(socket_path, quotas=False).get("judged") != before)


def _becomes(engine: Engine, driver: str, *, in_force: bool) -> bool:
    end = time.monotonic() + _PROOF_TIMEOUT
    while time.monotonic() < end:
        with contextlib.suppress(Unavailable):  # what the Engine says while it still asks a plugin that is gone
            _, socket_path = _plugin(engine, driver)
            if (socket_path is not None and _is_asked(engine, socket_path)) is in_force:
                return True
        time.sleep(_STEP)
    return False


def _yes(value: bool) -> str:
    return "yes" if value else "no"
