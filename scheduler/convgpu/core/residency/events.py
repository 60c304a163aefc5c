"""Events and effects of memory that can leave a device (docs/architecture.md, Memory that can leave).

Sizes are in bytes, devices are UUIDs, times in seconds. A container is *elastic* if its memory may leave, otherwise
*rigid*. Of an elastic container's memory *fixed* is what cannot leave (contexts, small allocations, pools, exported
ranges), *out* what lies on the host; the rest is *on card*.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from convgpu.core.record import Record


class Mover(StrEnum):
    """How the memory of a process moves; `msgspec` writes the text."""

    UNIFIED = "unified"  # managed memory and prefetches, in the process
    VMM = "vmm"  # pieces that the porter copies


class StopOutcome(StrEnum):
    """The answer of a process to Stop."""

    DRAINED = "drained"  # its gate is closed, and nothing of it runs on any device
    BUSY = "busy"  # its work did not end before the deadline; its gate is open again
    CAPTURING = "capturing"  # a capture of a stream did not end before the deadline; its gate is open again


# -- events ----------------------------------------------------------------------------------------------------------


class ElasticSet(Record, frozen=True):
    """The memory of a container may leave its devices. Follows ContainerCreated or LimitsSet, before its sessions.

    `fixed`: by device, the share of its limit that cannot leave. A second one changes the share, as far as
    `Machine.may_fix` says. `epoch`: its stops have greater numbers, and those of an earlier scheduler had not.
    """

    container: str
    fixed: Mapping[str, int]
    epoch: int = 0


class UnifiedSet(Record, frozen=True):
    """A container's memory is the driver's managed memory, and may be more than its device has (`backing=unified`).

    Follows ContainerCreated. It has its device alone while it holds anything there.
    """

    container: str


class SessionAble(Record, frozen=True):
    """A process can be stopped and its memory be moved; without this it is on the card for good."""

    session: int
    mover: Mover


class SessionState(Record, frozen=True):
    """A process says how it stands. Has to follow SessionReconnected; nothing of its container moves before.

    It also follows SessionAble of a process that an earlier scheduler knew.

    Attributes:
        epoch: of the last Stop that it was sent; 0 without one.
        open: whether its gate is open.
        out: by device, what lies on the host.
        fixed: by device, what cannot leave.
    """

    session: int
    epoch: int
    open: bool
    out: Mapping[str, int]
    fixed: Mapping[str, int]


class SessionStopped(Record, frozen=True):
    """The answer to Stop or Step.

    Attributes:
        waiting: threads that wait at the gate.
        drain: seconds from Stop to the end of its work.
        fixed: by device, what of its memory cannot leave.
    """

    session: int
    epoch: int
    outcome: StopOutcome
    waiting: int = 0
    drain: float = 0.0
    fixed: Mapping[str, int] = msgspec.field(default_factory=dict)


class RunWanted(Record, frozen=True):
    """A thread of a stopped container waits at the gate."""

    container: str


class Evicted(Record, frozen=True):
    """The porter has copied bytes of a process to the host, and their room on the device is free.

    `missing`: bytes of the same Evict that will not follow: the process has freed them, or they cannot leave.
    """

    session: int
    device: str
    size: int
    missing: int = 0


class Restored(Record, frozen=True):
    """Bytes of a process are on the device again, and their room on the host is free.

    `refused`: bytes of the same Restore that the driver had no memory for; they are still out.
    """

    session: int
    device: str
    size: int
    refused: int = 0


class Discarded(Record, frozen=True):
    """A process has freed memory that was out: its room on the host is free."""

    session: int
    device: str
    size: int


class Idle(Record, frozen=True):
    """A container has submitted no work since `since`, and its devices do none of it."""

    container: str
    since: float


class Busy(Record, frozen=True):
    """A container that was idle works again."""

    container: str


class PoolChanged(Record, frozen=True):
    """`size` bytes of host memory are registered for what leaves this device; 0 when there are none.

    All but `slack` of it are promised to containers beside the device's capacity. The slack lets memory go out while
    other memory comes in; without any, a full pool would be stuck. Memory moves in pieces of `piece` bytes; less moves
    only where no more is left.
    """

    device: str
    size: int
    slack: int = 0
    piece: int = 1


class SwitchMeasured(Record, frozen=True):
    """Bytes per second that memory moves out of a device and into it; 0: not measured."""

    device: str
    rate_out: float = 0.0
    rate_in: float = 0.0


class SuspendAsked(Record, frozen=True):
    """An administrator suspends a container until ResumeAsked. The shell asks again after a restart.

    `deep`: its contexts leave as well, by the driver's checkpoint, once the rest is out.
    """

    container: str
    deep: bool = False


class ResumeAsked(Record, frozen=True):
    """An administrator resumes a container: it runs again when its turn comes."""

    container: str


class CheckpointTaken(Record, frozen=True):
    """The driver has taken what was left of a stopped process off its devices, `failed` if it could not."""

    session: int
    failed: bool = False


class CheckpointRestored(Record, frozen=True):
    """The driver has put what it took of a process back, `failed` if it could not; the memory that is out is not."""

    session: int
    failed: bool = False


ResidencyEvent = (
    ElasticSet
    | UnifiedSet
    | SessionAble
    | SessionState
    | SessionStopped
    | RunWanted
    | Evicted
    | Restored
    | Discarded
    | Idle
    | Busy
    | PoolChanged
    | SwitchMeasured
    | SuspendAsked
    | ResumeAsked
    | CheckpointTaken
    | CheckpointRestored
)


# -- effects ---------------------------------------------------------------------------------------------------------


class Stop(Record, frozen=True):
    """Close the gate of a process and drain it; it answers with SessionStopped within `deadline` seconds."""

    session: int
    epoch: int
    deadline: float


class Step(Record, frozen=True):
    """Let one submission through the closed gate, and drain again: another process of the container needs it."""

    session: int
    epoch: int


class Evict(Record, frozen=True):
    """Move bytes of a stopped process to the host. Evicted follows, in one piece or several that add up."""

    session: int
    epoch: int
    device: str
    size: int


class Restore(Record, frozen=True):
    """Move bytes of a stopped process back. Restored follows, in one piece or several that add up."""

    session: int
    epoch: int
    device: str
    size: int


class Go(Record, frozen=True):
    """Open the gate of a process."""

    session: int
    epoch: int


class Checkpoint(Record, frozen=True):
    """Have the driver take what is left of a stopped process off its devices. CheckpointTaken follows."""

    session: int


class RestoreCheckpoint(Record, frozen=True):
    """Have the driver put back what it took. CheckpointRestored follows."""

    session: int


class Watch(Record, frozen=True):
    """Have a process say when it becomes idle and when it works again (`on`), or say it no more.

    Somebody waits for memory of its devices. Idle and Busy follow, for its container.
    """

    session: int
    on: bool


ResidencyEffect = Stop | Step | Evict | Restore | Go | Checkpoint | RestoreCheckpoint | Watch
