# SPDX-License-Identifier: Apache-2.0
"""Prints docs/reference.md: commands, options, settings, metrics, events and HTTP routes, as the code has them."""

import dataclasses
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from prometheus_client import CollectorRegistry

from convgpu.cli.__main__ import COMMANDS
from convgpu.cli.__main__ import main as convgpu
from convgpu.client.scheduler import Scheduler
from convgpu.core.volume_options import KNOWN
from convgpu.daemon.__main__ import main as convgpud
from convgpu.plugin.admin_api.metrics import CallDurations, SchedulerCollector
from convgpu.plugin.admin_api.openapi import OPERATIONS
from convgpu.plugin.settings import Settings
from convgpu.protocol.event_kinds import EventKind
from convgpu.protocol.records import Event
from convgpu.protocol.requests import Request

ROOT = Path(__file__).parents[1]


def main() -> str:
    """Return the page."""
    parts = [
        "# Reference\n\nWritten by `scripts/reference` from the code; change it there.",
        commands(),
        settings(),
        volume_options(),
        metrics(),
        events(),
        routes(),
    ]
    return "\n\n".join(parts) + "\n"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]], code: tuple[int, ...] = ()) -> str:
    """Return a table; the columns `code` are code."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [" ".join(text.split()).replace("|", "\\|") for text in row]
        cells = [f"`{text}`" if place in code and text else text for place, text in enumerate(cells)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def commands() -> str:
    """Return all commands with their options, in the order of the help."""
    found = [describe("convgpu", convgpu)]
    for section in COMMANDS.values():
        for name, (place, _) in section.items():
            module, _, attribute = place.partition(":")
            found += walk(f"convgpu {name}", getattr(import_module(module), attribute))
    return "## Commands\n\n" + "\n\n".join([*found, *walk("convgpud", convgpud)])


def walk(path: str, command: click.Command) -> Iterator[str]:
    """Describe a command, and the commands of a group."""
    yield describe(path, command)
    if isinstance(command, click.Group):
        for name, child in sorted(command.commands.items()):
            yield from walk(f"{path} {name}", child)


def describe(path: str, command: click.Command) -> str:
    """Return one command: what it does in a line, and its options."""
    context = click.Context(command, info_name=path.rpartition(" ")[2])
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    summary = (command.help or "").partition("\n\n")[0].replace("\b", "")
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    # click itself adds --help and --version; they say the same everywhere.
    rows = [option(one, context) for one in options if one.name not in {"help", "version"}]
    shown = f"\n\n{table(('option', 'meaning', 'default', 'variable'), rows, code=(0, 2, 3))}" if rows else ""
    return f"### `{path}`\n\n`{' '.join(usage.split())}`\n\n{' '.join(summary.split())}{shown}"


def option(one: click.Option, context: click.Context) -> tuple[str, ...]:
    """Return the row of an option."""
    metavar = "" if one.is_flag else " " + one.make_metavar(context)
    default = "" if one.is_flag or callable(one.default) else str(one.to_info_dict().get("default") or "")
    variable = one.envvar if isinstance(one.envvar, str) else ""
    if context.command is convgpud:
        variable = variable or f"CONVGPU_{(one.name or '').upper()}"
    return ", ".join(one.opts) + metavar, one.help or "", default, variable


def settings() -> str:
    """Return the settings of the plugin, as its config.json has them, and those that only the code knows."""
    documented = json.loads((ROOT / "config.json").read_text())["env"]
    rows = [
        (entry["name"], entry["value"], "yes" if "settable" in entry else "no", entry["description"])
        for entry in documented
    ]
    meanings = dict(re.findall(r"^\s{4,8}(\w+): (.+)$", inspect.getdoc(Settings) or "", re.MULTILINE))
    known = {row[0] for row in rows}
    others = {f"CONVGPU_{each.name.upper()}": each for each in dataclasses.fields(Settings)}
    rows += [
        (name, str(each.default), "no", meanings.get(each.name, "").rstrip("."))
        for name, each in others.items()
        if name not in known
    ]
    text = (
        "`docker plugin set convgpu NAME=VALUE`, while the plugin is disabled. "
        "`convgpud` without Docker has the options above."
    )
    shown = table(("variable", "default", "settable", "meaning"), sorted(rows), code=(0, 1))
    return f"## Settings\n\n{text}\n\n{shown}"


def volume_options() -> str:
    """Return the options of a volume."""
    text = "`volume-opt=NAME=VALUE`, or `driver_opts` in a compose file."
    return f"## Options of a volume\n\n{text}\n\n{table(('option', 'meaning'), sorted(KNOWN.items()), code=(0,))}"


class _Scheduler(Scheduler):
    """Has one of everything, so that each metric shows its labels."""

    def ask_json(self, request: Request[Any]) -> bytes:
        """Answer as the scheduler does."""
        uuid = "GPU-0"
        sizes = dict.fromkeys(("total", "capacity", "granted", "used", "settling"), 1)
        share = {"uuid": uuid, "limit": 1, "grant": 1, "usage": 1}
        known = {"name": "v", "mountpoint": "/", "created": 0, "state": "running", "devices": [share]}
        answers = {
            "devices": {"devices": [{"uuid": uuid, "index": 0, "name": "n", **sizes}], "policy": "p"},
            "active-containers": {
                "containers": [{**known, "engine": {"id": "i", "name": "n", "image": "m"}}],
                "others": [],
            },
            "events": {"events": [], "next": 1, "totals": {"events": {"paused": 1}}},
        }
        return json.dumps(answers[request.operation]).encode()


def metrics() -> str:
    """Return the metrics, with what they are of."""
    registry = CollectorRegistry()
    CallDurations(registry)
    registry.register(SchedulerCollector(_Scheduler()))
    rows = []
    for family in registry.collect():
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        rows.append((family.name + suffix, family.type, ", ".join(labels), family.documentation))
    text = (
        "At `/metrics` on the plugin's socket, and by `convgpu metrics` ([monitoring.md](monitoring.md)). A device is "
        "its UUID, a container the name of its volume; `convgpu_container_info` has what Docker calls it."
    )
    return f"## Metrics\n\n{text}\n\n{table(('metric', 'type', 'labels', 'meaning'), sorted(rows), code=(0,))}"


def events() -> str:
    """Return the kinds of events and their fields."""
    fields = ", ".join(f"`{name}`" for name in Event.__struct_fields__)
    places = "`convgpu events`, `convgpu history`, `GET /v1/events`"
    text = f"{places}. Fields, where they apply: {fields} ([protocol.md](protocol.md))."
    rows = [(kind.value, kind.description) for kind in EventKind]
    return f"## Events\n\n{text}\n\n{table(('kind', 'meaning'), rows, code=(0,))}"


def routes() -> str:
    """Return the routes of the administration."""
    rows = []
    for (method, path), operation in OPERATIONS.items():
        body = ", ".join(operation.body.__struct_fields__) if operation.body else ""
        rows.append((f"{method} {path}", operation.summary, ", ".join(operation.query), body))
    rows += [
        ("GET /v1/openapi.json", "This, with all types", "", ""),
        ("GET /metrics", "Figures for Prometheus", "", ""),
        ("GET /dashboard/", "The page's files; `convgpu dashboard` brings them to a browser", "", ""),
    ]
    shown = table(("route", "what", "query", "fields of the body"), rows, code=(0,))
    return f"## HTTP\n\nOn the plugin's socket.\n\n{shown}"


if __name__ == "__main__":
    sys.stdout.write(main())
