"""Answers about the calls of a container's processes (docs/protocol.md). Sizes are bytes, times Unix seconds."""

from typing import Literal

from convgpu.protocol.records import Record


class Allocation(Record, frozen=True):
    """A live allocation, by what its process says.

    Attributes:
        call: name of the CUDA call that made it.
        uuid: of the device; empty if the container has no limit there any more.
        address: device address, or the driver's handle of what has none.
        size: bytes as they are charged; of a small allocation, what it takes of its pages.
        age: seconds, up to two too many; None if not known.
    """

    call: str
    uuid: str
    address: int
    size: int
    age: int | None


class ProcessAllocations(Record, frozen=True):
    """What a process answered when it was asked for its allocations.

    Attributes:
        pid: in the scheduler's pid namespace, 0 if not visible there.
        program: as the process calls itself.
        answer: `listed`; `silent` if it did not answer in time; `unable` if its library is older than this.
        count: all live allocations, those included that are not among `allocations`.
        size: bytes charged for them.
        usage: bytes by the scheduler's own ledger; what is above `size` belongs to no single call: modules, stacks,
            growth of contexts, and pages that small allocations share.
    """

    pid: int
    program: str
    answer: Literal["listed", "silent", "unable"]
    count: int
    size: int
    usage: int
    allocations: tuple[Allocation, ...]


class Allocations(Record, frozen=True):
    """The live allocations of a container, by process."""

    processes: tuple[ProcessAllocations, ...]


class TracedCall(Record, frozen=True, omit_defaults=True):
    """One call that takes memory, as it was answered.

    Attributes:
        sequence: number within this trace.
        kind: `accepted`, `paused`, `granted` (after a pause) or `rejected`.
        size: bytes that the program asked for.
        waited, reason: seconds of a pause that is over; why it was rejected.
    """

    sequence: int
    time: float
    kind: str
    pid: int
    program: str
    call: str
    uuid: str
    size: int
    waited: float | None = None
    reason: str | None = None


class Trace(Record, frozen=True):
    """Calls of a container from a sequence number on.

    Attributes:
        calls: oldest first.
        next: the number to ask for next.
        missed: calls since the last question that were too many to be reported one by one.
    """

    calls: tuple[TracedCall, ...]
    next: int
    missed: int
