"""`convgpu events` and `convgpu history`: the scheduler's events, new and old."""

import json
import select
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from convgpu.cli.completion import complete_container
from convgpu.cli.connect.discovery import open_scheduler
from convgpu.cli.connect.named_containers import find, list_containers
from convgpu.cli.connect.scheduler import Scheduler
from convgpu.cli.show import event_text
from convgpu.cli.terminal.errors import EXIT_CODES
from convgpu.cli.terminal.options import as_json, directory, volume_driver
from convgpu.cli.terminal.output import echo, echo_data
from convgpu.protocol.durations import parse_duration
from convgpu.protocol.event_kinds import EventKind
from convgpu.protocol.records import Event

_STEP: Final = 0.25  # seconds between two polls of --follow
_MAX_REMOVED: Final = 10_000  # removed containers whose names are searched

_EVENTS: Final = """Show the newest events: starts, pauses, refusals, ends.

\b
--json prints one object per line; sizes are bytes, times Unix seconds:
  sequence, time, kind, container (its volume), name, and where they apply
  cause, uuid, size, pid, program, call, reason, waited (seconds), limits
"""

_HISTORY: Final = """Show what is kept of the past: also of containers that are gone, and from before a restart.

--json prints a list of the same objects as `convgpu events --json`.
"""


class Names:
    """Names for people by volume; fetched again for an unknown volume."""

    def __init__(self, scheduler: Scheduler, directory: Path | None) -> None:
        self._scheduler = scheduler
        self._directory = directory
        self._read_removed = False
        self.by_volume: dict[str, str] = {}
        self.gpus = {device.uuid: device.index for device in scheduler.devices().devices}

    def learn(self, events: Sequence[Event]) -> Mapping[str, str]:
        """Return the names, with those of the containers in these events, also of those that others waited for."""
        if self._has_unknown(events):
            for entry in list_containers(self._scheduler, self._directory):
                if entry.engine or entry.container.name not in self.by_volume:
                    self.by_volume[entry.container.name] = entry.name
        self._learn_removed(events)
        if not self._read_removed and self._has_unknown(events):
            self._learn_removed(self._removed())
        return self.by_volume

    def _has_unknown(self, events: Sequence[Event]) -> bool:
        volumes = {name for event in events for name in (event.container, *event.behind) if name}
        return not volumes <= self.by_volume.keys()

    def _removed(self) -> Sequence[Event]:
        self._read_removed = True
        return self._scheduler.history(kinds=(EventKind.REMOVED,), limit=_MAX_REMOVED)

    def _learn_removed(self, events: Sequence[Event]) -> None:
        """Take the names of removed containers from the events of their removal."""
        for event in events:
            if event.container and event.name:
                self.by_volume.setdefault(event.container, event.name)

    def volume(self, word: str | None) -> str | None:
        """Return the volume of the container that a user means; of several removed ones the last one's."""
        if word is None:
            return None
        listed = list_containers(self._scheduler, self._directory)
        if any(word in entry.names or entry.starts_with(word) for entry in listed):
            return find(listed, word).container.name
        removed = [event.container for event in self._removed() if word in (event.name, event.container)]
        return removed[-1] if removed else find(listed, word).container.name  # which says that there is none


kind_option = click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([kind.value for kind in EventKind]),
    metavar="KIND",
    help=f"Only events of this kind; may be given more than once: {', '.join(EventKind)}.",
)


@click.command(help=_EVENTS, epilog=EXIT_CODES)
@click.argument("container", required=False, shell_complete=complete_container)
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens from now on, until Ctrl-C.")
@click.option("-n", "--tail", type=click.IntRange(0), default=20, show_default=True, help="How many of the newest.")
@kind_option
@as_json
@directory
@volume_driver
def events(
    *,
    container: str | None,
    follow: bool,
    tail: int,
    kinds: tuple[str, ...],
    as_json: bool,
    directory: Path | None,
    driver: str,
) -> None:
    """Show what happens."""
    scheduler = _open_feed(directory, driver) if follow else open_scheduler(directory, driver)
    names = Names(scheduler, directory)
    volume = names.volume(container)
    answer = scheduler.events()
    chosen = _choose(answer.events, volume, kinds)
    _print(chosen[len(chosen) - tail if tail < len(chosen) else 0 :], names, as_json=as_json)
    # Notices that the reader of a pipe has closed it, as `tail -f` does: nothing might be written for hours.
    reader = select.poll()
    reader.register(sys.stdout, 0)
    while follow:
        try:
            if reader.poll(_STEP * 1000):
                return
        except KeyboardInterrupt:
            return  # the way to end it
        answer = scheduler.events(answer.next)
        _print(_choose(answer.events, volume, kinds), names, as_json=as_json)


@click.command(help=_HISTORY, epilog=EXIT_CODES)
@click.argument("container", required=False, shell_complete=complete_container)
@click.option("--since", metavar="DURATION", help="Only the last 30s, 5m, 2h, 1d.")
@click.option("-n", "--tail", type=click.IntRange(1, 100_000), default=100, show_default=True, help="How many.")
@kind_option
@as_json
@directory
@volume_driver
def history(
    *,
    container: str | None,
    since: str | None,
    tail: int,
    kinds: tuple[str, ...],
    as_json: bool,
    directory: Path | None,
    driver: str,
) -> None:
    """Show what happened."""
    after = None if since is None else time.time() - _duration(since)
    scheduler = open_scheduler(directory, driver)
    names = Names(scheduler, directory)
    found = scheduler.history(names.volume(container), kinds, after, tail)
    known = names.learn(found)
    if as_json:
        echo_data([event_text.as_data(event, known) for event in found])
        return
    for event in found:
        echo(
            event_text.format_line(event, known, names.gpus, event_text.date_and_time),
            event_text.STYLES.get(event.kind, ""),
        )
    if not found:
        click.echo("Nothing is kept that fits. Leave out --since, --kind or the name to see more.", err=True)


def _open_feed(directory: Path | None, driver: str) -> Scheduler:
    from convgpu.cli.connect.requests_http import RequestsHttp  # noqa: PLC0415 - only a feed imports the library

    return open_scheduler(directory, driver, RequestsHttp)


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--since") from error


def _choose(events: Sequence[Event], volume: str | None, kinds: tuple[str, ...]) -> list[Event]:
    return [
        event
        for event in events
        if (volume is None or event.container == volume) and (not kinds or event.kind in kinds)
    ]


def _print(events: Sequence[Event], names: Names, *, as_json: bool) -> None:
    known = names.learn(events)
    for event in events:
        if as_json:
            click.echo(json.dumps(event_text.as_data(event, known)))
        else:
            echo(
                event_text.format_line(event, known, names.gpus, event_text.time_of_day),
                event_text.STYLES.get(event.kind, ""),
            )
