"""Reads what ran on a host: the Engine's containers, and what authorization noted of those that are gone."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from convgpu.authz.checks import find_refusals
from convgpu.authz.checks.strict import beyond_list, needs
from convgpu.authz.checks.strict_paths import made_sources
from convgpu.authz.facts.device_nodes import HostDevices
from convgpu.authz.facts.need_notes import read_notes
from convgpu.authz.ports import Document, HostFacts, Ports
from convgpu.authz.requests.callers import LOCAL
from convgpu.authz.site.rules import Rules
from convgpu.authz.site.strict_list import Need, StrictList
from convgpu.authz.subject.host_facts import read_facts
from convgpu.authz.subject.reader import SubjectReader
from convgpu.authz.subject.subject import Caller, Subject
from convgpu.authz.verdict import Refusal
from convgpu.cli.connect.engine import Engine, EngineRefused
from convgpu.cli.setup.strict.promises import unfit_engine
from convgpu.cli.setup.strict.starting_list import StartingList
from convgpu.protocol.records import Container, Device

_NOT_FOUND: Final = 404
_NOTES: Final = "needs.json"


class EngineRecords:
    """The Engine as authorization asks it (see `convgpu.authz.ports.EnginePort`), by the command's own connection."""

    def __init__(self, engine: Engine, plugin_id: str = "") -> None:
        self._engine = engine
        self._plugin_id = plugin_id

    def _get(self, path: str) -> Document | None:
        try:
            found: Document = self._engine.get(path)
        except EngineRefused as error:
            if error.status != _NOT_FOUND:
                raise
            return None
        return found

    def container(self, name: str) -> Document | None:
        """Return `GET /containers/NAME/json`."""
        return self._get(f"/containers/{quote(name)}/json")

    def container_within(self, name: str, seconds: float) -> Document | None:  # noqa: ARG002 - as the port
        """Return what `container` does: what ran is in files."""
        return self.container(name)

    def volume(self, name: str) -> Document | None:
        """Return `GET /volumes/NAME`."""
        return self._get(f"/volumes/{quote(name)}")

    def image(self, name: str) -> Document | None:
        """Return `GET /images/NAME/json`."""
        return self._get(f"/images/{quote(name)}/json")

    def service(self, name: str) -> Document | None:
        """Return `GET /services/NAME`."""
        return self._get(f"/services/{quote(name)}")

    def prepared(self, name: str) -> Document | None:  # noqa: ARG002 - as the port
        """Programs of `docker exec` are no part of what ran."""
        return None

    def states(self) -> Mapping[str, str]:
        """Return the state of each container by its id."""
        return {row["Id"]: row["State"] for row in self._engine.get("/containers/json", all=1)}

    def id_of(self, name: str) -> str | None:
        """Return the id of a container."""
        return (self.container(name) or {}).get("Id")

    def facts(self) -> HostFacts:
        """Return the Engine's settings that rules depend on."""
        return read_facts(self._engine.info, self._engine.get("/version"), self._plugin_id)


class _NoScheduler:
    """A scheduler that knows no volume: limits are no part of the list."""

    def find(self, _volume: str) -> Container | None:
        return None

    def all(self) -> list[Container]:
        return []

    def devices(self) -> tuple[Device, ...]:
        return ()

    def set_limit(self, volume: str, memory: str) -> None:
        """Nothing to set it on."""


def read_what_ran(engine: Engine, driver: str, directory: Path | None, plugin_id: str, since: float) -> StartingList:
    """Return what the containers needed that ran after `since` (Unix seconds).

    Args:
        engine: whose containers they are.
        driver: the plugin's name there.
        directory: of the plugin, with its notes; None for none.
        plugin_id: the plugin's.
        since: a container that ended before, or was never started and made before, is left out.
    """
    found = StartingList(problems=[*unfit_engine([], engine.get("/version"))])
    records = EngineRecords(engine, plugin_id)
    reader = SubjectReader(driver, Ports(records, HostDevices(lambda: Path("/")), _NoScheduler()))
    seen: list[str] = []
    for identity in records.states():
        document = records.container(identity)
        subject = reader.starting(identity, Caller(LOCAL, Rules(mode="strict")), checkpoint=False)
        if document is not None and subject is not None and last_seen(document) >= since:
            add_subject(found, subject)
            seen.append(identity)
    for note in () if directory is None else read_notes(directory / _NOTES).values():
        if note.last >= since:
            found.add_entry(note.section, note.value, note.names)
    # Below a path that one container writes the Engine makes none for another.
    listed = Rules(mode="strict", strict=StrictList(paths=tuple(found.needs["paths"])))
    for identity in seen:
        subject = reader.starting(identity, Caller(LOCAL, listed), checkpoint=False)
        if subject is not None and any(made_sources(subject)):
            found.remade.append(subject.container.name)
    return found


def add_subject(found: StartingList, subject: Subject) -> None:
    """Add a container: what it needs, or why no list permits it."""
    found.containers += 1
    wanted = list(needs(subject))
    refusal = next(iter(_refusals_with_any_list(subject, wanted)), None)
    if refusal is not None:
        found.refused.append((subject.container.name, refusal))
    else:
        found.add(wanted, subject.container.name)


def _refusals_with_any_list(subject: Subject, wanted: Sequence[Need]) -> list[Refusal]:
    """Return the refusals that remain where the list has all that the container, and whom it joins, needs."""
    entries: dict[str, tuple[str, ...]] = {"accept": ("removal",)}  # the Engine is not the container's
    for need in (*wanted, *(need for neighbour in subject.neighbours for need in needs(neighbour))):
        entries[need.section] = (*entries.get(need.section, ()), need.value)
    try:
        permitted = StrictList(**entries)
    except ValueError as error:
        return [Refusal("strict-paths", str(error))]
    # What the Engine makes depends on the entries of all; and what is missing now was there when it ran.
    rules = Rules(mode="strict", strict=permitted)
    whole = replace(with_rules(subject, rules), written=frozenset(), missing=frozenset())
    return [*beyond_list(whole), *(each for each in find_refusals(whole) if each.rule != "limit-missing")]


def with_rules(subject: Subject, rules: Rules) -> Subject:
    """Return the subject, and those it joins, under other rules."""
    neighbours = tuple(with_rules(neighbour, rules) for neighbour in subject.neighbours)
    return replace(subject, caller=Caller(LOCAL, rules), neighbours=neighbours)


def last_seen(document: Document) -> float:
    """Return when a container ran last, in Unix seconds; of one that never started, when it was made."""
    state = document.get("State") or {}
    if state.get("Running"):
        return float("inf")
    times = (state.get("FinishedAt"), state.get("StartedAt"), document.get("Created"))
    return max((_time(str(text)) for text in times if text), default=0.0)


def _time(text: str) -> float:
    """Read `2026-11-22T10:00:00.123456789Z`; 0 for the Engine's year 1, and for what is no time."""
    plain = re.sub(r"\.\d+", "", text).replace("Z", "+00:00")
    try:
        return max(0.0, datetime.fromisoformat(plain).timestamp())
    except (ValueError, OverflowError):
        return 0.0
