"""`convgpu demo`: a container waits for GPU memory, and goes on by itself."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from convgpu.cli.demo import scenario
from convgpu.cli.demo.backend import DemoBackend
from convgpu.cli.demo.container_backend import ContainerBackend
from convgpu.cli.demo.process_backend import ProcessBackend
from convgpu.cli.demo.report import DemoResult, as_data, caption, show
from convgpu.cli.demo.runner import run_demo
from convgpu.cli.demo.svg import draw
from convgpu.cli.terminal.errors import EXIT_CODES, Refused, Unavailable
from convgpu.cli.terminal.options import as_json, directory
from convgpu.cli.terminal.signals import exit_on_signals
from convgpu.protocol.records import Device

_HELP: Final = """Let four containers compete for one GPU, and show what happens.

Together they want more memory than the GPU has. At least one is paused in the middle of its allocations, and goes
on by itself when another ends. It takes about ten seconds, and ends with a table and a timeline of the
scheduler's events. The exit code is 0 only if a pause and its end were really seen and every container did well.

With --suspend two containers take more than half of the GPU each. The first becomes idle, so its memory leaves for the
second; at its end it compares what came back with what it wrote. This needs CONVGPU_OVERSUBSCRIBE=2, which the
scheduler of --processes has.

\b
--json prints one object; sizes are bytes, times seconds since the first container started:
  played_by    what ran the containers
  policy       the policy that chose who went on
  device       uuid, index, name, capacity
  containers   name, limit, started, pauses (size, begin, end, granted), stops (size that left, begin, end), ended,
               exit_code
  pause_seen   whether all went as it should
  problems     if not, why
  events       the scheduler's own events of these containers
"""


@click.command(help=_HELP, epilog=EXIT_CODES)
@as_json
@directory
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="Write the timeline as an SVG, too.",
)
@click.option("--suspend", is_flag=True, help="Show memory that leaves the GPU for another container and comes back.")
@click.option("--processes", is_flag=True, help="Use plain processes, and a scheduler of their own: no Docker.")
@click.option(
    "--gpu-volume-driver",
    "driver",
    envvar="CONVGPU_NAME",
    show_envvar=True,
    metavar="NAME",
    help="The name of the ConvGPU plugin in the Engine.  [default: convgpu-demo, which `make demo` installs, "
    "or else convgpu]",
)
def demo(
    *, as_json: bool, directory: Path | None, picture: Path | None, suspend: bool, processes: bool, driver: str | None
) -> None:
    """Show a container that waits and goes on."""
    progress = Console(stderr=as_json, highlight=False)
    if processes or directory is not None:
        progress.print("Without Docker: the same scenario with plain processes in place of containers.")
        backend: DemoBackend = ProcessBackend(None if processes else directory, may_leave=suspend)
    else:
        backend = ContainerBackend([driver] if driver else ["convgpu-demo", "convgpu"])
    result = _run(backend, progress, scenario.leaving_containers if suspend else scenario.containers)
    if picture is not None:
        _write(picture, result)
    if as_json:
        click.echo(json.dumps(as_data(result), indent=2))
    else:
        show(result, Console(highlight=False))
    sys.exit(1 if result.problems else 0)


def _write(file: Path, result: DemoResult) -> None:
    try:
        file.write_text(draw(result.timelines, result.shown, caption(result)), encoding="utf-8")
    except OSError as error:
        raise Refused(f"{file} cannot be written: {error.strerror}.\nName another --picture") from error


def _run(
    backend: DemoBackend, progress: Console, choose: Callable[[Device], tuple[scenario.DemoContainer, ...]]
) -> DemoResult:
    # A scheduler of jobs that ends us shall not leave our containers behind.
    exit_on_signals()
    with backend:
        if backend.removed:
            text = f"Removed what a killed demo had left: {', '.join(backend.removed)}"
            progress.print(text, markup=False, soft_wrap=True)
        devices = backend.scheduler.devices()
        if not devices.devices:
            raise Unavailable("the scheduler has no GPU.\nWithout a card: CONVGPU_DEVICES=simulated:16GiB")
        try:
            containers = choose(devices.devices[0])
        except ValueError as error:
            raise Unavailable(str(error)) from error
        return run_demo(backend, devices, containers, lambda line: progress.print(line, markup=False, soft_wrap=True))
