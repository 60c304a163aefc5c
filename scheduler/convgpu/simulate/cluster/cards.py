"""The cards of a simulated cluster: how much of each is free, and where a job fits.

A job takes the same share on each of its cards, never two shares on one card. Up to a node's cards stand on one node;
more stand on as few nodes as there are.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from convgpu.simulate.cluster.jobs import Job, Request

TOLERANCE: Final = 1e-9  # shares are sums of decimal fractions


class Cards:
    """Free memory, use and jobs of each card. A card has at most `most` jobs; 1 is exclusive."""

    def __init__(self, nodes: Sequence[int], most: int) -> None:
        """`nodes`: how many cards each node has."""
        self.most = most
        self.free = [1.0] * sum(nodes)
        self.use = [0.0] * sum(nodes)
        self.jobs: list[list[Job]] = [[] for _ in self.free]
        self._nodes: list[range] = []
        for cards in nodes:
            begin = self._nodes[-1].stop if self._nodes else 0
            self._nodes.append(range(begin, begin + cards))

    def fit(self, request: Request) -> tuple[int, ...]:
        """Return cards with room for the job, the fullest first; empty where there is no room."""
        return self.fit_with(request, self._room)

    def fit_with(self, request: Request, room: Callable[[int], float]) -> tuple[int, ...]:
        """As `fit`, where `room` says how much of a card can be had; below 0: nothing."""
        least = request.memory - TOLERANCE
        if request.cards == 1:
            return self._fit_one(least, room)
        fits = [[card for card in node if room(card) >= least] for node in self._nodes]
        if request.cards <= max(map(len, self._nodes)):
            whole = [cards for cards in fits if len(cards) >= request.cards]
            return self._fullest(min(whole, key=len), request.cards, room) if whole else ()
        return self._over_nodes(sorted(fits, key=len, reverse=True), request.cards, room)

    def _fit_one(self, least: float, room: Callable[[int], float]) -> tuple[int, ...]:
        best, found = 2.0, -1
        for card in range(len(self.free)):
            if least <= (have := room(card)) < best:
                best, found = have, card
        return (found,) if found >= 0 else ()

    @staticmethod
    def _fullest(cards: Sequence[int], count: int, room: Callable[[int], float]) -> tuple[int, ...]:
        return tuple(sorted(cards, key=room)[:count])

    @staticmethod
    def _over_nodes(fits: Sequence[Sequence[int]], count: int, room: Callable[[int], float]) -> tuple[int, ...]:
        chosen: list[int] = []
        for cards in fits:
            chosen += Cards._fullest(cards, count - len(chosen), room)
        return tuple(chosen) if len(chosen) == count else ()

    def _room(self, card: int) -> float:
        return self.free[card] if len(self.jobs[card]) < self.most else -1.0

    def has_room(self, card: int, memory: float) -> bool:
        """Whether one more job with this share fits on the card."""
        return self._room(card) >= memory - TOLERANCE

    def take(self, job: Job, place: tuple[int, ...]) -> None:
        """Let the job run there."""
        job.on = place
        for card in place:
            self.free[card] -= job.request.memory
            self.use[card] += job.request.utilisation
            self.jobs[card].append(job)

    def release(self, job: Job) -> tuple[int, ...]:
        """Take the job off its cards and return these."""
        place, job.on = job.on, ()
        for card in place:
            self.jobs[card].remove(job)
            self.free[card] = 1.0 - sum(other.request.memory for other in self.jobs[card])
            self.use[card] = sum(other.request.utilisation for other in self.jobs[card])
        return place

    def speed(self, job: Job) -> float:
        """Return how fast the job runs there against alone: its slowest card decides, and a full card is shared."""
        return min(1.0, 1.0 / max(self.use[card] for card in job.on)) if job.request.utilisation else 1.0

    def neighbours(self, cards: Sequence[int]) -> Iterator[Job]:
        """Yield each job that runs on one of these cards, once."""
        seen = set[int]()
        for card in cards:
            for job in self.jobs[card]:
                if id(job) not in seen:
                    seen.add(id(job))
                    yield job
