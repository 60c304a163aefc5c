"""Events, which change the state of the scheduler, and effects, which its shell carries out.

Sizes are in bytes, devices are UUIDs. All are plain data, so that a recording (recording/format.py) holds all of them.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Record(msgspec.Struct, frozen=True, tag_field="type", tag=True, forbid_unknown_fields=True):
    """An event or an effect. In a recording `type` is the name of its class."""


class ContainerCreated(Record, frozen=True):
    """A container is known. `wait`: seconds that an allocation may be paused, None for ever.

    `limits` may be empty: they come later, with LimitsSet. Of higher `priority` is served first (docs/policies.md).
    """

    container: str
    limits: Mapping[str, int]
    wait: float | None = None
    priority: int = 0


class LimitsSet(Record, frozen=True):
    """The limits of a container that was created without."""

    container: str
    limits: Mapping[str, int]


class LimitsChanged(Record, frozen=True):
    """Other limits are asked for, on devices on which the container has one; each comes into force when it can.

    A lower one at once as far as memory in use allows, then with what is freed; a higher one when the state with it
    is safe. LimitInForce tells. The last word counts: the limit in force again ends what was pending.
    """

    container: str
    limits: Mapping[str, int]


class ContainerStarted(Record, frozen=True):
    """It is mounted: from now on its grants may outlive its processes."""

    container: str


class ContainerEnded(Record, frozen=True):
    """Its last mount is gone. Processes that are still connected keep what they hold until they end."""

    container: str


class ContainerRemoved(Record, frozen=True):
    """Its volume is gone for good. Its sessions have ended before."""

    container: str


class SessionStarted(Record, frozen=True):
    """A process of the container connected; `held` is what it already uses (it lost an earlier scheduler)."""

    session: int
    container: str
    held: Mapping[str, int]


class SessionReconnected(Record, frozen=True):
    """A process whose connection was lost has another one: session `former` goes on as `session`.

    `held` is what it uses; it never counts for more than was leased to it. Unless `late`: it comes back to another
    scheduler after its time, which had to guess what it holds. That is a fact then, whatever was granted meanwhile.
    """

    session: int
    former: int
    held: Mapping[str, int]
    late: bool = False


class SessionEnded(Record, frozen=True):
    """The process is gone; `headroom` is what of its leases it did not use, per device."""

    session: int
    headroom: Mapping[str, int]


class AllocationRequested(Record, frozen=True):
    """A process needs `size` bytes that its headroom does not hold. `request` is its number for the answer."""

    session: int
    request: int
    device: str
    size: int


class MemoryFreed(Record, frozen=True):
    """A process that was told that somebody waits has headroom again."""

    session: int
    device: str


class HeadroomTaken(Record, frozen=True):
    """Answer to TakeHeadroom: each slot (session, device), and the bytes that it held."""

    taken: tuple[tuple[tuple[int, str], int], ...]


class SettlingEnded(Record, frozen=True):
    """The driver has freed what the ended session used."""

    session: int


class UnleasedMemory(Record, frozen=True):
    """The container holds `size` bytes of the device that no session leases; 0 when it does not any more."""

    container: str
    device: str
    size: int


class CapacityChanged(Record, frozen=True):
    """So many bytes of the device may be handed out from now on; 0 when it is lost.

    `nominal`: what it would be without memory of programs outside, as far as that is known.
    """

    device: str
    capacity: int
    nominal: int = 0


class DeviceDrained(Record, frozen=True):
    """No grants are to be given on the device any more, or they are again."""

    device: str
    drained: bool


class PolicyChosen(Record, frozen=True):
    """Another policy chooses from now on: its name, and the seed of what it draws by lot."""

    policy: str
    seed: int = 0


class RecoveryEnded(Record, frozen=True):
    """The processes of an earlier scheduler had their time to come back; grants may be given."""


class TimePassed(Record, frozen=True):
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


class Accept(Record, frozen=True):
    """Answer a request: the bytes are the process's; `settling` bytes of the device may not be free yet."""

    session: int
    request: int
    size: int
    settling: int


class Reject(Record, frozen=True):
    """Answer a request: refused."""

    session: int
    request: int
    reason: RejectReason


class Lease(Record, frozen=True):
    """Add to the headroom of a process."""

    session: int
    device: str
    size: int


class TakeHeadroom(Record, frozen=True):
    """Take all headroom out of these slots (session, device) and answer with HeadroomTaken, as the very next event."""

    slots: tuple[tuple[int, str], ...]


class NotifyOnFree(Record, frozen=True):
    """Tell a process whether to report the next free on the device."""

    session: int
    device: str
    armed: bool


class LimitInForce(Record, frozen=True):
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


class HistoryEntry(Record, frozen=True):
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
