"""The jobs that wait in a simulated cluster, by what they ask for: of those that ask for the same, the first decides.

A shape that found no room finds none before a card has *improved*: a job left it, or fell behind in the order. So an
event looks at the first job of each shape, and of those that failed before only at the cards that improved since.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, NamedTuple

from convgpu.simulate.cluster.jobs import Job, Key


class Shape(NamedTuple):
    """What decides whether a job fits: number of cards, and the share of the memory of each."""

    cards: int
    memory: float


_ALL: Final = Shape(0, 0.0)  # stands for every shape


@dataclass(slots=True)
class Failure:
    """The last time that a shape found no room.

    Attributes:
        key: of the job that was tried; what comes later in the order fits no better.
        improved: how many improvements of cards there had been.
        cards: how many cards had room; None where it matters on which nodes they are.
    """

    key: Key
    improved: int
    cards: int | None = None


@dataclass(slots=True)
class Queue:
    """The waiting jobs of one shape, the first on top, and the last time that they found no room."""

    jobs: list[tuple[Key, Job]] = field(default_factory=list)
    failure: Failure | None = None


class Waiting:
    """The waiting jobs of a cluster.

    Args:
        in_order: nobody passes a job that does not fit, so that all wait in one queue.

    Attributes:
        improved: the cards that improved, in the order in which they did.
    """

    def __init__(self, *, in_order: bool) -> None:
        self.improved: list[int] = []
        self._in_order = in_order
        self._queues: dict[Shape, Queue] = {}
        self._back, self._front = itertools.count(), itertools.count(-1, -1)

    def add(self, job: Job) -> None:
        """Let a job wait behind all of an equal place."""
        self._push(job, Key(job.place, waits=True, tie=next(self._back)))

    def put_back(self, jobs: Sequence[Job]) -> None:
        """Let jobs that were stopped wait again, before all others of an equal place; the first comes first."""
        for job in reversed(jobs):
            self._push(job, Key(job.place, waits=True, tie=next(self._front)))

    def _push(self, job: Job, key: Key) -> None:
        heappush(self._queue(shape_of(job)).jobs, (key, job))

    def remove_first(self, shape: Shape) -> None:
        """Remove the first job of a shape: it starts."""
        heappop(self._queue(shape).jobs)

    def candidates(self) -> list[tuple[Key, Job]]:
        """Return the first job of each queue that may find room now."""
        end = len(self.improved)
        found = []
        for queue in self._queues.values():
            failure = queue.failure
            if queue.jobs and (failure is None or failure.improved < end or queue.jobs[0][0] < failure.key):
                found.append(queue.jobs[0])
        return found

    def following(self, shape: Shape) -> list[tuple[Key, Job]]:
        """Return who is next after the first of a shape started, in a list of at most one."""
        return self._queue(shape).jobs[:1]

    def to_look_at(self, shape: Shape, key: Key) -> set[int] | None:
        """Return the cards on which a job could find room now, because they improved; None: any of them."""
        failure = self._queue(shape).failure
        if failure is None or key < failure.key:
            return None
        improved = set(self.improved[failure.improved :])
        if failure.cards is None:
            return improved
        return None if failure.cards + len(improved) >= shape.cards else set()

    def fail(self, shape: Shape, key: Key, cards: int | None) -> None:
        """Note that a job found no room; `cards`: as in Failure."""
        self._queue(shape).failure = Failure(key, len(self.improved), cards)

    def _queue(self, shape: Shape) -> Queue:
        return self._queues.setdefault(_ALL if self._in_order else shape, Queue())


def shape_of(job: Job) -> Shape:
    """Return the shape of a job."""
    return Shape(job.request.cards, job.request.memory)
