"""The Engine's records of the containers, volumes, images and services that a call names."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote

from docker import APIClient
from docker.errors import NotFound

from convgpu.authz.ports import Document, EngineUnreachable, HostFacts
from convgpu.authz.subject.host_facts import read_facts
from convgpu.plugin.engine.client import Engine, EngineUnavailable
from convgpu.plugin.engine.waiting import Waiting

# Seconds for which the Engine's own settings are cached; they change with a restart or a SIGHUP.
_CACHE_TIME: Final = 10.0
# Bytes of a name. Images have 460 at most, and nobody types more. Our question comes back to us as a call, which the
# worker answers at once if it is short enough for the Engine to send in one piece (4 KiB).
_MAX_NAME: Final = 600


class EngineView:
    """Questions to the Engine, each of a kind that passes our own authorization at once.

    See `convgpu.authz.ports.EnginePort`.

    Args:
        engine: that is asked.
        plugin: our name there; empty, and our id stays unknown.
    """

    def __init__(self, engine: Engine, plugin: str = "") -> None:
        self._engine = engine
        self._plugin = plugin
        self._waiting = Waiting()
        self._facts: tuple[float, HostFacts] | None = None
        self._asking = threading.Lock()

    def container(self, name: str) -> Document | None:
        """Return `GET /containers/NAME/json`."""
        return self._read("container", name.lstrip("/"), "/containers/{}/json")

    def container_within(self, name: str, seconds: float) -> Document | None:
        """Return `GET /containers/NAME/json`, if it comes so soon."""
        return self._read("container", name.lstrip("/"), "/containers/{}/json", seconds)

    def volume(self, name: str) -> Document | None:
        """Return `GET /volumes/NAME`."""
        return self._read("volume", name, "/volumes/{}")

    def image(self, name: str) -> Document | None:
        """Return `GET /images/NAME/json`."""
        return self._read("image", name, "/images/{}/json")

    def service(self, name: str) -> Document | None:
        """Return `GET /services/NAME`."""
        return self._read("service", name, "/services/{}")

    def prepared(self, name: str) -> Document | None:
        """Return `GET /exec/NAME/json`."""
        return self._read("program", name, "/exec/{}/json")

    def _read(self, kind: str, name: str, path: str, seconds: float | None = None) -> Document | None:
        if {"", ".", ".."} & set(name.split("/")):  # nothing is called so, and the address would be another one
            return None
        quoted = quote(_short(name), safe="/:")
        try:
            with self._waiting.about(f"{kind} {name}") as place:
                found = self._engine.read(path.format(quoted), place, seconds)
        except EngineUnavailable as error:
            raise EngineUnreachable(str(error)) from error
        if found is not None and not isinstance(found, dict):
            raise EngineUnreachable(f"the Engine's answer about {kind} {name:.20} is none")
        return found

    def listed(self, container: str) -> Document | None:
        """Return the row of `GET /containers/json` with an id."""
        return self._row({"id": [container]})

    def is_task(self, container: str) -> bool:
        """Tell whether a container is a task of Swarm, by the Engine's own note of that."""
        return self._row({"id": [container], "is-task": ["true"]}) is not None

    def _row(self, filters: Mapping[str, list[str]]) -> Document | None:
        return next(iter(self._rows(filters)), None)

    def _rows(self, filters: Mapping[str, list[str]]) -> list[Document]:
        try:
            return list(self._engine.ask(lambda api: api.containers(all=True, filters=filters)))
        except (EngineUnavailable, NotFound) as error:
            raise EngineUnreachable(str(error)) from error

    def is_plugin(self, container: str) -> bool:
        """Tell whether the Engine has a managed plugin of this id."""
        return self._ask(lambda api: api.inspect_plugin(container)) is not None  # type: ignore[no-untyped-call]

    def states(self) -> Mapping[str, str]:
        """Return the state of each container by its id."""
        return {row["Id"]: row["State"] for row in self._rows({})}

    def id_of(self, name: str) -> str | None:
        """Return the id of a container by its id, its name or the beginning of its id: the Engine's own order."""
        rows = self._rows({})
        called = [row["Id"] for row in rows if f"/{name.removeprefix('/')}" in (row.get("Names") or ())]
        begins = [row["Id"] for row in rows if name and row["Id"].startswith(name)]
        found = [own for own in begins if own == name] or called or begins
        return found[0] if len(found) == 1 else None

    def facts(self) -> HostFacts:
        """Return what rules depend on beside the container."""
        found, now = self._facts, time.monotonic()
        age = math.inf if found is None else now - found[0]
        if found is not None and age <= _CACHE_TIME:
            return found[1]
        # One caller asks; the others have meanwhile what is a little older.
        if not self._asking.acquire(blocking=age > 2 * _CACHE_TIME) and found is not None:
            return found[1]
        try:
            if self._facts is None or self._facts is found:
                info = self._ask(lambda api: api.info()) or {}
                version = self._ask(lambda api: api.version()) or {}
                self._facts = (time.monotonic(), read_facts(info, version, self._own_id()))
            return self._facts[1]
        finally:
            self._asking.release()

    def _own_id(self) -> str:
        if not self._plugin:
            return ""
        return str((self._ask(lambda api: api.inspect_plugin(self._plugin)) or {}).get("Id") or "")  # type: ignore[no-untyped-call]

    def _ask(self, question: Callable[[APIClient], Document]) -> Document | None:
        try:
            return self._engine.ask(question)
        except NotFound:
            return None
        except EngineUnavailable as error:
            raise EngineUnreachable(str(error)) from error


def _short(name: str) -> str:
    if len(name.encode(errors="replace")) > _MAX_NAME:
        raise EngineUnreachable(f"the Engine is not asked about names of more than {_MAX_NAME} bytes ({name:.20}...)")
    return name
