"""The simulated cluster: jobs come, run, are preempted and end, event by event.

docs/simulation.md says what is assumed. In short: a job's share of a card is fenced; jobs of one card slow each other
down only when together they use more than all of its computing; a preempted job goes on from its checkpoint and pays
for a restart; nothing fails.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final

from convgpu.ranking import Ranking
from convgpu.simulate.cluster.cards import Cards
from convgpu.simulate.cluster.jobs import Job, Key, Request
from convgpu.simulate.cluster.report import Usage
from convgpu.simulate.cluster.waiting import Shape, Waiting, shape_of

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

    @property
    def passes(self) -> bool:
        """Whether a job may start while one before it waits."""
        return self.backfill or self.preemptive


class _Kind(IntEnum):
    """What an event is; ends come first, so that what they free is there for arrivals of the same time."""

    END = 0
    ARRIVAL = 1


class Cluster:
    """The state of the cluster and its jobs; `usage` is what they took over time."""

    def __init__(self, scheme: Scheme, nodes: Sequence[int]) -> None:
        """`nodes`: how many cards each node has."""
        self._scheme = scheme
        self._cards = Cards(nodes, scheme.sharing)
        self._waiting = Waiting(in_order=not scheme.passes)
        self._events: list[tuple[float, int, int, Job, int]] = []
        self._changes: list[tuple[float, int, Job, int]] = []
        self._sequence, self._starts = itertools.count(), itertools.count()
        self._steps = 0
        self.usage = Usage()
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
        while self._events or self._changes:
            self._step(min(times[0][0] for times in (self._events, self._changes) if times), ended)
        return jobs

    def _plan(self, at: float, kind: _Kind, job: Job) -> None:
        heappush(self._events, (at, kind, next(self._sequence), job, job.version))

    def _step(self, now: float, ended: Callable[[int], None]) -> None:
        """Take all events of one moment, then choose who runs."""
        self._steps += 1
        arrived: list[Job] = []
        finished, improved = 0, len(self._waiting.improved)
        while self._events and self._events[0][0] == now:
            _, kind, _, job, version = heappop(self._events)
            if version != job.version:
                continue
            if kind == _Kind.ARRIVAL:
                job.checked = now
                job.place = self._scheme.ranking.place(job)
                arrived.append(job)
            else:
                self._finish(job, now)
                finished += 1
        self._note_changes(now)
        if arrived or len(self._waiting.improved) > improved:
            self._serve(now, arrived)
        self._plan_touched(now)
        if finished:
            ended(finished)

    def _note_changes(self, now: float) -> None:
        """Note the cards whose jobs have fallen behind in the order, or do so within the least step."""
        early = []
        while self._changes and self._changes[0][0] - 2 * LEAST_STEP <= now:
            change = heappop(self._changes)
            at, _, job, version = change
            if version == job.version:
                self._waiting.improved += job.on
                if at > now:
                    early.append(change)
                else:
                    job.advance(now)
                    self._plan_change(job, now)
        for change in early:
            heappush(self._changes, change)

    def _finish(self, job: Job, now: float) -> None:
        job.advance(now)
        job.ended = now
        job.version += 1
        self._free(job, now)

    def _serve(self, now: float, arrived: Sequence[Job]) -> None:
        """Start who fits, in order. A job that displaces others comes before them; they are tried in their turn."""
        for job in arrived:
            self._waiting.add(job)
        candidates = self._waiting.candidates()
        heapify(candidates)
        tried = {shape_of(job) for _, job in candidates}
        stopped: dict[int, tuple[Key, Job]] = {}
        failed = set[Shape]()
        while candidates:
            key, job = heappop(candidates)
            shape = shape_of(job)
            place = self._find_place(job, key, now) if shape not in failed else ()
            if not place:
                failed.add(shape)
                continue
            if stopped.pop(id(job), None) is None:
                self._waiting.remove_first(shape)
                for following in self._waiting.following(shape):
                    heappush(candidates, following)
            victims = self._make_room(job, place, now)
            stopped |= {id(victim): (victim.key, victim) for victim in victims}
            for candidate in self._after(key, victims, tried):
                heappush(candidates, candidate)
            self._start(job, key, place, now)
        self._waiting.put_back([job for _, job in sorted(stopped.values())])

    def _after(self, key: Key, victims: Sequence[Job], tried: set[Shape]) -> list[tuple[Key, Job]]:
        """Return who may find room because of jobs that were stopped: these, and the first of each shape not tried yet.

        Of these only what comes later in the order: what comes before found no room.
        """
        if not victims:
            return []
        fresh = [(other, job) for other, job in self._waiting.candidates() if shape_of(job) not in tried]
        tried.update(shape_of(job) for _, job in fresh)
        return [(victim.key, victim) for victim in victims] + [(other, job) for other, job in fresh if other > key]

    def _find_place(self, job: Job, key: Key, now: float) -> tuple[int, ...]:
        """Return cards for a job, some of which it may have to make room on; empty where there are none."""
        shape = shape_of(job)
        among = self._waiting.to_look_at(shape, key)
        if among is not None and not among:
            return ()
        place, found = self._cards.fit(job.request), None
        if not place and self._scheme.preemptive:
            place, found = self._cards.fit_with(job.request, lambda card: self._room_for(key, card, now), among)
        if not place:
            self._waiting.fail(shape, key, found if shape.cards > self._cards.widest else None)
        return place

    def _room_for(self, key: Key, card: int, now: float) -> float:
        """Return how much of a card a job could have if all that come later in the order left it."""
        taken, jobs, steps = 0.0, 0, self._steps
        for other in self._cards.jobs[card]:
            known = other.key if other.keyed == steps else self._key_of(other, now)
            if known < key:
                taken += other.request.memory
                jobs += 1
        return 1.0 - taken if jobs < self._cards.most else -1.0

    def _key_of(self, job: Job, now: float) -> Key:
        """Return the place in the order that a running job has in this event."""
        if job.keyed != self._steps:
            job.advance(now)
            job.key, job.keyed = self._key_when_running(job), self._steps
        return job.key

    def _key_when_running(self, job: Job) -> Key:
        return Key(self._scheme.ranking.place(job), waits=False, tie=job.started)

    def _make_room(self, job: Job, place: Sequence[int], now: float) -> list[Job]:
        """Stop the jobs that have to leave their cards for another, last in the order first; return them."""
        victims: list[Job] = []
        for card in place:
            while not self._cards.has_room(card, job.request.memory):
                victims.append(max(self._cards.jobs[card], key=attrgetter("key")))
                self._stop(victims[-1], now)
        return victims

    def _start(self, job: Job, key: Key, place: tuple[int, ...], now: float) -> None:
        job.advance(now)
        job.key, job.keyed, job.started = key, self._steps, next(self._starts)
        self._cards.take(job, place)
        self.usage.add(now, job.request.cards * job.request.memory)
        self._touched.update(place)

    def _stop(self, job: Job, now: float) -> None:
        job.advance(now)
        job.work += self._scheme.restart
        job.preemptions += 1
        job.version += 1
        self._free(job, now)
        job.place = self._scheme.ranking.place(job)

    def _free(self, job: Job, now: float) -> None:
        self.usage.add(now, -job.request.cards * job.request.memory)
        place = self._cards.release(job)
        self._touched.update(place)
        self._waiting.improved += place

    def _plan_touched(self, now: float) -> None:
        """Give the jobs of each card that changed their new speed, and plan their next events."""
        for job in self._cards.neighbours(sorted(self._touched)):
            job.advance(now)
            if self._key_when_running(job) > job.key:  # it fell behind, or was started again
                self._waiting.improved += job.on
            job.speed = self._cards.speed(job)
            job.version += 1
            self._plan(max(now, now + job.work / job.speed), _Kind.END, job)
            self._plan_change(job, now)
        self._touched.clear()

    def _plan_change(self, job: Job, now: float) -> None:
        after = self._scheme.ranking.next_change(job) if self._scheme.preemptive else math.inf
        if after < math.inf:
            at = now + max(after, 0) + LEAST_STEP
            heappush(self._changes, (at, next(self._sequence), job, job.version))
