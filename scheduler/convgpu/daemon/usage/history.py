"""The samples of ten minutes by the second, of two hours by 12 s and of a day by 144 s. Pure: time comes from outside.

Each is kept as the JSON that answers hand out: with eight GPUs and 24 containers on each they take 12 MB, and a
question costs no encoding.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from convgpu.protocol.inspection.usage import (
    LENGTH,
    OTHERS,
    PAGE,
    STEPS,
    DeviceUsage,
    SampledContainer,
    Step,
    UsageSample,
    UsedShare,
)
from convgpu.protocol.records import Telemetry

MOST_SHARES: Final = 24
_FAR_BACK: Final = 5  # seconds; a clock that is set back further begins a new history


@dataclass(frozen=True, slots=True)
class Holding:
    """A container's memory on one GPU, in bytes; `name`: in the Engine, or that of the volume."""

    volume: str
    name: str
    grant: int
    usage: int


@dataclass(frozen=True, slots=True)
class Reading:
    """One GPU at one moment; sizes in bytes."""

    capacity: int
    settling: int
    external: int
    holdings: Sequence[Holding]
    telemetry: Telemetry


@dataclass(slots=True)
class _Known:
    """A container with a number, and the seconds in which it had memory first and last."""

    volume: str
    name: str
    first: int
    last: int


@dataclass(slots=True)
class _Ring:
    """The newest samples of one step, and those that have come of the step that has not ended."""

    step: int
    encoded: deque[tuple[int, bytes]] = field(default_factory=lambda: deque(maxlen=LENGTH))
    begun: int = 0
    gathered: list[Mapping[str, DeviceUsage]] = field(default_factory=list)

    def add(self, second: int, devices: Mapping[str, DeviceUsage]) -> None:
        begin = second - second % self.step
        if self.gathered and begin != self.begun:
            self._end_step()
        self.begun = begin
        self.gathered.append(devices)
        if self.step == 1:
            self._end_step()

    def _end_step(self) -> None:
        uuids = dict.fromkeys(uuid for devices in self.gathered for uuid in devices)
        means = {uuid: _mean([devices[uuid] for devices in self.gathered if uuid in devices]) for uuid in uuids}
        self.encoded.append((self.begun, msgspec.json.encode(UsageSample(self.begun, means))))
        self.gathered = []


class UsageHistory:
    """The samples, and the containers that they name by a number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._known: dict[int, _Known] = {}
        self._next_number = 0
        self._newest = 0
        self._rings = {step: _Ring(step) for step in STEPS}

    def add(self, time: float, readings: Mapping[str, Reading]) -> None:
        """Keep what was read at a time (Unix seconds); the second that has a sample already gets no other."""
        second = int(time)
        if self._newest - _FAR_BACK < second <= self._newest:
            return
        if second <= self._newest:
            self._rings = {step: _Ring(step) for step in STEPS}
        self._newest = second
        devices = {uuid: self._usage(second, reading) for uuid, reading in readings.items()}
        for ring in self._rings.values():
            ring.add(second, devices)
        self._forget(second - LENGTH * STEPS[-1])

    def since(self, step: Step, after: int) -> dict[str, object]:
        """Return the fields of a `Usage` with the samples of a step that begin after a time, at most `PAGE`."""
        later = [(begun, encoded) for begun, encoded in self._rings[step].encoded if begun > after]
        page = later[:PAGE]
        return {
            "step": step,
            "samples": [msgspec.Raw(encoded) for _, encoded in page],
            "containers": self._containers(page[0][0], page[-1][0] + step) if page else (),
            "more": len(later) > len(page),
        }

    def _containers(self, begin: int, end: int) -> tuple[SampledContainer, ...]:
        return tuple(
            SampledContainer(number, known.volume, known.name)
            for number, known in self._known.items()
            if known.first < end and known.last >= begin
        )

    def _usage(self, second: int, reading: Reading) -> DeviceUsage:
        shares = [UsedShare(self._number(second, one), one.grant, one.usage) for one in reading.holdings]
        return DeviceUsage(
            capacity=reading.capacity,
            settling=reading.settling,
            external=reading.external,
            shares=_largest(shares),
            utilization=reading.telemetry.utilization,
            temperature=reading.telemetry.temperature,
            power=reading.telemetry.power,
        )

    def _number(self, second: int, holding: Holding) -> int:
        number = self._numbers.get(holding.volume)
        if number is None:
            number = self._numbers[holding.volume] = self._next_number
            self._next_number += 1
            self._known[number] = _Known(holding.volume, holding.name, second, second)
        known = self._known[number]
        known.name, known.last = holding.name, second
        return number

    def _forget(self, time: int) -> None:
        """Forget the containers that no sample names any more; the first is the oldest, nearly always."""
        while self._known:
            number, known = next(iter(self._known.items()))
            if known.last >= time:
                return
            del self._known[number], self._numbers[known.volume]


def _largest(shares: Sequence[UsedShare]) -> tuple[UsedShare, ...]:
    """Return the largest grants in the order of their numbers, and the sum of all others at the end."""
    ordered = sorted((share for share in shares if share.number != OTHERS), key=lambda share: share.grant, reverse=True)
    others = [*ordered[MOST_SHARES:], *(share for share in shares if share.number == OTHERS)]
    shown = sorted(ordered[:MOST_SHARES], key=lambda share: share.number)
    if others:
        shown.append(UsedShare(OTHERS, sum(one.grant for one in others), sum(one.usage for one in others)))
    return tuple(shown)


def _mean(usages: Sequence[DeviceUsage]) -> DeviceUsage:
    """Return the mean of one GPU's samples."""
    if len(usages) == 1:
        return usages[0]
    count = len(usages)
    grants: dict[int, int] = {}
    used: dict[int, int] = {}
    for share in (share for usage in usages for share in usage.shares):
        grants[share.number] = grants.get(share.number, 0) + share.grant
        used[share.number] = used.get(share.number, 0) + share.usage
    return DeviceUsage(
        capacity=usages[-1].capacity,
        settling=sum(usage.settling for usage in usages) // count,
        external=sum(usage.external for usage in usages) // count,
        shares=_largest([UsedShare(number, size // count, used[number] // count) for number, size in grants.items()]),
        utilization=_mean_of(usage.utilization for usage in usages),
        temperature=_mean_of(usage.temperature for usage in usages),
        power=_mean_of(usage.power for usage in usages),
    )


def _mean_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 1) if known else None
