"""The feed of the page: the scheduler's latest state, and samples of each container's memory in the last ten minutes.

One thread polls, for any number of readers. Each reader takes the latest state when it is ready for one, so a slow
reader misses states and delays no other.
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

PERIOD: Final = 0.5  # seconds from an answer to the next poll; an event is shown in less than a second
MAX_PERIOD: Final = 1.2  # also on a busy machine a pause is seen within two seconds
MAX_SAMPLES: Final = 600  # one for each second
MAX_EVENTS: Final = 300
MAX_BANDS: Final = 24  # containers of a sample; the others share one band
OTHERS: Final = -1


@dataclass(slots=True)
class FeedUpdate:
    """The part of the feed that a reader has not seen yet.

    Attributes:
        version: of the state.
        state: as JSON; None if it has not changed.
        samples: as JSON; None if there are no new ones.
        next_sample: the number of the sample after these.
        silence: seconds since the last poll ended.
    """

    version: int
    state: bytes | None
    samples: bytes | None
    next_sample: int
    silence: float


@dataclass(slots=True)
class _Latest:
    """The scheduler's last answers."""

    devices: Devices = field(default_factory=lambda: Devices(devices=(), policy="-"))
    containers: Sequence[Container] = ()
    heard: float | None = None
    away: dict[str, object] | None = None


class Feed:
    """Polls the scheduler until it is closed.

    Args:
        scheduler: is polled; an answer that takes long delays this thread only.
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
        self._latest = _Latest()
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._next_event = 0
        self._numbers: dict[str, int] = {}
        self._number = 0
        self._samples: deque[tuple[int, Mapping[str, object]]] = deque(maxlen=MAX_SAMPLES)
        self._changed = threading.Condition()
        self._version = 0
        self._state = b""
        self._polled = clock()
        self._closed = threading.Event()

    def run(self) -> None:
        """Poll again and again; return when it is closed."""
        while not self._closed.is_set():
            begin = self._clock()
            self.poll()
            # An answer takes the scheduler's time from others: the feed takes a tenth of it at most.
            self._closed.wait(min(max(PERIOD, 9 * (self._clock() - begin)), MAX_PERIOD))

    def close(self) -> None:
        """End `run` and every `wait`."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed.is_set()

    def poll(self) -> None:
        """Poll once, and wake the readers."""
        latest = self._latest
        try:
            latest.devices = self._scheduler.devices()
            latest.containers = self._scheduler.containers()
            self._read_events()
        except (Unavailable, Refused) as error:
            latest.away = latest.away or {"since": self._wall_clock()}
            latest.away["text"] = error.message
        else:
            latest.away = None
            latest.heard = self._wall_clock()
        self._count(latest.containers)
        state = msgspec.json.encode(self._describe())
        with self._changed:
            self._version += 1
            self._state = state
            self._polled = self._clock()
            second = int(self._clock())
            if latest.away is None and (not self._samples or self._samples[-1][0] < second):
                self._samples.append((second, self._sample()))
            self._changed.notify_all()

    def wait(self, version: int, next_sample: int, timeout: float) -> FeedUpdate:
        """Return the state after `version`, and the samples from `next_sample` on; wait `timeout` seconds for them.

        Both are 0 for a new reader, and later those of its last `FeedUpdate`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._version > version or self.closed, timeout)
            if self._version <= version:
                return FeedUpdate(version, None, None, next_sample, self._clock() - self._polled)
            new = [{"t": second, "devices": devices} for second, devices in self._samples if second >= next_sample]
            samples = msgspec.json.encode({"first": next_sample == 0, "samples": new}) if new else None
            following = self._samples[-1][0] + 1 if self._samples else next_sample
            return FeedUpdate(self._version, self._state, samples, following, 0.0)

    def _read_events(self) -> None:
        answer = self._scheduler.events(self._next_event)
        if answer.next < self._next_event:
            # A new scheduler, whose sequence numbers begin again.
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
        latest = self._latest
        return {
            "time": self._wall_clock(),
            "heard": latest.heard,
            "away": latest.away,
            "policy": latest.devices.policy,
            "devices": latest.devices.devices,
            "containers": latest.containers,
            "numbers": self._numbers,
            "events": list(self._events),
        }

    def _sample(self) -> dict[str, object]:
        bands: dict[str, list[tuple[int, int, int]]] = {device.uuid: [] for device in self._latest.devices.devices}
        for container in self._latest.containers:
            for share in container.devices:
                if share.grant and share.uuid in bands:
                    grant, usage = max(share.grant - share.out, 0), max(share.usage - share.out, 0)
                    bands[share.uuid].append((self._numbers[container.name], grant, usage))
        return {
            device.uuid: {
                "capacity": device.capacity,
                "settling": device.settling,
                "bands": _largest(bands[device.uuid]),
            }
            for device in self._latest.devices.devices
        }


def _largest(bands: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the largest grants in the order of their numbers, and the sum of all others on top."""
    ordered = sorted(bands, key=lambda band: band[1], reverse=True)
    others = ordered[MAX_BANDS:]
    shown = sorted(ordered[:MAX_BANDS])
    if others:
        shown.append((OTHERS, sum(grant for _, grant, _ in others), sum(usage for _, _, usage in others)))
    return shown
