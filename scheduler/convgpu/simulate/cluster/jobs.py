"""A job of a simulated cluster: what it asks for, and how far it is. Times in seconds, shares of one card 0 to 1."""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True)
class Request:
    """What a job asks for.

    Attributes:
        name: unique in its trace.
        submitted: seconds since the trace began.
        duration: seconds that it runs alone.
        cards: number of cards; it needs them all at once.
        memory: share of each card's memory; 1 is a whole card.
        utilisation: share of each card's computing that it uses when alone.
        kind: what makes two jobs runs of the same work; empty where nothing is known.

    Raises:
        ValueError: a figure makes no sense.
    """

    name: str
    submitted: float
    duration: float
    cards: int = 1
    memory: float = 1.0
    utilisation: float = 1.0
    kind: str = ""

    def __post_init__(self) -> None:
        """Refuse what no cluster could run."""
        if not 0 < self.memory <= 1:
            raise ValueError(f"job {self.name}: memory is a share of a card, above 0, at most 1, not {self.memory:g}")
        if not 0 <= self.utilisation <= 1:
            raise ValueError(f"job {self.name}: utilisation is a share of a card, 0 to 1, not {self.utilisation:g}")
        if self.cards < 1 or not 0 <= self.duration < math.inf:
            raise ValueError(f"job {self.name}: {self.cards} cards for {self.duration:g} s make no job")


class Key(NamedTuple):
    """A job's place in the serving order; unique.

    Attributes:
        place: by the ranking; the smallest is served first.
        waits: of equal places those that run come first.
        tie: of equal ones the smallest comes first.
    """

    place: tuple[float, ...]
    waits: bool
    tie: int


NO_KEY: Final = Key((), waits=True, tie=0)


@dataclass(slots=True, eq=False)
class Job:
    """A job in the simulation. Two jobs are equal only if they are the same.

    Attributes:
        work: seconds of running alone that it still needs, restarts included.
        known: whether a ranking may see `work`.
        attained: service in card-seconds; on a shared card the part that the job takes counts.
        place: its place in the order of the jobs, by the ranking.
        key: the same among all jobs, as of event number `keyed`.
        started: number of its last start.
        on: the cards that it runs on; empty while it waits.
        version: raised whenever an event that was planned for it has become wrong.
        waited: seconds in which it did not run.
    """

    request: Request
    work: float
    known: bool
    attained: float = 0.0
    speed: float = 1.0
    checked: float = 0.0
    place: tuple[float, ...] = ()
    key: Key = NO_KEY
    keyed: int = 0
    started: int = 0
    on: tuple[int, ...] = ()
    version: int = 0
    ended: float = math.nan
    waited: float = 0.0
    preemptions: int = 0

    @property
    def submitted(self) -> float:
        """Seconds since the trace began."""
        return self.request.submitted

    @property
    def cards(self) -> float:
        """Cards that it takes: of a shared one the larger share of memory and computing, as both keep others off."""
        return self.request.cards * max(self.request.memory, self.request.utilisation)

    @property
    def remaining(self) -> float:
        """Seconds that it still has to run, as far as a ranking knows."""
        return self.work if self.known else math.inf

    @property
    def running(self) -> bool:
        """Whether it has cards."""
        return bool(self.on)

    @property
    def completion(self) -> float:
        """Seconds from its submission to its end (JCT)."""
        return self.ended - self.request.submitted

    def advance(self, now: float) -> None:
        """Count the time since the last event as running or waiting."""
        passed, self.checked = now - self.checked, now
        if self.on:
            self.work -= passed * self.speed
            self.attained += passed * self.cards
        else:
            self.waited += passed
