"""The allocations without an answer, in the orders in which decisions read them."""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from convgpu.core import events as e
from convgpu.policies.memory.base import WaitingAllocation

_Entry = TypeVar("_Entry", tuple[float, int], tuple[int, int])


@dataclass(slots=True)
class PendingAllocation:
    """An allocation without an answer.

    Attributes:
        event: the request for it.
        view: the allocation as policies see it.
        deadline: seconds on the clock of the events, after which it is rejected; None without one.
        is_paused: the history says that it was paused.
        passes_overdue: it was chosen although overdue allocations come first, because it cannot delay them.
        limit: of its container on its device, for the order of the queue.
        is_looked_at: it was looked just now whether what its container is charged with is there.
    """

    event: e.AllocationRequested
    view: WaitingAllocation
    deadline: float | None
    is_paused: bool = False
    passes_overdue: bool = False
    limit: int = 0
    is_looked_at: bool = False

    @property
    def sequence(self) -> int:
        """Its place in the order of arrival."""
        return self.view.sequence

    @property
    def container(self) -> str:
        """Its container."""
        return self.view.container

    @property
    def device(self) -> str:
        """The device that it needs memory of."""
        return self.event.device

    @property
    def size(self) -> int:
        """Bytes."""
        return self.event.size


class Queue:
    """The allocations without an answer, oldest first: all of them, and those of each device."""

    def __init__(self, devices: Iterable[str]) -> None:
        self._all: dict[int, PendingAllocation] = {}
        self._by_device: dict[str, dict[int, PendingAllocation]] = {device: {} for device in devices}
        self._turns: dict[str, list[tuple[float, int]]] = {device: [] for device in self._by_device}
        self._sizes: dict[str, list[tuple[int, int]]] = {device: [] for device in self._by_device}
        self._limits: dict[str, list[tuple[int, int]]] = {device: [] for device in self._by_device}
        self._of_holders: dict[str, dict[int, PendingAllocation]] = {device: {} for device in self._by_device}
        self._deadlines: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[PendingAllocation]:
        return iter(self._all.values())

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._all

    def __getitem__(self, sequence: int) -> PendingAllocation:
        return self._all[sequence]

    def on(self, device: str) -> Iterable[PendingAllocation]:
        """Return those that wait for memory of the device, oldest first."""
        return self._by_device[device].values()

    def by_turn(self, device: str) -> Iterator[PendingAllocation]:
        """Yield those that wait for memory of the device in the order in which they become overdue."""
        return (self._all[sequence] for _, sequence in self._turns[device])

    @property
    def first_turn(self) -> tuple[float, int] | None:
        """The first turn of all that wait; None without any."""
        return min((turns[0] for turns in self._turns.values() if turns), default=None)

    def fitting(self, device: str, free: int) -> list[PendingAllocation]:
        """Return those that wait for at most `free` bytes of the device, smallest first."""
        sizes, waiting = self._sizes[device], self._all
        return [waiting[sequence] for _, sequence in sizes[: bisect_left(sizes, (free + 1, 0))]]

    def count_fitting(self, device: str, free: int) -> int:
        """Return how many wait for at most `free` bytes of the device."""
        return bisect_left(self._sizes[device], (free + 1, 0))

    def limited_to(self, device: str, most: int) -> Iterator[PendingAllocation]:
        """Yield those that wait for the device whose containers' limits there are at most `most`, smallest first."""
        for limit, sequence in self._limits[device]:
            if limit > most:
                return
            yield self._all[sequence]

    def change_limit(self, pending: PendingAllocation, limit: int) -> None:
        """Order one anew: the limit of its container has changed."""
        _discard(self._limits[pending.device], (pending.limit, pending.sequence))
        pending.limit = limit
        insort(self._limits[pending.device], (limit, pending.sequence))

    def of_holders(self, device: str) -> Iterable[PendingAllocation]:
        """Return those that wait for memory of the device and whose containers hold memory of any."""
        return self._of_holders[device].values()

    def are_of_holders(self, holders: Collection[str]) -> bool:
        """Return whether just those are ordered as of holders whose containers are among these."""
        waiting = {pending.sequence for pending in self if pending.container in holders}
        return waiting == {sequence for of_device in self._of_holders.values() for sequence in of_device}

    def mark_holder(self, pending: PendingAllocation, *, holds: bool) -> None:
        """Record whether the container of one that waits holds memory of any device."""
        if holds:
            self._of_holders[pending.device][pending.sequence] = pending
        else:
            self._of_holders[pending.device].pop(pending.sequence, None)

    def has_any_on(self, device: str) -> bool:
        """Return whether anything waits for memory of the device."""
        return bool(self._by_device[device])

    def add(self, pending: PendingAllocation) -> None:
        """Add one: the youngest, or one that waited before its process reconnected."""
        for waiting in (self._all, self._by_device[pending.device]):
            is_youngest = not waiting or next(reversed(waiting)) < pending.sequence
            waiting[pending.sequence] = pending
            if not is_youngest:
                _sort_by_key(waiting)
        insort(self._turns[pending.device], pending.view.turn)
        insort(self._sizes[pending.device], (pending.size, pending.sequence))
        insort(self._limits[pending.device], (pending.limit, pending.sequence))
        if pending.deadline is not None:
            insort(self._deadlines, (pending.deadline, pending.sequence))

    def remove(self, pending: PendingAllocation) -> None:
        """Remove one that was answered, or whose session has ended."""
        del self._all[pending.sequence]
        del self._by_device[pending.device][pending.sequence]
        self._of_holders[pending.device].pop(pending.sequence, None)
        _discard(self._turns[pending.device], pending.view.turn)
        _discard(self._sizes[pending.device], (pending.size, pending.sequence))
        _discard(self._limits[pending.device], (pending.limit, pending.sequence))
        if pending.deadline is not None:
            _discard(self._deadlines, (pending.deadline, pending.sequence))

    def next_deadline(self) -> float | None:
        """Return the earliest deadline, None without one."""
        return self._deadlines[0][0] if self._deadlines else None

    def postpone(self, pending: PendingAllocation, deadline: float | None) -> None:
        """Give one that waits another deadline."""
        if pending.deadline is not None:
            _discard(self._deadlines, (pending.deadline, pending.sequence))
        pending.deadline = deadline
        if deadline is not None:
            insort(self._deadlines, (deadline, pending.sequence))

    def change_terms(self, pending: PendingAllocation, view: WaitingAllocation, deadline: float | None) -> None:
        """Give one that waits another turn and another deadline."""
        _discard(self._turns[pending.device], pending.view.turn)
        pending.view = view
        insort(self._turns[pending.device], view.turn)
        self.postpone(pending, deadline)

    def expired(self, now: float) -> Iterator[PendingAllocation]:
        """Yield those whose deadline has passed; each has to be removed or postponed before the next is taken."""
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            yield self._all[self._deadlines[0][1]]


def _discard(ordered: list[_Entry], entry: _Entry) -> None:
    place = bisect_left(ordered, entry)
    if place < len(ordered) and ordered[place] == entry:
        del ordered[place]


def _sort_by_key(waiting: dict[int, PendingAllocation]) -> None:
    entries = sorted(waiting.items())
    waiting.clear()
    waiting.update(entries)
