"""Tells the scheduler how the Engine names a container as soon as it starts: some are gone before a list is asked for.

One thread follows the Engine's events. Nobody waits for it: without the stream, names come with the next list.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from convgpu.client.scheduler import Scheduler
from convgpu.logs.cause import set_cause
from convgpu.plugin.engine.client import Engine
from convgpu.protocol.labels import SHOWN, shown_labels
from convgpu.protocol.requests import ListedContainer, ReportNames

_log: Final = logging.getLogger(__name__)

_FILTERS: Final = {"type": ["container", "volume"], "event": ["create", "mount", "start"]}
# Seconds before the Engine is asked again after a stream has ended: it restarts, or is not up yet.
_RETRY: Final = 2.0
_MOST: Final = 1024  # containers that were created and not started yet, and mounts of which no start has come


class Starts:
    """Puts together what single events of the Engine say of a container; pure.

    A container's `create` and `start` have its name and labels, the `mount` of a volume the container's id. The mount
    comes before the program runs.

    Args:
        driver: the plugin's name in the Engine, with its tag.
    """

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self._names: dict[str, Mapping[str, str]] = {}  # attributes by id
        self._mounts: dict[str, tuple[str, ...]] = {}  # volumes by id

    def take(self, event: Mapping[str, Any]) -> ListedContainer | None:
        """Return a container whose name and volumes are known by this event; None without one."""
        actor = event.get("Actor") or {}
        attributes: Mapping[str, str] = actor.get("Attributes") or {}
        match event.get("Type"), event.get("Action"):
            case "container", "create":
                _put(self._names, actor["ID"], _shown(attributes))
            case "volume", "mount" if attributes.get("driver") == self._driver and attributes.get("container"):
                container = attributes["container"]
                _put(self._mounts, container, (*self._mounts.get(container, ()), actor["ID"]))
                if container in self._names:
                    return _container(container, self._names[container], self._mounts[container])
            case "container", "start":
                self._names.pop(actor["ID"], None)
                # The volume of a container of `convgpu-runtime` has the container's own id.
                return _container(actor["ID"], attributes, (*self._mounts.pop(actor["ID"], ()), actor["ID"]))
        return None


def _put(table: dict[str, Any], key: str, value: Any) -> None:
    """Put an entry at the end; the oldest goes when there are too many."""
    table.pop(key, None)
    table[key] = value
    if len(table) > _MOST:
        del table[next(iter(table))]


def _shown(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return what is shown of a container, which is short; its own labels may be of any length and number."""
    names = {key: attributes[key][:SHOWN] for key in ("name", "image") if key in attributes}
    return shown_labels({key: value for key, value in attributes.items() if key not in names}) | names


def _container(container: str, attributes: Mapping[str, str], volumes: tuple[str, ...]) -> ListedContainer:
    labels = {key: value for key, value in attributes.items() if key not in {"name", "image"}}
    return ListedContainer(
        id=container,
        name=(attributes.get("name") or container[:12])[:SHOWN],
        image=(attributes.get("image") or "")[:SHOWN],
        state="running",
        labels=shown_labels(labels),
        volumes=volumes,
    )


class ContainerNames:
    """Follows the Engine's events, from where they broke off, and reports each container that starts.

    Args:
        engine: is asked; no other thread should use it.
        scheduler: gets the names.
        driver: the plugin's name in the Engine.
        pause: waits before the Engine is asked again.
    """

    def __init__(
        self,
        engine: Engine,
        scheduler: Scheduler,
        driver: str,
        pause: Callable[[], object] = lambda: time.sleep(_RETRY),
    ) -> None:
        self._engine = engine
        self._scheduler = scheduler
        self._starts = Starts(driver)
        self._pause = pause
        self._since: int | None = None

    def start(self) -> None:
        """Start the thread, which ends with the process."""
        threading.Thread(target=self._run, name="container-names", daemon=True).start()

    def _run(self) -> None:
        set_cause("container-names")
        while True:
            self.follow()
            self._pause()

    def follow(self) -> None:
        """Report what starts until the stream ends; whatever ends it, the thread goes on."""
        try:
            stream = self._engine.ask(lambda api: api.events(since=self._since, filters=_FILTERS, decode=True))
            self._report(stream)
        except Exception as error:
            _log.debug("the Engine's events end: %s", error)

    def _report(self, stream: Iterable[Mapping[str, Any]]) -> None:
        for event in stream:
            self._since = event.get("time", self._since)  # in whole seconds: what is read twice changes nothing
            container = self._starts.take(event)
            if container is not None:
                self._scheduler.ask(ReportNames(container))
