"""How much can be had of each card, in order: who fits where is found without a look at every card."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Final

TOLERANCE: Final = 1e-9  # shares are sums of decimal fractions

Ordered = list[tuple[float, int]]  # of cards: room and number


class Rooms:
    """The room of each card, fullest first: over all, and on each node."""

    def __init__(self, nodes: Sequence[range]) -> None:
        """`nodes`: the cards of each; all are empty."""
        self._nodes: list[Ordered] = [[(1.0, card) for card in node] for node in nodes]
        self._all: Ordered = [pair for node in self._nodes for pair in node]
        self._node_of = {card: place for place, node in enumerate(nodes) for card in node}
        self._room = dict.fromkeys(self._node_of, 1.0)
        self._widest = max(map(len, nodes))

    def set(self, card: int, room: float) -> None:
        """Set how much can be had of a card; below 0: nothing."""
        before, self._room[card] = self._room[card], room
        for ordered in (self._all, self._nodes[self._node_of[card]]):
            del ordered[bisect_left(ordered, (before, card))]
            insort(ordered, (room, card))

    def fit(self, cards: int, memory: float) -> tuple[int, ...]:
        """Return cards with so much room each, the fullest first; empty where there is no room."""
        least = (memory - TOLERANCE, -1)
        if cards == 1:
            place = bisect_left(self._all, least)
            return (self._all[place][1],) if place < len(self._all) else ()
        fits = [node[bisect_left(node, least) :] for node in self._nodes]
        return choose(fits, cards, self._widest)


def choose(fits: Sequence[Ordered], count: int, widest: int) -> tuple[int, ...]:
    """Return so many of the cards that fit, by node: up to `widest` on one node, more on as few as there are.

    Empty where they do not suffice. `fits`: of each node, fullest first.
    """
    if count <= widest:
        whole = [cards for cards in fits if len(cards) >= count]
        return tuple(card for _, card in min(whole, key=len)[:count]) if whole else ()
    chosen: list[int] = []
    for cards in sorted(fits, key=len, reverse=True):
        chosen += [card for _, card in cards[: count - len(chosen)]]
    return tuple(chosen) if len(chosen) == count else ()
