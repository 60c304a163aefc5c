"""Events, which change the state of the scheduler, and effects, which its shell carries out.

Sizes are in bytes, devices are UUIDs. All are plain data, so that a recording (recording/format.py) holds all of them.
"""

from collections.abc import Mapping

from convgpu.core.placement import Choice, Placement, PlacementEffect, PlacementEvent
from convgpu.core.record import Record
from convgpu.core.residency.events import ResidencyEffect, ResidencyEvent
from convgpu.protocol.event_kinds import EventKind, RejectReason

SlotKey = tuple[int, str]  # session and device: the slot with the headroom of a process on a device


class ContainerCreated(Record, frozen=True):
    """A container was created.

    Attributes:
        limits: bytes per device; may be empty until LimitsSet.
        wait: seconds that an allocation may be paused, None without end.
        priority: containers of higher priority are served first (docs/policies.md).
        choice: out of the devices that the limits name; None: the container gets all of them, at once.
        placed: where an earlier scheduler had placed it.
        is_whole: its first allocation waits until its whole limits can be granted.
        gang: containers that are admitted as a whole together; empty without one. They all are `is_whole`.
        gang_size: how many containers the gang has at least.
    """

    container: str
    limits: Mapping[str, int]
    wait: float | None = None
    priority: int = 0
    choice: Choice | None = None
    placed: Placement | None = None
    is_whole: bool = False
    gang: str = ""
    gang_size: int = 0


class LimitsSet(Record, frozen=True):
    """A container that was created without limits got them."""

    container: str
    limits: Mapping[str, int]


class LimitsChanged(Record, frozen=True):
    """Other limits are requested, on devices on which the container has one; LimitInForce reports each change.

    A lower limit comes into force at once as far as memory in use allows, the rest as memory is freed; a higher one as
    soon as it is safe. A later request replaces an earlier one; a request for the limit in force cancels it.
    """

    container: str
    limits: Mapping[str, int]


class LimitsLearned(Record, frozen=True):
    """A container has needed no more than so many bytes for a while; a device that is left out is as at first.

    Its limits, and what it may claim by them, stay: it can always have them back (docs/decisions/0107).
    """

    container: str
    limits: Mapping[str, int]


class TermsChanged(Record, frozen=True):
    """How long allocations of a container may be paused is changed, and its priority; for those that wait already, too.

    `wait` and `priority` as in ContainerCreated. What has waited for longer than `wait` is rejected by TimePassed.
    """

    container: str
    wait: float | None
    priority: int


class ContainerStarted(Record, frozen=True):
    """The container's volume was mounted: from now on its grants may outlive its processes."""

    container: str


class ContainerEnded(Record, frozen=True):
    """The container's last mount is gone. Processes that are still connected keep what they hold until they end."""

    container: str


class ContainerRemoved(Record, frozen=True):
    """The container's volume was removed. Its sessions have ended before."""

    container: str


class SessionStarted(Record, frozen=True):
    """A process of the container connected; `held`: what it uses already, because an earlier scheduler knew it."""

    session: int
    container: str
    held: Mapping[str, int]


class SessionReconnected(Record, frozen=True):
    """A process whose connection was lost has connected again: `session` takes the place of session `replaced`.

    Attributes:
        held: what the process uses; it never counts for more than was leased to it, unless `late`.
        late: it reconnects to another scheduler after the recovery, which had to assume what it holds. Then `held` is
            a fact, whatever was granted meanwhile.
        kept: what of the rest its container is charged with from now on, because others may keep it: it has executed
            another program.
    """

    session: int
    replaced: int
    held: Mapping[str, int]
    late: bool = False
    kept: Mapping[str, int] = {}


class SessionEnded(Record, frozen=True):
    """A process ended.

    Attributes:
        headroom: what of its leases it did not use, per device.
        kept: what of the rest its container is charged with from now on, because others may keep it, likewise.
    """

    session: int
    headroom: Mapping[str, int]
    kept: Mapping[str, int] = {}


class AllocationRequested(Record, frozen=True):
    """A process needs `size` bytes that its headroom does not hold; `request` numbers the answer.

    Attributes:
        is_context: for a CUDA context, so that the process will need more.
        is_looked_at: as after AllocationLookedAt.
    """

    session: int
    request: int
    device: str
    size: int
    is_context: bool = False
    is_looked_at: bool = False


class AllocationLookedAt(Record, frozen=True):
    """The answer to LookAt: what the container is charged with now is there, as far as anybody can tell."""

    session: int
    request: int


class AllocationWithdrawn(Record, frozen=True):
    """The program that made the request was interrupted: it is rejected, unless it was answered before."""

    session: int
    request: int


class AllocationReturned(Record, frozen=True):
    """The program was interrupted when its allocation was accepted, and before it was told: it does not use it."""

    session: int
    device: str
    size: int


class MemoryFreed(Record, frozen=True):
    """A process whose slot is armed has freed memory."""

    session: int
    device: str


class HeadroomTaken(Record, frozen=True):
    """The answer to TakeHeadroom: each of its slots, and the bytes that it held."""

    taken: tuple[tuple[SlotKey, int], ...]


class SettlingEnded(Record, frozen=True):
    """The driver has freed what an ended session used."""

    session: int


class MayBeKept(Record, frozen=True):
    """Children may keep `size` bytes that ended processes of a container used of a device; 0: nobody keeps any."""

    container: str
    device: str
    size: int


class UnleasedMemory(Record, frozen=True):
    """A container holds `size` bytes of a device that none of its sessions leases; 0 when there are none any more."""

    container: str
    device: str
    size: int


class CapacityChanged(Record, frozen=True):
    """At most `capacity` bytes of the device may be handed out from now on; 0 when it is lost.

    `nominal`: the capacity without external memory, as far as that is known. `is_lost`: the device does not answer.
    """

    device: str
    capacity: int
    nominal: int = 0
    is_lost: bool = False


class DeviceDrained(Record, frozen=True):
    """New grants on the device are stopped, or allowed again."""

    device: str
    drained: bool


class PolicyChosen(Record, frozen=True):
    """Another policy chooses from now on which waiting allocation is served; `seed`: for one that chooses at random."""

    policy: str
    seed: int = 0


class RecoveryEnded(Record, frozen=True):
    """The time in which processes of an earlier scheduler may reconnect is over; grants may be given."""


class TimePassed(Record, frozen=True):
    """`Machine.next_deadline` has passed."""


Event = (
    ContainerCreated
    | LimitsSet
    | LimitsChanged
    | LimitsLearned
    | TermsChanged
    | ContainerStarted
    | ContainerEnded
    | ContainerRemoved
    | SessionStarted
    | SessionReconnected
    | SessionEnded
    | AllocationRequested
    | AllocationLookedAt
    | AllocationWithdrawn
    | AllocationReturned
    | MemoryFreed
    | HeadroomTaken
    | SettlingEnded
    | MayBeKept
    | UnleasedMemory
    | CapacityChanged
    | DeviceDrained
    | PolicyChosen
    | RecoveryEnded
    | TimePassed
    | ResidencyEvent
    | PlacementEvent
)


class Accept(Record, frozen=True):
    """Answer a request: its bytes are leased; `settling` bytes of the device may not be free in the driver yet."""

    session: int
    request: int
    size: int
    settling: int


class Reject(Record, frozen=True):
    """Answer a request: it is rejected."""

    session: int
    request: int
    reason: RejectReason


class LookAt(Record, frozen=True):
    """Look whether what a container is charged with on a device is there: a request exceeds its limit only with that.

    It keeps its place, and is decided on when AllocationLookedAt has come.
    """

    session: int
    request: int


class Lease(Record, frozen=True):
    """Add to the headroom of a process."""

    session: int
    device: str
    size: int


class TakeHeadroom(Record, frozen=True):
    """Take all headroom out of these slots and answer with HeadroomTaken, as the very next event."""

    slots: tuple[SlotKey, ...]


class NotifyOnFree(Record, frozen=True):
    """Arm or disarm a slot: whether the process reports its next free on the device."""

    session: int
    device: str
    armed: bool


class LimitInForce(Record, frozen=True):
    """A limit or a target changed; `target`: a limit that was requested and is not in force yet, or None."""

    container: str
    device: str
    limit: int
    target: int | None


class HistoryEntry(Record, frozen=True):
    """Add an entry to the history; `waited`: seconds that the allocation was paused, None when it was not.

    `reason`: a RejectReason or a SuspendReason.

    Of what happens to a whole container `device` is empty and `session` 0.
    """

    kind: EventKind
    container: str
    device: str
    size: int
    session: int
    request: int = 0
    waited: float | None = None
    reason: str | None = None


Effect = (
    Accept | Reject | LookAt | Lease | NotifyOnFree | LimitInForce | HistoryEntry | ResidencyEffect | PlacementEffect
)


def cause_of(session: int, request: int = 0) -> str:
    """Return the cause of all that a session, or a request of it, leads to: in events, effects, history and logs."""
    return f"s{session}.r{request}" if request else f"s{session}"
