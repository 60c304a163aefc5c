"""The queue keeps nothing of what was answered, and finds what fits without looking at the rest."""

from convgpu.core import events as e
from convgpu.core.memory.queue import PendingAllocation, Queue
from convgpu.policies.memory.base import WaitingAllocation

DAY = 86400.0


def pending(sequence: int, size: int, deadline: float | None = None) -> PendingAllocation:
    view = WaitingAllocation(sequence, "c", 0, "gpu", sequence, size, 0.0)
    return PendingAllocation(e.AllocationRequested(1, sequence, "gpu", size), view, deadline)


def test_an_answered_allocation_leaves_no_deadline_behind() -> None:
    queue = Queue(["gpu"])
    first = pending(1, 10, DAY)
    queue.add(first)
    for sequence in range(2, 1000):
        answered = pending(sequence, 10, DAY + sequence)
        queue.add(answered)
        queue.remove(answered)
    assert queue._deadlines == [(DAY, 1)]
    assert list(queue.expired(DAY - 1)) == []
    queue.remove(first)
    assert queue.next_deadline() is None


def test_what_fits_comes_smallest_first_and_oldest_of_equals() -> None:
    queue = Queue(["gpu"])
    for sequence, size in enumerate([30, 10, 20, 10, 40], start=1):
        queue.add(pending(sequence, size))
    assert [(p.sequence, p.size) for p in queue.fitting("gpu", 20)] == [(2, 10), (4, 10), (3, 20)]
    assert [p.sequence for p in queue.fitting("gpu", 100)] == [2, 4, 3, 1, 5]
    assert queue.fitting("gpu", 9) == []
    assert queue.has_any_on("gpu")
