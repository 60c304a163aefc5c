"""`convgpu doctor`: proves on this host that a limit holds and that a pause works, or says what is wrong."""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.requests_http import RequestsHttp
from convgpu.cli.connect.scheduler import PluginTransport, Scheduler
from convgpu.cli.doctor.containers import Containers, ProbeFailed
from convgpu.cli.doctor.gangs import judge_gangs, projects
from convgpu.cli.doctor.host_mounts import judge_mounts
from convgpu.cli.doctor.set_up import judge_set_up, set_up
from convgpu.cli.doctor.suspension import prove_suspension
from convgpu.cli.run.preparation import check_version
from convgpu.cli.setup import cdi_file
from convgpu.cli.setup.host_programs import describe_host
from convgpu.cli.show.container_rows import left_behind, without_limit
from convgpu.cli.terminal.errors import EXIT_CODES, Refused, Unavailable
from convgpu.cli.terminal.findings import STYLES, Finding, judge_entry_points, judge_shown
from convgpu.cli.terminal.option_table import VOLUME_DRIVER
from convgpu.cli.terminal.options import as_json, volume_driver
from convgpu.cli.terminal.output import echo, echo_all, echo_data, width
from convgpu.cli.terminal.signals import exit_on_signals
from convgpu.protocol.records import Device
from convgpu.protocol.sizes import MIB, format_size

_HELP: Final = """Prove on this host that a limit holds and that a pause works; say what is wrong and how to mend it.

Looks at Engine, plugin, GPUs and rules; then starts containers of its own, which try to get more than their limit
through each of the driver's entry points, and by `docker exec` with a clean environment. Two more compete for what is
free of the GPU with the most of it, so that one has to wait: for a few seconds others that ask for memory there wait as
well (--no-pause leaves that out). With --suspend one more is suspended, so that its memory goes to the host and comes
back, and compares it; for that time the plugin takes host memory (CONVGPU_HOST_MEMORY). Nothing is left behind.
Ends with 0 if all of it was proven, with 1 if something is wrong, and with 4 if nothing is and something could not be
proven, because the GPU is busy for example; it says what. On a new host --set-up first installs what is missing.

\b
--json prints a list, one object per check: check, state (ok, warn, fail, skip), seen, mend.
"""

_LIMIT: Final = 768 << 20  # bytes of the first probe's limit: a context takes 530 MiB
_SMALLEST: Final = 1 << 30  # bytes that have to be free for the pause: two limits of three quarters with a context each
_AGAIN: Final = "Try again when others have ended. See: convgpu ps"
_NOT_PROVEN: Final = 4  # exit status
_STEP: Final = 0.05  # seconds between two polls
_TIMEOUT: Final = 60.0  # seconds for each event that the doctor waits for
_WAIT: Final = 0.5  # seconds that the second is seen waiting


@click.command(help=_HELP, epilog=EXIT_CODES)
@click.option("--image", metavar="IMAGE", help="An image with python3, instead of an empty one with the host's /usr.")
@click.option("--no-pause", is_flag=True, help="Do not take the free memory of a GPU to see a pause.")
@click.option("--suspend", is_flag=True, help="See memory leave the GPU and come back, too; it takes host memory.")
@click.option("--set-up", "sets_up", is_flag=True, help="First install the plugin and `docker convgpu`, if missing.")
@as_json
@volume_driver
def doctor(*, image: str | None, no_pause: bool, suspend: bool, sets_up: bool, as_json: bool, driver: str) -> None:
    """Check this host."""
    exit_on_signals()
    if sets_up:
        set_up(driver)
    findings = []
    for finding in _examine(Engine.connect(RequestsHttp), driver, image, pause=not no_pause, suspend=suspend):
        findings.append(finding)
        if not as_json:
            seen, mend = finding.lines(width())
            echo_all([*((line, STYLES[finding.state]) for line in seen), *((line, "") for line in mend)])
    failed = any(finding.state == "fail" for finding in findings)
    if as_json:
        echo_data([finding.data() for finding in findings])
    unproven = [finding.check for finding in findings if finding.state == "skip"]
    if not as_json and not failed:
        echo(_conclude(unproven, pause=not no_pause), "bold")
    sys.exit(1 if failed else _NOT_PROVEN if unproven else 0)


def _conclude(unproven: list[str], *, pause: bool) -> str:
    """Return what was proven where nothing is wrong."""
    if unproven:
        return f"Nothing is wrong, but not proven here: {', '.join(unproven)}. Try again when the GPU is less busy."
    return "Limits hold here, and who has to wait goes on by itself." if pause else "Limits hold here."


def _examine(
    engine: Engine, driver: str, image: str | None, *, pause: bool, suspend: bool = False
) -> Iterator[Finding]:
    """Yield the findings; a failure that makes all further checks meaningless ends them."""
    try:
        check_version(engine)
        yield Finding("Engine", "ok", f"Docker {engine.info['ServerVersion']} at {engine.endpoint.host}")
        plugin = engine.plugin(driver)
        scheduler = Scheduler(PluginTransport(RequestsHttp(plugin.socket)))
        answer = scheduler.devices()
        devices = answer.devices
        yield Finding("plugin", "ok", f"{driver} is enabled, and its scheduler answers")
        if not devices:
            mend = "Look whether nvidia-smi works on this host, and start the plugin again."
            yield Finding("GPUs", "fail", "the plugin has found none", mend)
            return
        if answer.database != "ok":
            yield Finding("state", "fail", answer.database, "Make room there, or make it writable. See: df -h, df -i")
        yield from _examine_devices(devices)
        for line in answer.surviving:
            yield Finding("ends", "warn", line, "See docs/authorization.md, What no audit ends.")
        rows = engine.get("/containers/json", all=1)
        yield from judge_gangs(scheduler.containers(), projects(rows))
        yield _rules(engine, driver)
        yield from judge_mounts(str(engine.info["ServerVersion"]), rows)
        yield judge_set_up(engine.info)
        expected = cdi_file.wanted(describe_host(engine, plugin, answer), answer)
        yield from cdi_file.judge(engine.info.get("CDISpecDirs") or (), expected)
        with Containers(engine, driver, image) as containers:
            yield from _prove(containers, scheduler, max(devices, key=_free), pause=pause)
            if suspend:
                yield prove_suspension(containers, scheduler, max(scheduler.devices().devices, key=_free))
        yield _left_behind(scheduler)
    except (Unavailable, Refused) as error:
        seen, _, mend = error.message.partition("\n")
        yield Finding("ConvGPU", "fail", seen, mend)
    except ProbeFailed as error:
        yield Finding(
            "container", "fail", str(error), "See what would be run: convgpu run --dry-run --gpu-memory 1g IMAGE"
        )


def _examine_devices(devices: tuple[Device, ...]) -> Iterator[Finding]:
    for device in devices:
        seen = f"{device.index}: {device.name}, {format_size(device.capacity)} to hand out"
        if device.health != "ok":
            yield Finding("GPU", "fail", f"{seen}; {device.health}", "Look with nvidia-smi -q what is wrong with it.")
        elif device.drained:
            yield Finding("GPU", "warn", f"{seen}; drained", f"Undo it: convgpu drain --undo {device.index}")
        elif device.external:
            others = f"{format_size(device.external)} held by programs outside ConvGPU"
            yield Finding("GPU", "warn", f"{seen}; {others}", "See which: nvidia-smi. What they take later is missing.")
        else:
            yield Finding("GPU", "ok", seen)
    for line in without_limit(devices):
        mend = "Start it with a limit: convgpu run; or permit it (docs/authorization.md, Containers without a limit)."
        yield Finding("limits", "warn", line, mend)
    for line in left_behind(devices):
        mend = "Restart those until it is back; they may not know of it (docs/authorization.md, Memory that stays)."
        yield Finding("memory", "warn", line, mend)


def _free(device: Device) -> int:
    """Return the bytes that a new container could have now."""
    return 0 if device.drained else max(device.capacity - device.granted, 0)


def _rules(engine: Engine, driver: str) -> Finding:
    """Ask for a container that wants a GPU and has no limit; it is never started."""
    from docker.errors import APIError, DockerException  # noqa: PLC0415 - the SDK is needed here only
    from docker.types import DeviceRequest  # noqa: PLC0415

    api = engine.client.api
    wish = api.create_host_config(device_requests=[DeviceRequest(count=-1, capabilities=[["gpu"]])])
    try:
        api.create_container("convgpu/no-such-image", ["true"], host_config=wish)
    except APIError as error:
        if error.status_code == 403 and driver.partition(":")[0] in str(error.explanation):
            return Finding("rules", "ok", "a container that asks for a GPU without a limit is refused")
    except DockerException as error:
        return Finding("rules", "skip", f"the Engine did not answer: {error}", "See: docker info")
    return Finding(
        "rules",
        "warn",
        "a container may have a GPU without a limit: the Engine does not ask the plugin first",
        f"Have it asked: convgpu authz enable{_named(driver)}   (as root; docs/operations.md, Authorization)",
    )


def _named(driver: str) -> str:
    """Return the option that names a plugin, where a command has to be told."""
    return "" if driver == VOLUME_DRIVER.default else f" --gpu-volume-driver {driver}"


def _prove(containers: Containers, scheduler: Scheduler, device: Device, *, pause: bool) -> Iterator[Finding]:
    limit, free = _LIMIT, _free(device)
    if free < limit:
        yield Finding("limit", "skip", _too_little(free, device, limit), _AGAIN)
        yield Finding("exec", "skip", "not proven: needs the same")
        if pause:
            yield Finding("pause", "skip", f"not proven: needs {format_size(_SMALLEST)}")
        return
    memory, size, gpu = f"{device.uuid}:{limit // MIB}m", format_size(limit), f"GPU {device.index}"
    once = containers.start("entry-points", memory, "entry-points", str(limit))
    _wait(lambda: not containers.running(once), "a probe ends")
    report = _entry_points(containers.reports(once))
    yield judge_entry_points(report, size, gpu)
    yield from judge_shown(report, limit, [device.uuid])
    containers.remove(once)
    holder = containers.start("exec", memory, "idle", "0")  # a second context would need a larger limit
    _wait(lambda: _said(containers, holder, "holds"), "a container runs")
    again = judge_entry_points(_entry_points(containers.execute(holder, "entry-points", str(limit))), size, gpu)
    seen = "the same by docker exec, without LD_PRELOAD" if again.state == "ok" else f"docker exec: {again.seen}"
    yield Finding("exec", again.state, seen, again.mend)
    containers.remove(holder)
    if pause:
        yield _pause(containers, scheduler, device)


def _too_little(free: int, device: Device, needed: int) -> str:
    return f"not proven: {format_size(free)} of GPU {device.index} can be had now, {format_size(needed)} are needed"


def _pause(containers: Containers, scheduler: Scheduler, device: Device) -> Finding:
    """Let two containers want three quarters each of what is free; the second has to wait for the first.

    Free is what no program uses: who asks gets also what others were granted and do not use.
    """
    _wait(lambda: not any(row.settling for row in scheduler.devices().devices), "memory of ended programs is free")
    now = _now(scheduler, device)
    free = 0 if now.drained else max(now.capacity - now.used, 0)
    if free < _SMALLEST:
        return Finding("pause", "skip", _too_little(free, device, _SMALLEST), _AGAIN)
    memory = f"{device.uuid}:{free * 3 // 4 // MIB}m"
    first = containers.start("first", memory, "hold", "0")
    if not _gets_memory(containers, scheduler, first):
        return Finding("pause", "skip", f"not proven: others took the free memory of GPU {device.index}", _AGAIN)
    second = containers.start("second", memory, "hold", "0")
    if _gets_memory(containers, scheduler, second):
        now = _now(scheduler, device)
        if now.used <= now.capacity:
            return Finding("pause", "skip", f"not proven: others gave memory of GPU {device.index} back", _AGAIN)
    time.sleep(_WAIT)
    if _said(containers, second, "holds"):
        return Finding("pause", "fail", "an allocation returned while the memory was another's", "Please report it.")
    begin = time.monotonic()
    containers.remove(first)
    _wait(lambda: _said(containers, second, "holds"), "the second goes on when the first has ended")
    took = time.monotonic() - begin
    containers.remove(second)
    return Finding("pause", "ok", f"a second container waited, and went on {took:.1f}s after docker rm of the first")


def _now(scheduler: Scheduler, device: Device) -> Device:
    return next(row for row in scheduler.devices().devices if row.uuid == device.uuid)


def _gets_memory(containers: Containers, scheduler: Scheduler, name: str) -> bool:
    """Wait for the memory of a container; False when it has to wait for others."""
    volume = containers.volume(name)

    def is_waiting() -> bool:
        return any(row.name == volume and row.state == "waiting" for row in scheduler.containers())

    _wait(lambda: _said(containers, name, "holds") or is_waiting(), "a container gets its memory, or waits for it")
    return _said(containers, name, "holds")


def _left_behind(scheduler: Scheduler) -> Finding:
    left = [row.name for row in scheduler.containers() if row.engine and row.engine.name.startswith("convgpu-doctor-")]
    if left:
        return Finding("end", "fail", "the plugin still has volumes of this", f"docker volume rm {' '.join(left)}")
    return Finding("end", "ok", "nothing is left behind")


def _entry_points(reports: list[dict[str, Any]]) -> dict[str, Any]:
    for report in reports:
        if report["event"] == "entry-points":
            return report
        if report["event"] == "failed":
            raise ProbeFailed(
                f"a program in a container could not use the GPU: {report['call']} gave {report['error']}"
            )
    raise ProbeFailed("a probe said nothing")


def _said(containers: Containers, container: str, event: str) -> bool:
    reports = containers.reports(container)
    failed = [report for report in reports if report["event"] == "failed"]
    if failed:
        raise ProbeFailed(f"{failed[0]['call']} gave {failed[0]['error']} in a container of this")
    return any(report["event"] == event for report in reports)


def _wait(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _TIMEOUT
    while not condition():
        if time.monotonic() > end:
            raise ProbeFailed(f"not within {_TIMEOUT:.0f}s: {what}")
        time.sleep(_STEP)
