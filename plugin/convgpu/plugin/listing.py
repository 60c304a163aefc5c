"""What the Engine lists, told to the scheduler: the third sign of a container's end, beside unmounts and connections.

The Engine is asked at the start, soon after each mount and unmount, and at intervals; always by a thread of its own.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from convgpu.client.admin import SchedulerRefused, SchedulerUnavailable
from convgpu.plugin.engine import Engine, EngineUnavailable
from convgpu.plugin.scheduler import Scheduler, list_containers
from convgpu.protocol import journal
from convgpu.protocol.requests import Listed, ListedContainer

_log: Final = logging.getLogger(__name__)

# Seconds from a doubt to the question: long enough for the Engine to finish what it is doing, and for more doubts.
SETTLE: Final = 1.0
# Seconds between questions without any doubt; after a question that failed, because the Engine is maybe just starting.
INTERVAL: Final = 30.0
RETRY: Final = 2.0
# With a thousand containers a question takes a noticeable part of a second; it is to take 5 % of the time at most.
_SHARE: Final = 0.05


class Listing:
    """Keeps the scheduler told.

    Args:
        engine: is asked.
        scheduler: is told.
        driver: the plugin's name in the Engine.
        clock: Unix seconds.
    """

    def __init__(
        self, engine: Engine, scheduler: Scheduler, driver: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._engine = engine
        self._scheduler = scheduler
        # The Engine names a plugin with its tag, whether its user did or not.
        self._driver = driver if ":" in driver.rpartition("/")[2] else f"{driver}:latest"
        self._clock = clock
        self._doubt = threading.Event()
        self._failed = False

    def start(self) -> None:
        """Begin to ask, in a thread that ends with the process."""
        threading.Thread(target=self._run, name="listing", daemon=True).start()

    def doubt(self) -> None:
        """Something happened that may not be what it seems: ask soon."""
        self._doubt.set()

    def _run(self) -> None:
        journal.begin("listing")
        while True:
            begun = time.monotonic()
            self._doubt.clear()
            self.tell()
            took = time.monotonic() - begun
            if self._doubt.wait(RETRY if self._failed else INTERVAL):
                time.sleep(max(SETTLE, took / _SHARE))

    def tell(self) -> None:
        """Ask the Engine and tell the scheduler, once. A failure is logged when it is news; the next time mends it."""
        try:
            listed = self.ask()
            self._scheduler.request(**listed.model_dump())
        except (EngineUnavailable, SchedulerUnavailable, SchedulerRefused) as error:
            if not self._failed:
                _log.warning("ends of containers rest on unmounts and connections alone for now: %s", error)
            self._failed = True
        except Exception:
            # An answer that no Engine should give; the thread has to live on.
            if not self._failed:
                _log.exception("what the Engine lists could not be told to the scheduler")
            self._failed = True
        else:
            if self._failed:
                _log.info("the Engine lists %d containers with our volumes", len(listed.containers))
            self._failed = False

    def ask(self) -> Listed:
        """Return what the Engine lists now.

        Raises:
            EngineUnavailable: it does not, or not all of it.
            SchedulerUnavailable, SchedulerRefused: nobody tells what there should be.
        """
        known = {container.name for container in list_containers(self._scheduler)}
        asked = self._clock()
        rows = self._engine.ask(lambda api: api.containers(all=True))
        found = self._engine.ask(lambda api: api.volumes(filters={"driver": [self._driver]}))
        # The Engine asks us in turn, and leaves out whom it does not reach.
        if found.get("Warnings"):
            raise EngineUnavailable(f"the Engine does not list all volumes: {'; '.join(found['Warnings'])}")
        volumes = {row["Name"] for row in found.get("Volumes") or () if row["Driver"] == self._driver}
        # Without this check a wrong name would look as if all containers had ended.
        if known and not known & volumes:
            raise EngineUnavailable(
                f"the Engine has no volumes of a driver {self._driver}: set CONVGPU_NAME to the plugin's name there"
            )
        containers = [_container(row, self._driver, known) for row in rows]
        return Listed(
            op="listed",
            asked=asked,
            containers=tuple(one for one in containers if one.volumes),
            volumes=tuple(sorted(volumes)),
        )


def _container(row: Mapping[str, Any], driver: str, known: Collection[str]) -> ListedContainer:
    """Return a row of `GET /containers/json`. What `convgpu-runtime` registered goes by the container's own id."""
    mounts = [mount for mount in row.get("Mounts") or () if mount.get("Driver") == driver and mount.get("Name")]
    # A linked container has further names of the form /other/alias; its own has one slash.
    names = [name.lstrip("/") for name in row.get("Names") or () if name.count("/") == 1]
    return ListedContainer(
        id=row["Id"],
        name=names[0] if names else row["Id"][:12],
        image=row.get("Image") or "",
        state=row["State"],
        volumes=(*(mount["Name"] for mount in mounts), *([row["Id"]] if row["Id"] in known else [])),
    )
