"""The usage of GPUs over time, in samples (docs/protocol.md, Usage). Sizes are bytes, times Unix seconds."""

from typing import Final, Literal, TypeAlias

import msgspec

from convgpu.protocol.records import Record

Step: TypeAlias = Literal[1, 12, 144]
"""Seconds that one sample may stand for."""
STEPS: Final[tuple[Step, ...]] = (1, 12, 144)
LENGTH: Final = 600
"""Samples that are kept of each step: ten minutes, two hours and a day."""
PAGE: Final = 60
"""Samples of one answer at most."""
OTHERS: Final = -1
"""Number of the share that stands for all containers beyond the largest."""


class UsedShare(msgspec.Struct, frozen=True, array_like=True):
    """A container's memory on one GPU: `number` of the container, what it was granted there and what it used."""

    number: int
    grant: int
    usage: int


class DeviceUsage(msgspec.Struct, frozen=True):
    """One GPU in one sample; a mean where the sample stands for several seconds.

    Attributes:
        capacity: what may be handed out.
        settling: memory of ended processes that the driver has not freed yet.
        external: memory of processes outside ConvGPU.
        shares: of the containers with the largest grants, by number; `OTHERS` is the sum of all others.
        utilization, temperature, power: see `Telemetry`.
    """

    capacity: int
    settling: int
    external: int
    shares: tuple[UsedShare, ...] = ()
    utilization: float | None = None
    temperature: float | None = None
    power: float | None = None


class UsageSample(msgspec.Struct, frozen=True):
    """All GPUs, by UUID, in the step that begins at `time` (whole Unix seconds)."""

    time: int
    devices: dict[str, DeviceUsage]


class SampledContainer(msgspec.Struct, frozen=True):
    """A container that samples know by a number: its volume, and its name in the Engine, or that of its volume."""

    number: int
    volume: str
    name: str


class Usage(Record, frozen=True):
    """Answer to `usage`: samples in the order of time, and the containers that had memory since the time asked for.

    Attributes:
        step: seconds that each sample stands for.
        more: whether there are later samples than these; ask again with the time of the last.
    """

    step: Step
    samples: tuple[UsageSample, ...]
    containers: tuple[SampledContainer, ...] = ()
    more: bool = False
