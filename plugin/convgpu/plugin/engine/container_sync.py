"""What the Engine lists, told to the scheduler: the third sign of a container's end, beside unmounts and connections.

The Engine is asked at the start, once mounts and unmounts pause, and at intervals; always by a thread of its own.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from convgpu.client.scheduler import Scheduler, SchedulerRefused, SchedulerUnavailable
from convgpu.logs.cause import set_cause
from convgpu.plugin.engine.client import Engine, EngineUnavailable
from convgpu.plugin.engine.orphans import find_orphans, remove_volumes
from convgpu.protocol.engine_states import is_running
from convgpu.protocol.records import Container
from convgpu.protocol.requests import ListedContainer, ReportEngineList

_log: Final = logging.getLogger(__name__)

# Seconds without a further doubt before the question: the Engine has finished what it was doing then, and a container
# that comes or goes does not wait for it.
SETTLE: Final = 1.0
# Seconds after which the question is put although doubts go on.
_STREAK: Final = 5.0
# Seconds between questions without any doubt; as long as one fails, or the Engine contradicts the scheduler.
INTERVAL: Final = 30.0
RETRY: Final = 2.0
# Seconds of failures that are nothing to report: the Engine, or the plugin in it, may be just starting.
PATIENCE: Final = 15.0
# Seconds of silence after which a scheduler does not hang for a moment, but for good.
HUNG: Final = 60.0
# With a thousand containers a question takes a noticeable part of a second: 5 % of the time at most, but one that took
# long because the Engine was starting is followed soon.
_SHARE: Final = 0.05
_REST: Final = 5.0


class Listing:
    """Keeps the scheduler told.

    Args:
        engine: is asked.
        scheduler: is told.
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
        # The Engine names a plugin with its tag, whether its user did or not.
        self._driver = driver if ":" in driver.rpartition("/")[2] else f"{driver}:latest"
        self._keep = keep
        self._clock = clock
        self._doubt = threading.Event()
        self._failing: float | None = None  # since when
        self._complained = False
        self._doubtful = False
        self._heard = time.monotonic()
        self._on_hung: Callable[[], None] = lambda: None

    def start(self, on_hung: Callable[[], None]) -> None:
        """Begin to ask, in a thread that ends with the process; `on_hung` is called when the scheduler hangs."""
        self._on_hung = on_hung
        threading.Thread(target=self._run, name="listing", daemon=True).start()

    def doubt(self) -> None:
        """Something happened that may not be what it seems: ask soon."""
        self._doubt.set()

    def _run(self) -> None:
        set_cause("listing")
        while True:
            begun = time.monotonic()
            self._doubt.clear()
            self.tell()
            rest = min((time.monotonic() - begun) / _SHARE, _REST)
            again = self._failing is not None or self._doubtful
            if self._doubt.wait(max(RETRY, rest) if again else INTERVAL):
                self._settle(time.monotonic() + rest)

    def _settle(self, earliest: float) -> None:
        """Return when there were no doubts for a while, or for too long; not before `earliest` (monotonic)."""
        latest = time.monotonic() + _STREAK
        quiet = False
        while not quiet and time.monotonic() < latest:
            self._doubt.clear()
            quiet = not self._doubt.wait(SETTLE)
        time.sleep(max(0.0, earliest - time.monotonic()))

    def tell(self) -> None:
        """Ask the Engine and tell the scheduler, once. A failure that lasts is logged once; the next time mends it."""
        try:
            known = self._scheduler.list_containers()
            self._heard = time.monotonic()
            listed = self.ask(frozenset(container.name for container in known))
            self._scheduler.ask(listed)
            remove_volumes(self._engine, find_orphans(known, listed, self._keep))
        except (EngineUnavailable, SchedulerUnavailable, SchedulerRefused) as error:
            self._fail(error)
            if isinstance(error, SchedulerUnavailable) and time.monotonic() - self._heard > HUNG:
                _log.error("the scheduler has said nothing for %g s: another one is started", HUNG)
                self._on_hung()
                self._heard = time.monotonic()
        except Exception as error:  # an answer that no Engine should give; the thread has to live on
            self._fail(error, exc_info=error)
        else:
            if self._complained:
                _log.info("the Engine lists %d containers with our volumes", len(listed.containers))
            self._failing = None
            self._complained = False
            self._doubtful = _contradicts(listed, known)

    def _fail(self, error: Exception, exc_info: Exception | None = None) -> None:
        if self._failing is None:
            self._failing = time.monotonic()
        if not self._complained and time.monotonic() - self._failing >= PATIENCE:
            text = "ends of containers rest on unmounts and connections alone for now: %s"
            _log.warning(text, error, exc_info=exc_info)
            self._complained = True

    def ask(self, known: frozenset[str]) -> ReportEngineList:
        """Return what the Engine lists now.

        Args:
            known: volumes that the scheduler has.

        Raises:
            EngineUnavailable: it does not answer, or not with all of it.
        """
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
        return ReportEngineList(
            asked=asked,
            containers=tuple(one for one in containers if one.volumes),
            volumes=tuple(sorted(volumes)),
        )


def _contradicts(listed: ReportEngineList, known: Iterable[Container]) -> bool:
    """Tell whether the scheduler takes a container for running that the Engine does not list so."""
    running = {name for one in listed.containers if is_running(one.state) for name in one.volumes}
    return any(one.mounts and one.name not in running for one in known)


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
