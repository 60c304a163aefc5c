"""The cards of a simulated cluster: how much of each is free, and where a job fits.

A job takes the same share on each of its cards, never two shares on one card. Up to a node's cards stand on one node;
more stand on as few nodes as there are.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from convgpu.simulate.cluster.jobs import Job, Request
from convgpu.simulate.cluster.rooms import TOLERANCE, Rooms, choose


class Cards:
    """Free memory, use and jobs of each card. A card has at most `most` jobs; 1 is exclusive."""

    def __init__(self, nodes: Sequence[int], most: int) -> None:
        """`nodes`: how many cards each node has."""
        self.most = most
        self.free = [1.0] * sum(nodes)
        self.use = [0.0] * sum(nodes)
        self.jobs: list[list[Job]] = [[] for _ in self.free]
        self.widest = max(nodes)
        self._nodes: list[range] = []
        for cards in nodes:
            begin = self._nodes[-1].stop if self._nodes else 0
            self._nodes.append(range(begin, begin + cards))
        self._node_of = [place for place, node in enumerate(self._nodes) for _ in node]
        self._rooms = Rooms(self._nodes)

    def fit(self, request: Request) -> tuple[int, ...]:
        """Return cards with room for the job, the fullest first; empty where there is no room."""
        return self._rooms.fit(request.cards, request.memory)

    def fit_with(
        self, request: Request, room: Callable[[int], float], among: Collection[int] | None = None
    ) -> tuple[tuple[int, ...], int]:
        """As `fit`, where `room` says how much of a card can be had; below 0: nothing.

        `among`: cards one of which has to be taken; None: any. Returns also how many cards were found to have room.
        """
        fits = self._fits(request, room, among)
        return choose(fits, request.cards, self.widest), sum(map(len, fits))

    def _fits(
        self, request: Request, room: Callable[[int], float], among: Collection[int] | None
    ) -> list[list[tuple[float, int]]]:
        """Return by node the cards that have room, fullest first."""
        least = request.memory - TOLERANCE
        groups: Iterable[Iterable[int]] = self._nodes
        if request.cards == 1:  # nodes do not matter: the fullest of all
            groups = [range(len(self.free)) if among is None else among]
        elif among is not None and request.cards <= self.widest:
            groups = [self._nodes[node] for node in sorted({self._node_of[card] for card in among})]
        rooms = ([(room(card), card) for card in cards] for cards in groups)
        return [sorted(pair for pair in pairs if pair[0] >= least) for pairs in rooms]

    def has_room(self, card: int, memory: float) -> bool:
        """Whether one more job with this share fits on the card."""
        return len(self.jobs[card]) < self.most and self.free[card] >= memory - TOLERANCE

    def take(self, job: Job, place: tuple[int, ...]) -> None:
        """Let the job run there."""
        job.on = place
        for card in place:
            self.free[card] -= job.request.memory
            self.use[card] += job.request.utilisation
            self.jobs[card].append(job)
            self._set_room(card)

    def release(self, job: Job) -> tuple[int, ...]:
        """Take the job off its cards and return these."""
        place, job.on = job.on, ()
        for card in place:
            self.jobs[card].remove(job)
            self.free[card] = 1.0 - sum(other.request.memory for other in self.jobs[card])
            self.use[card] = sum(other.request.utilisation for other in self.jobs[card])
            self._set_room(card)
        return place

    def _set_room(self, card: int) -> None:
        self._rooms.set(card, self.free[card] if len(self.jobs[card]) < self.most else -1.0)

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
