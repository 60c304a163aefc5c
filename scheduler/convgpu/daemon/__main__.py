"""`convgpud`: settings, logging, signals."""

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Final

import click

from convgpu.core.oversubscription import parse_threshold
from convgpu.daemon import unable
from convgpu.daemon.audit.overuse import OVERUSE_ACTIONS
from convgpu.daemon.gpu.nvml import DeviceError
from convgpu.daemon.replay import replay
from convgpu.daemon.service import Service
from convgpu.daemon.settings import Settings
from convgpu.daemon.system.directory_lock import DirectoryInUseError
from convgpu.daemon.system.garbage_collection import GarbageCollection
from convgpu.daemon.system.log_rate_limit import LogRateLimit
from convgpu.daemon.system.log_writer import LogWriter
from convgpu.daemon.transport.closer import handle_interrupts
from convgpu.logs.formatter import FORMATS, create_formatter
from convgpu.policies.eviction import DEFAULT_EVICTION, EVICTION_POLICIES
from convgpu.policies.memory import POLICIES
from convgpu.policies.placement import DEFAULT_PLACEMENT, PLACEMENT_POLICIES
from convgpu.protocol.durations import parse_duration
from convgpu.protocol.sizes import parse_size

log = logging.getLogger("convgpud")

_DIRECTORY: Final = "/var/lib/convgpu"
_PACKAGED: Final = (
    Path(__file__).parents[1] / "native"
)  # what an installed package brings (scripts/release/build_hook.py)
_LIBRARIES: Final = _PACKAGED if _PACKAGED.is_dir() else Path("/usr/lib/convgpu")


def _size(_context: click.Context, _parameter: click.Parameter, text: str) -> int:
    try:
        return 0 if text == "0" else parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _size_or_auto(_context: click.Context, _parameter: click.Parameter, text: str) -> int | None:
    try:
        return None if text == "auto" else 0 if text == "0" else parse_size(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}, or auto") from error


def _threshold(_context: click.Context, _parameter: click.Parameter, text: str) -> float:
    try:
        return parse_threshold(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _duration_or_never(_context: click.Context, _parameter: click.Parameter, text: str) -> float | None:
    try:
        return None if text == "never" else parse_duration(text) or None
    except ValueError as error:
        raise click.BadParameter(f"{error}, or never") from error


def _duration(_context: click.Context, _parameter: click.Parameter, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


class _Command(click.Group):
    """Explains wrong settings to administrators too, where a supervisor asks for that."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """See click."""
        try:
            return super().parse_args(context, args)
        except click.UsageError as error:
            if os.environ.get("CONVGPU_EXPLAIN_FAILURE") and not args:
                error.show()
                _explain(Path(os.environ.get("CONVGPU_DIRECTORY") or _DIRECTORY), error.format_message())
                sys.exit(error.exit_code)
            raise


def _explain(directory: Path, reason: str) -> None:
    try:
        unable.explain_failure(directory, reason)
    except OSError as error:
        log.error("%s", error)


@click.group(
    cls=_Command,
    invoke_without_command=True,
    subcommand_metavar="[COMMAND]",
    context_settings={"auto_envvar_prefix": "CONVGPU", "show_default": True},
)
@click.version_option(package_name="convgpu")
@click.option("--directory", type=click.Path(path_type=Path), default=_DIRECTORY, help="Where everything lies.")
@click.option("--devices", default="nvml", help="nvml, or simulated:16GiB[,16GiB...].")
@click.option(
    "--policy", type=click.Choice(sorted(POLICIES)), default="best-fit", help="Chooses the next waiting allocation."
)
@click.option(
    "--placement",
    type=click.Choice(sorted(PLACEMENT_POLICIES)),
    default=DEFAULT_PLACEMENT,
    help="Chooses the GPUs of containers that leave them to the scheduler.",
)
@click.option(
    "--libraries",
    type=click.Path(path_type=Path),
    default=_LIBRARIES,
    help="Folder of libconvgpu.so, libconvgpu-page.so and libconvgpu-safety.so.",
)
@click.option(
    "--simulated-driver",
    type=click.Path(path_type=Path),
    default=_LIBRARIES / "simulated",
    help="Folder of the simulated libcuda.so.1 and libnvidia-ml.so.1.",
)
@click.option(
    "--simulated-settle",
    default=3100,  # measured on an H200: 310 ms for 100 GiB
    help="Microseconds that the simulated driver needs to free a GiB of an ended process.",
)
@click.option(
    "--host-root", type=click.Path(path_type=Path), default="/host", help="The host's root, searched first for NVML."
)
@click.option("--reserve", default="0", callback=_size, help="Bytes of each device that are never handed out.")
@click.option(
    "--starvation-timeout", default=60.0, help="Seconds after which a waiting allocation is not overtaken any more."
)
@click.option("--audit", default="2s", callback=_duration, help="Time between audits of NVML's figures; 0: none.")
@click.option(
    "--overuse",
    type=click.Choice(OVERUSE_ACTIONS),
    default="auto",
    help="Action on a container that is above its limit for long, takes what others have reserved, or uses a GPU "
    "without a limit and without a permit; auto: stop where the rules of the site are strict.",
)
@click.option(
    "--rules",
    type=click.Path(path_type=Path),
    default="/host/etc/convgpu/rules.toml",
    help="The rules of the site; need not be there.",
)
@click.option(
    "--overuse-after",
    default="10s",
    callback=_duration,
    help="How long containers of a GPU may do so together; five seconds without take back one.",
)
@click.option(
    "--learn",
    default="never",
    callback=_duration_or_never,
    help="How long a container's peak must not rise before others may have what it reserved beyond peak and 15 %; "
    "never: it keeps all.",
)
@click.option("--history-age", default="720h", callback=_duration, help="How long events are kept.")
@click.option("--history-rows", default=100_000, type=click.IntRange(0), help="How many events are kept.")
@click.option("--record", type=click.Path(path_type=Path), help="Record all events in this file, for replay.")
@click.option(
    "--porter",
    type=click.Path(path_type=Path),
    default=_LIBRARIES / "convgpu-porter",
    help="The program that copies memory that leaves the GPUs.",
)
@click.option(
    "--host-memory",
    default="auto",
    callback=_size_or_auto,
    help="Bytes of host memory for what leaves the GPUs; auto: as much as can leave, at most half of the host's.",
)
@click.option(
    "--oversubscribe",
    default="1.0",
    callback=_threshold,
    help="What may be promised of a GPU, as a multiple of its capacity.",
)
@click.option("--granule", default="", help="The limit of a container that names none; empty: such a one is refused.")
@click.option(
    "--switch-cost",
    default=0.05,
    type=click.FloatRange(0.0, 0.5),
    help="The share of the time that taking turns on a GPU may cost; 0: no container loses its turn.",
)
@click.option(
    "--eviction",
    type=click.Choice(sorted(EVICTION_POLICIES)),
    default=DEFAULT_EVICTION,
    help="Chooses whose memory leaves a GPU first.",
)
@click.option(
    "--notice",
    default="1s",
    callback=_duration_or_never,
    help="How long an allocation is paused before its program says so on stderr; never: silence.",
)
@click.option(
    "--explain-failure",
    is_flag=True,
    help="When it cannot start, answer each request with the reason for 15 s, and end then: for a supervisor that "
    "starts it again.",
)
@click.option("--refuse", metavar="TEXT", hidden=True, help="Start nothing, and answer each request with this.")
@click.option(
    "--log", "level", envvar="CONVGPU_LOG", default="info", type=click.Choice(["debug", "info", "warning", "error"])
)
@click.option(
    "--log-format",
    "form",
    envvar="CONVGPU_LOG_FORMAT",
    default="text",
    type=click.Choice(FORMATS),
    help="Of lines.",
)
@click.pass_context
def main(
    context: click.Context, /, level: str, form: str, *, explain_failure: bool, refuse: str | None, **settings: object
) -> None:
    """Run the scheduler, which shares the memory of GPUs among containers."""
    if context.invoked_subcommand is not None:
        return
    handler = LogWriter(sys.stdout.fileno())
    handler.setFormatter(create_formatter(form))
    handler.addFilter(LogRateLimit())
    logging.basicConfig(handlers=[handler], level=level.upper())
    if refuse is not None:
        _explain(Path(str(settings["directory"])), refuse)
        sys.exit(1)
    try:
        asyncio.run(_serve(Settings(**settings)))  # type: ignore[arg-type]  # click has checked them
    except (DeviceError, ValueError, OSError) as error:
        log.error("%s", error)
        if explain_failure and not isinstance(error, DirectoryInUseError):
            _explain(Path(str(settings["directory"])), str(error))
        sys.exit(1)


main.add_command(replay)


async def _serve(settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    handle_interrupts()
    service = Service(settings)
    GarbageCollection(loop.call_later).start()
    log.info("ready directory=%s policy=%s", settings.directory, settings.policy)
    ends = [asyncio.ensure_future(event.wait()) for event in (stop, service.broken)]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        service.close()
        for end in ends:
            end.cancel()
    if service.broken.is_set():
        sys.exit(1)


if __name__ == "__main__":
    main()
