"""The simulated cluster: jobs come, run, are preempted and end, event by event.

docs/simulation.md says what is assumed. In short: a job's share of a card is fenced; jobs of one card slow each other
down only when together they use more than all of its computing; a preempted job goes on from its checkpoint and pays
for a restart; nothing fails.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from operator import attrgetter
from typing import Final

from convgpu.ranking import Ranking
from convgpu.simulate.cluster.cards import Cards
from convgpu.simulate.cluster.jobs import Job, Request

LEAST_STEP: Final = 1e-6  # seconds; a change of place comes after the service that causes it, rounded or not


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a cluster is scheduled.

    Attributes:
        ranking: the order of the jobs.
        sharing: jobs at most on one card; 1 is exclusive.
        backfill: a job may start before one that comes earlier in the order and does not fit.
        preemptive: a job may displace jobs that come later in the order.
        restart: seconds of work that a preempted job loses.
        knows_durations: whether the ranking sees how long a job has to run.
    """

    ranking: Ranking
    sharing: int = 1
    backfill: bool = False
    preemptive: bool = False
    restart: float = 30.0
    knows_durations: bool = False


class _Kind(IntEnum):
    """What an event is; ends come first, so that what they free is there for arrivals of the same time."""

    END = 0
    ARRIVAL = 1
    CHANGE = 2  # of a running job's place in the order


class Cluster:
    """The state of the cluster and its jobs."""

    def __init__(self, scheme: Scheme, nodes: Sequence[int]) -> None:
        """`nodes`: how many cards each node has."""
        self._scheme = scheme
        self._cards = Cards(nodes, scheme.sharing)
        self._waiting: list[Job] = []
        self._running: list[Job] = []
        self._events: list[tuple[float, int, int, Job, int]] = []
        self._sequence = itertools.count()
        self._touched = set[int]()

    def run(self, requests: Iterable[Request], ended: Callable[[int], None] = lambda _: None) -> list[Job]:
        """Play all jobs to their end and return them; `ended` hears the number of jobs that ended, now and then.

        Raises:
            ValueError: a job asks for more cards than there are.
        """
        jobs = [Job(request, request.duration, self._scheme.knows_durations) for request in requests]
        for job in jobs:
            if (all_cards := len(self._cards.free)) < job.request.cards:
                raise ValueError(f"job {job.request.name} asks for {job.request.cards} of {all_cards} cards")
            self._plan(job.submitted, _Kind.ARRIVAL, job)
        while self._events:
            self._step(self._events[0][0], ended)
        return jobs

    def _plan(self, at: float, kind: _Kind, job: Job) -> None:
        heapq.heappush(self._events, (at, kind, next(self._sequence), job, job.version))

    def _step(self, now: float, ended: Callable[[int], None]) -> None:
        """Take all events of one moment, then choose who runs."""
        arrived: list[Job] = []
        finished, changed = 0, False
        while self._events and self._events[0][0] == now:
            _, kind, _, job, version = heapq.heappop(self._events)
            if version != job.version:
                continue
            if kind == _Kind.ARRIVAL:
                job.checked = now
                job.place = self._scheme.ranking.place(job)
                arrived.append(job)
            elif kind == _Kind.END:
                self._finish(job, now)
                finished += 1
            else:
                changed = True
        self._choose(now, arrived, freed=finished > 0, changed=changed)
        self._plan_touched(now)
        if finished:
            ended(finished)

    def _finish(self, job: Job, now: float) -> None:
        job.advance(now)
        job.ended = now
        job.version += 1
        self._running.remove(job)
        self._touched.update(self._cards.release(job))

    def _choose(self, now: float, arrived: list[Job], *, freed: bool, changed: bool) -> None:
        if self._scheme.preemptive:
            if arrived or freed or changed:
                self._waiting += arrived
                self._preempt(now)
            return
        # Nothing was freed: who waited before does not fit now either, and in order nobody passes him.
        unchanged = [] if freed else self._waiting
        candidates = [*self._waiting, *arrived] if freed else arrived if self._scheme.backfill or not unchanged else []
        started = set(map(id, self._start_in_order(now, candidates)))
        self._waiting = [job for job in (*self._waiting, *arrived) if id(job) not in started]

    def _start_in_order(self, now: float, candidates: Sequence[Job]) -> list[Job]:
        started: list[Job] = []
        failed = set[tuple[int, float]]()
        for job in sorted(candidates, key=attrgetter("place")):
            shape = (job.request.cards, job.request.memory)
            place = self._cards.fit(job.request) if shape not in failed else ()
            if place:
                self._start(job, place, now)
                started.append(job)
            elif not self._scheme.backfill:
                break
            else:
                failed.add(shape)
        return started

    def _start(self, job: Job, place: tuple[int, ...], now: float) -> None:
        job.advance(now)
        self._cards.take(job, place)
        self._running.append(job)
        self._touched.update(place)

    def _preempt(self, now: float) -> None:
        """Serve the jobs in order; who does not fit displaces jobs that come later, which are tried in their turn."""
        for job in self._running:
            job.advance(now)
            job.place = self._scheme.ranking.place(job)
        order = sorted([*self._running, *self._waiting], key=attrgetter("place"))
        rank = {id(job): index for index, job in enumerate(order)}
        failed = set[tuple[int, float]]()
        for job in order:
            shape = (job.request.cards, job.request.memory)
            if job.on or shape in failed:
                continue
            place = self._cards.fit(job.request) or self._displace(job, rank, now)
            if not place:
                failed.add(shape)
                continue
            self._start(job, place, now)
        self._waiting = [job for job in order if not job.on]

    def _displace(self, job: Job, rank: dict[int, int], now: float) -> tuple[int, ...]:
        """Make room for a job by preempting jobs that come after it; return its place, empty where there is none."""
        mine = rank[id(job)]

        def room(card: int) -> float:
            stay = [other for other in self._cards.jobs[card] if rank[id(other)] < mine]
            if len(stay) >= self._scheme.sharing:
                return -1.0
            return 1.0 - sum(other.request.memory for other in stay)

        place = self._cards.fit_with(job.request, room)
        for card in place:
            later = sorted(
                (other for other in self._cards.jobs[card] if rank[id(other)] > mine), key=lambda o: rank[id(o)]
            )
            while later and not self._cards.has_room(card, job.request.memory):
                self._stop(later.pop(), now)
        return place

    def _stop(self, job: Job, now: float) -> None:
        job.advance(now)
        job.work += self._scheme.restart
        job.preemptions += 1
        job.version += 1
        self._running.remove(job)
        self._touched.update(self._cards.release(job))
        job.place = self._scheme.ranking.place(job)

    def _plan_touched(self, now: float) -> None:
        """Give the jobs of each card that changed their new speed, and plan their next events."""
        for job in self._cards.neighbours(sorted(self._touched)):
            job.advance(now)
            job.speed = self._cards.speed(job)
            job.version += 1
            self._plan(max(now, now + job.work / job.speed), _Kind.END, job)
            self._plan_change(job, now)
        self._touched.clear()

    def _plan_change(self, job: Job, now: float) -> None:
        after = self._scheme.ranking.next_change(job) if self._scheme.preemptive else math.inf
        if after < math.inf:
            self._plan(now + max(after, 0) + LEAST_STEP, _Kind.CHANGE, job)
