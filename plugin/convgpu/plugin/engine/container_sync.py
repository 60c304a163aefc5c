"""Reports the Engine's list of containers to the scheduler: a signal of liveness beside mounts and connections.

One thread asks the Engine: at the start, when mounts and unmounts have stopped for a moment, and at intervals.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from convgpu.client.scheduler import Scheduler, SchedulerRefused, SchedulerUnavailable
from convgpu.logs.cause import set_cause
from convgpu.plugin.engine.client import Engine, EngineUnavailable
from convgpu.plugin.engine.orphans import find_orphans, remove_volumes
from convgpu.protocol.engine_container import is_running
from convgpu.protocol.labels import SHOWN, shown_labels
from convgpu.protocol.records import Container
from convgpu.protocol.requests import ListedContainer, ReportEngineList

_log: Final = logging.getLogger(__name__)
_ID: Final = re.compile("[0-9a-f]{64}")  # of a container, and the name of its injected limit

# Seconds without a mount or unmount before the Engine is asked: it has completed the operation by then, and a container
# that starts or ends is not delayed by the question.
QUIET: Final = 1.0
# Seconds after which the Engine is asked although mounts and unmounts go on.
_MAX_DELAY: Final = 5.0
# Seconds between reports without mounts; and while reports fail, or the Engine contradicts the scheduler.
INTERVAL: Final = 30.0
RETRY: Final = 2.0
# Seconds of failures that are not logged: the Engine, or the plugin in it, may be just starting.
FAILURE_GRACE: Final = 15.0
# Seconds without an answer after which the scheduler is taken to hang for good.
HUNG: Final = 60.0
# With a thousand containers a report takes a noticeable part of a second: it gets 5 % of the time at most, but the next
# one comes within some seconds in any case.
_MAX_LOAD: Final = 0.05
_MAX_REST: Final = 5.0


class ContainerSync:
    """Keeps the scheduler informed of the containers and volumes that the Engine lists.

    Args:
        engine: is asked.
        scheduler: gets the reports.
        driver: the plugin's name in the Engine.
        keep: seconds that a volume made for one container stays after its last use.
        clock: Unix seconds.
    """

    def __init__(
        self,
        engine: Engine,
        scheduler: Scheduler,
        driver: str,
        keep: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._scheduler = scheduler
        self._driver = full_name(driver)
        self._keep = keep
        self._clock = clock
        self._requested = threading.Event()
        self._failing: float | None = None  # since when
        self._logged_failure = False
        self._contradicted = False
        self._last_answer = time.monotonic()
        self._on_hung: Callable[[], None] = lambda: None

    def start(self, on_hung: Callable[[], None]) -> None:
        """Start the thread, which ends with the process; it calls `on_hung` when the scheduler hangs."""
        self._on_hung = on_hung
        threading.Thread(target=self._run, name="container-sync", daemon=True).start()

    def request(self) -> None:
        """Ask for a report soon, because a mount or unmount may mean a start, an end, or neither."""
        self._requested.set()

    def _run(self) -> None:
        set_cause("container-sync")
        while True:
            begun = time.monotonic()
            self._requested.clear()
            self.report()
            rest = min((time.monotonic() - begun) / _MAX_LOAD, _MAX_REST)
            again = self._failing is not None or self._contradicted
            if self._requested.wait(max(RETRY, rest) if again else INTERVAL):
                self._wait_until_quiet(time.monotonic() + rest)

    def _wait_until_quiet(self, earliest: float) -> None:
        """Wait until no report was requested for a moment, or for too long; not before `earliest` (monotonic)."""
        latest = time.monotonic() + _MAX_DELAY
        quiet = False
        while not quiet and time.monotonic() < latest:
            self._requested.clear()
            quiet = not self._requested.wait(QUIET)
        time.sleep(max(0.0, earliest - time.monotonic()))

    def report(self) -> None:
        """Report the Engine's list once. A failure that lasts is logged once; the next report repeats the attempt."""
        try:
            asked = self._clock()  # who is mounted after this may be missing among the known, and so in the list
            known = self._scheduler.list_containers()
            self._last_answer = time.monotonic()
            listed = self.read_engine(known, asked)
            self._scheduler.ask(listed)
            remove_volumes(self._engine, find_orphans(known, listed, self._keep))
        except (EngineUnavailable, SchedulerUnavailable, SchedulerRefused) as error:
            self._fail(error)
            if isinstance(error, SchedulerUnavailable) and time.monotonic() - self._last_answer > HUNG:
                _log.error("the scheduler has said nothing for %g s: another one is started", HUNG)
                self._on_hung()
                self._last_answer = time.monotonic()
        except Exception as error:  # an answer that no Engine should give; the thread must go on
            self._fail(error, exc_info=error)
        else:
            if self._logged_failure:
                _log.info("the Engine lists %d containers with our volumes", len(listed.containers))
            self._failing = None
            self._logged_failure = False
            self._contradicted = _contradicts(listed, known)

    def _fail(self, error: Exception, exc_info: Exception | None = None) -> None:
        if self._failing is None:
            self._failing = time.monotonic()
        if not self._logged_failure and time.monotonic() - self._failing >= FAILURE_GRACE:
            text = "ends of containers rest on unmounts and connections alone for now: %s"
            _log.warning(text, error, exc_info=exc_info)
            self._logged_failure = True

    def read_engine(self, containers: Sequence[Container], asked: float) -> ReportEngineList:
        """Return the Engine's list of now.

        Args:
            containers: that the scheduler has.
            asked: Unix seconds, before it was asked for them.

        Raises:
            EngineUnavailable: it does not answer, or not with all of it.
        """
        rows = self._engine.ask(lambda api: api.containers(all=True))
        found = self._engine.ask(lambda api: api.volumes(filters={"driver": [self._driver]}))
        # The Engine asks each volume driver, and leaves out the volumes of one that does not answer.
        if found.get("Warnings"):
            raise EngineUnavailable(f"the Engine does not list all volumes: {'; '.join(found['Warnings'])}")
        volumes = {row["Name"] for row in found.get("Volumes") or () if row["Driver"] == self._driver}
        known = {container.name for container in containers}
        expected = {container.name for container in containers if not _may_be_injected(container)}
        # Without this check a wrong name would seem to mean that all containers have ended.
        if expected and not expected & volumes:
            raise EngineUnavailable(
                f"the Engine has no volumes of a driver {self._driver}: set CONVGPU_NAME to the plugin's name there"
            )
        found_containers = [_container(row, self._driver, known) for row in rows]
        return ReportEngineList(
            asked=asked,
            containers=tuple(container for container in found_containers if container.volumes),
            volumes=tuple(sorted(volumes)),
        )


def full_name(driver: str) -> str:
    """Return the name of a plugin as the Engine has it: with its tag, whether its user gave one or not."""
    return driver if ":" in driver.rpartition("/")[2] else f"{driver}:latest"


def _contradicts(listed: ReportEngineList, known: Iterable[Container]) -> bool:
    """Tell whether the scheduler takes a container for running that the Engine does not list so."""
    running = {name for row in listed.containers if is_running(row.state) for name in row.volumes}
    return any(container.mounts and container.name not in running for container in known)


def _may_be_injected(container: Container) -> bool:
    """Tell whether Docker may know no such volume: also of one whose registration was not completed."""
    is_begun = container.state == "created" and not container.mounts and _ID.fullmatch(container.name) is not None
    return container.injected or is_begun


def _container(row: Mapping[str, Any], driver: str, known: Collection[str]) -> ListedContainer:
    """Read a row of `GET /containers/json`. The volume of a container of `convgpu-runtime` is its own id."""
    mounts = [mount for mount in row.get("Mounts") or () if mount.get("Driver") == driver and mount.get("Name")]
    # A linked container has further names of the form /other/alias; its own has one slash.
    names = [name.lstrip("/") for name in row.get("Names") or () if name.count("/") == 1]
    return ListedContainer(
        id=row["Id"],
        name=names[0][:SHOWN] if names else row["Id"][:12],
        image=(row.get("Image") or "")[:SHOWN],
        state=row["State"],
        labels=shown_labels(row.get("Labels") or {}),
        volumes=(*(mount["Name"] for mount in mounts), *([row["Id"]] if row["Id"] in known else [])),
    )
