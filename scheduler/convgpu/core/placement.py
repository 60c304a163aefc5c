"""Events and effects of placement. Devices are UUIDs, sizes in bytes."""

from enum import StrEnum

import msgspec

from convgpu.core.record import Record


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the scheduler is to choose for a container: `count` devices out of those that its limits name.

    `is_default`: nobody asked for a choice. Then a process that sees only some of the host's devices was given certain
    ones, and the container gets all of those.
    """

    count: int = 1
    is_default: bool = False


class Obstacle(StrEnum):
    """The reason why a device is no candidate."""

    DRAINED = "drained"
    LOST = "lost"  # it does not answer
    CAPACITY = "capacity"  # the limit is above what it has to hand out now
    GANG = "gang"  # its gang has too much of it already
    REUSE = "reuse"  # as many containers whose memory may leave are there as its reuse count says
    HIDDEN = "hidden"  # the container's process does not see it


class Compared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device as the choice saw it: limit of the container, capacity, free memory, sum and number of other limits.

    `obstacle`: why it was no candidate, None for a candidate.
    """

    device: str
    limit: int
    capacity: int
    free: int
    promised: int
    containers: int
    obstacle: Obstacle | None = None


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a container is, and why.

    Attributes:
        devices: that it got; empty when too few were candidates.
        policy: that chose; empty when nothing was to be chosen: the process was given these devices, or held memory.
        compared: all devices that its limits name, in the order of the host.
    """

    devices: tuple[str, ...]
    policy: str
    compared: tuple[Compared, ...] = ()


class PlacementRequested(Record, frozen=True):
    """A first process of a container is about to get a session: the container is to be placed, if it is not.

    Attributes:
        visible: the devices that the process sees; empty when it does not say.
        held: devices of which it holds memory already, under an earlier scheduler; it gets these.
    """

    container: str
    visible: tuple[str, ...] = ()
    held: tuple[str, ...] = ()


class PlacementPolicyChosen(Record, frozen=True):
    """Another policy chooses devices from now on."""

    policy: str


class Placed(Record, frozen=True):
    """A container was placed; None: it holds nothing and has no process any more, and may be placed anew."""

    container: str
    placement: Placement | None


class Displaced(Record, frozen=True):
    """A device was drained or lost on which a container is, for which it was chosen.

    If the container holds nothing it is placed anew: from a lost device at once, from a drained one when its next
    process starts and nothing of it waits.
    """

    container: str
    device: str
    obstacle: Obstacle


class ReuseBounded(Record, frozen=True):
    """At most so many containers whose memory may leave are placed on a device: its reuse count."""

    device: str
    count: int


PlacementEvent = PlacementRequested | PlacementPolicyChosen | ReuseBounded
PlacementEffect = Placed | Displaced
