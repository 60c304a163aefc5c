"""What can happen to the scheduler, and what it can want done. Sizes in bytes, devices by UUID text."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from convgpu.policies.memory.base import Policy


@dataclass(frozen=True, slots=True)
class ContainerCreated:
    """A container is known. `wait`: seconds that an allocation may be paused, None for ever.

    `limits` may be empty: they come later, with LimitsSet. Of higher `priority` is served first (docs/policies.md).
    """

    container: str
    limits: Mapping[str, int]
    wait: float | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class LimitsSet:
    """The limits of a container that was created without."""

    container: str
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LimitsChanged:
    """Other limits are asked for, on devices on which the container has one; each comes into force when it can.

    A lower one at once as far as memory in use allows, then with what is freed; a higher one when the state with it
    is safe. LimitInForce tells. The last word counts: the limit in force again ends what was pending.
    """

    container: str
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ContainerStarted:
    """It is mounted: from now on its grants may outlive its processes."""

    container: str


@dataclass(frozen=True, slots=True)
class ContainerEnded:
    """Its last mount is gone. Processes that are still connected keep what they hold until they end."""

    container: str


@dataclass(frozen=True, slots=True)
class ContainerRemoved:
    """Its volume is gone for good. Its sessions have ended before."""

    container: str


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """A process of the container connected; `held` is what it already uses (it lost an earlier scheduler)."""

    session: int
    container: str
    held: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SessionReconnected:
    """A process whose connection was lost has another one: session `former` goes on as `session`.

    `held` is what it uses; it never counts for more than was leased to it. Unless `late`: it comes back to another
    scheduler after its time, which had to guess what it holds. That is a fact then, whatever was granted meanwhile.
    """

    session: int
    former: int
    held: Mapping[str, int]
    late: bool = False


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The process is gone; `headroom` is what of its leases it did not use, per device."""

    session: int
    headroom: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AllocationRequested:
    """A process needs `size` bytes that its headroom does not hold. `request` is its number for the answer."""

    session: int
    request: int
    device: str
    size: int


@dataclass(frozen=True, slots=True)
class MemoryFreed:
    """A process that was told that somebody waits has headroom again."""

    session: int
    device: str


@dataclass(frozen=True, slots=True)
class HeadroomTaken:
    """Answer to TakeHeadroom: what was there, per (session, device)."""

    taken: Mapping[tuple[int, str], int]


@dataclass(frozen=True, slots=True)
class SettlingEnded:
    """The driver has freed what the ended session used."""

    session: int


@dataclass(frozen=True, slots=True)
class UnleasedMemory:
    """The container holds `size` bytes of the device that no session leases; 0 when it does not any more."""

    container: str
    device: str
    size: int


@dataclass(frozen=True, slots=True)
class CapacityChanged:
    """So many bytes of the device may be handed out from now on; 0 when it is lost.

    `nominal`: what it would be without memory of programs outside, as far as that is known.
    """

    device: str
    capacity: int
    nominal: int = 0


@dataclass(frozen=True, slots=True)
class DeviceDrained:
    """No grants are to be given on the device any more, or they are again."""

    device: str
    drained: bool


@dataclass(frozen=True, slots=True)
class PolicyChosen:
    """Another policy chooses from now on."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class RecoveryEnded:
    """The processes of an earlier scheduler had their time to come back; grants may be given."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """`Machine.next_deadline` is reached."""


Event = (
    ContainerCreated
    | LimitsSet
    | LimitsChanged
    | ContainerStarted
    | ContainerEnded
    | ContainerRemoved
    | SessionStarted
    | SessionReconnected
    | SessionEnded
    | AllocationRequested
    | MemoryFreed
    | HeadroomTaken
    | SettlingEnded
    | UnleasedMemory
    | CapacityChanged
    | DeviceDrained
    | PolicyChosen
    | RecoveryEnded
    | TimePassed
)


class RejectReason(StrEnum):
    """Why an allocation is rejected."""

    LIMIT = "limit"
    DEADLINE = "deadline"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class Accept:
    """Answer a request: the bytes are the process's; `settling` bytes of the device may not be free yet."""

    session: int
    request: int
    size: int
    settling: int


@dataclass(frozen=True, slots=True)
class Reject:
    """Answer a request: refused."""

    session: int
    request: int
    reason: RejectReason


@dataclass(frozen=True, slots=True)
class Lease:
    """Add to the headroom of a process."""

    session: int
    device: str
    size: int


@dataclass(frozen=True, slots=True)
class TakeHeadroom:
    """Take all headroom out of these slots (session, device) and answer with HeadroomTaken, as the very next event."""

    slots: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class NotifyOnFree:
    """Tell a process whether to report the next free on the device."""

    session: int
    device: str
    armed: bool


@dataclass(frozen=True, slots=True)
class LimitInForce:
    """A limit changed, or what is pending did. `target`: what was asked for and is not in force yet, or None."""

    container: str
    device: str
    limit: int
    target: int | None


class HistoryKind(StrEnum):
    """What the history records."""

    ACCEPTED = "accepted"
    PAUSED = "paused"
    GRANTED = "granted"
    REJECTED = "rejected"
    RETURNED = "returned"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """For the history. `waited`: seconds that the allocation was paused."""

    kind: HistoryKind
    container: str
    device: str
    size: int
    session: int
    request: int = 0
    waited: float | None = None
    reason: RejectReason | None = None


Effect = Accept | Reject | Lease | NotifyOnFree | LimitInForce | HistoryEntry
