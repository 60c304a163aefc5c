"""What searches for memory of dead processes (`unseen`) know of one PID namespace; pure but for where they begin."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Final

from convgpu.core.audit.attribution import Owner
from convgpu.daemon.gpu.namespace_lists import NamespaceAnswer, NamespaceQuestion

# Answers in a row that told nothing, after which what was found before is not held against a container any more.
_MISSES: Final = 3
# Dead ones of a container that are asked about again wherever the search is; those that hold most.
_MOST_AGAIN: Final = 1024
# Searches of which two count.
_LOOKS: Final = 3
_random: Final = SystemRandom()


@dataclass(slots=True)
class Known:
    """What is known of a namespace.

    Attributes:
        owner: the container.
        descriptor: of the namespace; while it is open, no other one gets this one's inode.
        is_through: all pids were searched since something changed, or could not be, or nobody waits for it.
        turn: the number of the last search there.
        at: the pid with which the next one begins.
        left: pids that were not searched since they were begun with.
        pids: of dead ones that held memory then; who held most is first.
        totals: what all of them held, in bytes by device, of the last searches.
        sizes: what two of those found, and the last one, likewise.
        is_disturbed: whoever asked was ended or stopped there.
        misses: answers in a row that told nothing.
        told: when the last search began that told something, in seconds of `time.monotonic`.
    """

    owner: Owner
    descriptor: int
    is_through: bool
    turn: int = 0
    at: int = 0
    left: int = 0
    pids: Sequence[int] = ()
    totals: deque[Mapping[str, int]] = field(default_factory=lambda: deque(maxlen=_LOOKS))
    sizes: Mapping[str, int] = field(default_factory=dict)
    is_disturbed: bool = False
    misses: int = 0
    told: float = -math.inf

    def ask(self, descriptor: int, most: int) -> NamespaceQuestion:
        """Return the next question, about pids below `most`; it begins at random, so nobody knows when his turn is."""
        if self.left <= 0:
            self.at, self.left = _random.randrange(most), most
        return NamespaceQuestion(descriptor, sorted(self.pids[:_MOST_AGAIN]), [], most, self.at % most)

    def take(
        self,
        question: NamespaceQuestion,
        answer: NamespaceAnswer,
        kept: NamespaceAnswer,
        exiting: AbstractSet[int],
        begun: float,
    ) -> bool:
        """Follow an answer; say whether it tells anything new.

        Args:
            question: that was asked.
            answer: to it.
            kept: what those hold that were found by it, and are not alive.
            exiting: of those, who may hold it for a moment only; they count if they did before.
            begun: when the search began.
        """
        before = self._found()
        told = answer if answer.most is None else kept
        if told.is_disturbed or told.most is not None:
            self.misses, self.is_disturbed = 0, told.is_disturbed
        elif (misses := self.misses + 1) > _MISSES:
            self.pids, self.sizes, self.is_disturbed = (), {}, False
            self.totals.clear()
        else:
            self.misses = misses
        if told.most is not None:
            self.told = begun
            brief = exiting - set(self.pids)
            rows = {device: [each[pid] for pid in each.keys() - brief] for device, each in told.most.items()}
            self.totals.append({device: sum(each) for device, each in rows.items()})
            last = self.totals[-1]
            found = {device: min(size, last.get(device, 0)) for device, size in _found_twice(self.totals).items()}
            self.sizes = {device: size for device, size in found.items() if size}
            dead = sorted(((size, pid) for each in told.most.values() for pid, size in each.items()), reverse=True)
            self.pids = list(dict.fromkeys(pid for _, pid in dead))
            self.at, self.left = question.first + answer.searched, self.left - answer.searched
        if not told.has_come and (told.most is None or self.left <= 0):
            self.is_through = True
        return before != self._found()

    def _found(self) -> tuple[object, ...]:
        return set(self.pids), list(self.totals)[-1:], self.sizes, self.is_disturbed


def _found_twice(totals: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    """Return by device what two of these have at least, in bytes."""
    devices = set().union(*totals)
    second = {device: sorted((one.get(device, 0) for one in (*totals, {})), reverse=True)[1] for device in devices}
    return {device: size for device, size in second.items() if size}
