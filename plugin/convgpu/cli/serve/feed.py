"""The feed of the page: the scheduler's latest state, and its samples of the GPUs in the last ten minutes.

One thread polls, for any number of readers. Each reader takes the latest state when it is ready for one, so a slow
reader misses states and delays no other.
"""

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from convgpu.cli.connect.scheduler import Scheduler
from convgpu.cli.terminal.errors import Refused, Unavailable
from convgpu.protocol.inspection.usage import LENGTH, OTHERS, Step, UsageSample, UsedShare
from convgpu.protocol.records import Container, Devices, Event

PERIOD: Final = 0.5  # seconds from an answer to the next poll; an event is shown in less than a second
MAX_PERIOD: Final = 1.2  # also on a busy machine a pause is seen within two seconds
MAX_EVENTS: Final = 300
MAX_NAMES: Final = 1024  # of containers with a number, and of those that are gone


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
        self._names = _Names()
        self._samples: deque[UsageSample] = deque(maxlen=LENGTH)
        self._host = socket.gethostname()
        self._changed = threading.Condition(threading.RLock())
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
            self._read_samples()
        except (Unavailable, Refused) as error:
            latest.away = latest.away or {"since": self._wall_clock()}
            latest.away["text"] = error.message
        else:
            latest.away = None
            latest.heard = self._wall_clock()
        state = msgspec.json.encode(self._describe())
        with self._changed:
            self._version += 1
            self._state = state
            self._polled = self._clock()
            self._changed.notify_all()

    def wait(self, version: int, next_sample: int, timeout: float) -> FeedUpdate:
        """Return the state after `version`, and the samples from `next_sample` on; wait `timeout` seconds for them.

        Both are 0 for a new reader, and later those of its last `FeedUpdate`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._version > version or self.closed, timeout)
            if self._version <= version:
                return FeedUpdate(version, None, None, next_sample, self._clock() - self._polled)
            new = [sample for sample in self._samples if sample.time >= next_sample]
            samples = msgspec.json.encode({"first": next_sample == 0, "samples": new}) if new else None
            following = self._samples[-1].time + 1 if self._samples else next_sample
            return FeedUpdate(self._version, self._state, samples, following, 0.0)

    def _read_events(self) -> None:
        answer = self._scheduler.events(self._next_event)
        if answer.next < self._next_event:
            # A new scheduler, whose sequence numbers begin again.
            self._next_event = 0
            answer = self._scheduler.events(0)
        self._events.extend(event for event in answer.events if event.sequence >= self._next_event)
        self._next_event = answer.next

    def _read_samples(self) -> None:
        """Read the samples that are new; a scheduler that has started again goes on where the old one ended."""
        newest = self._samples[-1].time if self._samples else 0
        samples = self.past(1, newest)
        with self._changed:
            self._samples.extend(samples)

    def past(self, step: Step, after: int = 0) -> list[UsageSample]:
        """Ask the scheduler for the samples of a step that begin after a time; containers get the page's numbers.

        Raises:
            Unavailable, Refused: as the scheduler answers.
        """
        found: list[UsageSample] = []
        while True:
            answer = self._scheduler.usage(step, after)
            with self._changed:
                own = {one.number: self._names.add(one.volume, one.name) for one in answer.containers}
            found += [_renumber(sample, own) for sample in answer.samples]
            if not answer.more:
                return found
            after = found[-1].time

    def _describe(self) -> dict[str, object]:
        latest = self._latest
        with self._changed:
            for container in latest.containers:
                if container.engine is not None:
                    self._names.rename(container.name, container.engine.name)
            for event in self._events:
                if event.container is not None and event.name:
                    self._names.rename(event.container, event.name)
            names, numbers = dict(self._names.names), dict(self._names.numbers)
        return {
            "time": self._wall_clock(),
            "host": self._host,
            "heard": latest.heard,
            "away": latest.away,
            "policy": latest.devices.policy,
            "devices": latest.devices.devices,
            "containers": latest.containers,
            "numbers": numbers,
            "names": names,
            "events": list(self._events),
        }


class _Names:
    """Numbers of containers, which are their colours, and their names, also of those that are gone."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.names: dict[str, str] = {}
        self._next = 0

    def add(self, volume: str, name: str) -> int:
        """Return the number of a container with this name; it keeps it."""
        self.rename(volume, name)
        if volume not in self.numbers:
            self.numbers[volume] = self._next
            self._next += 1
            if len(self.numbers) > MAX_NAMES:
                del self.numbers[next(iter(self.numbers))]
        return self.numbers[volume]

    def rename(self, volume: str, name: str) -> None:
        """Keep the name of a container; the Engine's is better than that of its volume, which may be known first."""
        if name != volume or volume not in self.names:
            self.names[volume] = name
            if len(self.names) > MAX_NAMES:
                del self.names[next(iter(self.names))]


def _renumber(sample: UsageSample, own: Mapping[int, int]) -> UsageSample:
    """Return a sample with other numbers for its containers: each scheduler begins again with 0."""
    devices = {
        uuid: msgspec.structs.replace(
            usage,
            shares=tuple(UsedShare(own.get(share.number, OTHERS), share.grant, share.usage) for share in usage.shares),
        )
        for uuid, usage in sample.devices.items()
    }
    return UsageSample(sample.time, devices)
