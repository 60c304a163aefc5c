"""What the page shows: the newest state of the scheduler, and samples of who had the memory in the last ten minutes.

One thread asks, however many look; each reader takes the newest there is when it is ready for it, so that a slow one
misses states and keeps nobody waiting.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from convgpu.cli.connect.scheduler import Scheduler
from convgpu.cli.terminal.errors import Refused, Unavailable
from convgpu.protocol.records import Container, Devices, Event

PERIOD: Final = 0.5  # seconds from an answer to the next question; what happens is seen in less than a second
LONGEST_PERIOD: Final = 1.2  # also on a busy machine a pause is seen within two seconds
MOST_SAMPLES: Final = 600  # one for each second
MOST_EVENTS: Final = 300
MOST_BANDS: Final = 24  # containers of a sample; what the others have is one band
OTHERS: Final = -1


@dataclass(slots=True)
class News:
    """What a reader has not seen yet: the state and the samples as JSON; `next_sample` is the number of the next one.

    `silence`: seconds since the scheduler was asked and gave an answer, or an error.
    """

    version: int
    state: bytes | None
    samples: bytes | None
    next_sample: int
    silence: float


@dataclass(slots=True)
class _Known:
    """The last answers."""

    devices: Devices = field(default_factory=lambda: Devices(devices=(), policy="-"))
    containers: Sequence[Container] = ()
    heard: float | None = None
    away: dict[str, object] | None = None


class Feed:
    """Asks the scheduler until it is closed.

    Args:
        scheduler: whom to ask; an answer that takes long only delays this thread.
        clock: monotonic seconds.
        wall_clock: Unix seconds.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._wall_clock = wall_clock
        self._known = _Known()
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._next_event = 0
        self._numbers: dict[str, int] = {}
        self._number = 0
        self._samples: deque[tuple[int, Mapping[str, object]]] = deque(maxlen=MOST_SAMPLES)
        self._changed = threading.Condition()
        self._version = 0
        self._state = b""
        self._looked = clock()
        self._closed = threading.Event()

    def run(self) -> None:
        """Ask again and again; returns when it is closed."""
        while not self._closed.is_set():
            begin = self._clock()
            self.look()
            # An answer takes the scheduler from others: a tenth of its time is enough for us.
            self._closed.wait(min(max(PERIOD, 9 * (self._clock() - begin)), LONGEST_PERIOD))

    def close(self) -> None:
        """End `run` and every `wait`."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """Whether nothing more will come."""
        return self._closed.is_set()

    def look(self) -> None:
        """Ask once, and tell the readers."""
        known = self._known
        try:
            known.devices = self._scheduler.devices()
            known.containers = self._scheduler.containers()
            self._read_events()
        except (Unavailable, Refused) as error:
            known.away = known.away or {"since": self._wall_clock()}
            known.away["text"] = error.message
        else:
            known.away = None
            known.heard = self._wall_clock()
        self._count(known.containers)
        state = msgspec.json.encode(self._describe())
        with self._changed:
            self._version += 1
            self._state = state
            self._looked = self._clock()
            second = int(self._clock())
            if known.away is None and (not self._samples or self._samples[-1][0] < second):
                self._samples.append((second, self._sample()))
            self._changed.notify_all()

    def wait(self, version: int, next_sample: int, patience: float) -> News:
        """Return what came after `version` and from `next_sample` on; waits `patience` seconds for it.

        Both are 0 for a new reader, and later what the last `News` said.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._version > version or self.closed, patience)
            if self._version <= version:
                return News(version, None, None, next_sample, self._clock() - self._looked)
            new = [{"t": second, "devices": devices} for second, devices in self._samples if second >= next_sample]
            samples = msgspec.json.encode({"first": next_sample == 0, "samples": new}) if new else None
            following = self._samples[-1][0] + 1 if self._samples else next_sample
            return News(self._version, self._state, samples, following, 0.0)

    def _read_events(self) -> None:
        answer = self._scheduler.events(self._next_event)
        if answer.next < self._next_event:
            # Another scheduler, which counts from the beginning again.
            self._next_event = 0
            answer = self._scheduler.events(0)
        self._events.extend(event for event in answer.events if event.sequence >= self._next_event)
        self._next_event = answer.next

    def _count(self, containers: Sequence[Container]) -> None:
        """Give each container a number for its colour; it keeps it while it is there."""
        here = {container.name for container in containers}
        self._numbers = {name: number for name, number in self._numbers.items() if name in here}
        for container in containers:
            if container.name not in self._numbers:
                self._numbers[container.name] = self._number
                self._number += 1

    def _describe(self) -> dict[str, object]:
        known = self._known
        return {
            "time": self._wall_clock(),
            "heard": known.heard,
            "away": known.away,
            "policy": known.devices.policy,
            "devices": known.devices.devices,
            "containers": known.containers,
            "numbers": self._numbers,
            "events": list(self._events),
        }

    def _sample(self) -> dict[str, object]:
        bands: dict[str, list[tuple[int, int, int]]] = {device.uuid: [] for device in self._known.devices.devices}
        for container in self._known.containers:
            for share in container.devices:
                if share.grant and share.uuid in bands:
                    bands[share.uuid].append((self._numbers[container.name], share.grant, share.usage))
        return {
            device.uuid: {
                "capacity": device.capacity,
                "settling": device.settling,
                "bands": _largest(bands[device.uuid]),
            }
            for device in self._known.devices.devices
        }


def _largest(bands: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the largest grants in the order of their numbers, and the sum of all others on top."""
    ordered = sorted(bands, key=lambda band: band[1], reverse=True)
    others = ordered[MOST_BANDS:]
    shown = sorted(ordered[:MOST_BANDS])
    if others:
        shown.append((OTHERS, sum(grant for _, grant, _ in others), sum(usage for _, _, usage in others)))
    return shown
