"""Synthetic workloads: a thousand containers that arrive, allocate in phases, work, and end."""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

GIB: Final = 1 << 30
CONTAINERS: Final = 1000
DEVICES: Final = 8
CAPACITY: Final = 140 * GIB
ARRIVAL_WINDOW: Final = 6000.0  # seconds in which all of them arrive
LARGE: Final = 40 * GIB  # a container that needs more counts as large


class Random(Protocol):
    """The part of `random.Random` that workloads draw from."""

    def uniform(self, low: float, high: float, /) -> float:
        """Return a number between two bounds, all equally likely."""
        ...

    def lognormvariate(self, mean: float, deviation: float, /) -> float:
        """Return a number whose logarithm has this mean and standard deviation."""
        ...

    def expovariate(self, rate: float, /) -> float:
        """Return a number of an exponential distribution with the mean 1 / rate."""
        ...

    def randrange(self, stop: int, /) -> int:
        """Return an integer from 0 to below `stop`."""
        ...


@dataclass(frozen=True)
class Model:
    """The behaviour of programs.

    Attributes:
        name: what they do, for people.
        shares: of its memory that a program allocates one after the other, each with the mean seconds (of an
            exponential distribution) that it works then, with all that it has allocated.
        slack: the limit of a container, as a multiple of all that it allocates.
    """

    name: str
    shares: tuple[tuple[float, float], ...]
    slack: float = 1.0


MODELS: Final = (
    Model("in three parts: half, a quarter after 30 s, the rest after 60 s", ((0.5, 30), (0.25, 60), (0.25, 200))),
    Model("all at once", ((1.0, 290),)),
    Model("in three parts, limits twice the need", ((0.5, 30), (0.25, 60), (0.25, 200)), slack=2.0),
)


class Phase(NamedTuple):
    """An allocation of `size` bytes and the `seconds` of work that follow it; `is_context`: it is a CUDA context."""

    size: int
    seconds: float
    is_context: bool = False


@dataclass
class Job:
    """One container, and how far it has come. Sizes in bytes, times in seconds.

    Attributes:
        phase: index of the phase in which it is.
        attempts: failed ones.
        held: bytes that the present attempt has allocated.
        since: when it was granted its last allocation.
        byte_seconds: memory times time of the present attempt, up to `since`.
        left: seconds of work until the end of the phase, at `since`.
        is_working: it works since `since`.
        stints: how often it began to work, or was halted.
    """

    number: int
    arrival: float
    device: str
    phases: list[Phase]
    limit: int
    priority: int = 0
    phase: int = 0
    attempts: int = 0
    held: int = 0
    since: float = 0.0
    end: float = 0.0
    byte_seconds: float = 0.0
    left: float = 0.0
    is_working: bool = False
    stints: int = 0

    @property
    def need(self) -> int:
        """All bytes that it allocates."""
        return sum(phase.size for phase in self.phases)

    @property
    def work(self) -> float:
        """All seconds that it works."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def wait(self) -> float:
        """All seconds from arrival to end that are not the work itself, done once."""
        return max(self.end - self.arrival - self.work, 0.0)


def capacities() -> dict[str, int]:
    """Return the bytes of each device."""
    return {f"g{number}": CAPACITY for number in range(DEVICES)}


def unequal_capacities() -> dict[str, int]:
    """Return the bytes of devices of three sizes that have together as much as the equal ones."""
    sizes = (80, 80, 80, 80, 160, 160, 160, 320)
    return {f"g{number}": size * GIB for number, size in enumerate(sizes)}


def draw_jobs(model: Model, draw: Random) -> list[Job]:
    """Draw arrivals, devices and needs (4 to 80 GiB, half of them below 15). The same seed gives the same jobs."""
    return [_draw_job(number, model, draw) for number in range(CONTAINERS)]


def _draw_job(number: int, model: Model, draw: Random) -> Job:
    need = min(max(round(draw.lognormvariate(2.7, 0.8)), 4), 80)
    sizes = [int(need * share) for share, _ in model.shares[:-1]]
    sizes.append(need - sum(sizes))
    seconds = [draw.expovariate(1 / mean) for _, mean in model.shares]
    phases = [Phase(size * GIB, duration) for size, duration in zip(sizes, seconds, strict=True)]
    device = f"g{draw.randrange(DEVICES)}"
    limit = min(round(need * model.slack) * GIB, CAPACITY)
    return Job(number, draw.uniform(0, ARRIVAL_WINDOW), device, phases, limit)
