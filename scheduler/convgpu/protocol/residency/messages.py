"""Messages between the scheduler and an elastic process; `docs/protocol.md` says who sends which and when.

An epoch numbers the stops of a process, ascending; `device` is a row of WELCOME; sizes are bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from convgpu.protocol.wire import Kind


@dataclass(frozen=True, slots=True)
class Able:
    """The process can be stopped and its memory can be moved: by whom (`wire.Mover`), and `wire.AbleFlag`."""

    mover: int
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """A thread waits at the closed gate."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """What came of STOP (`wire.Outcome`), how many threads wait at the gate, and how long it took."""

    epoch: int
    outcome: int
    waiting: int = 0
    nanoseconds: int = 0


@dataclass(frozen=True, slots=True)
class Evicted:
    """`size` bytes have left the device since the last one for this epoch; `ended` (1): no more will."""

    epoch: int
    device: int
    size: int
    ended: int = 0


@dataclass(frozen=True, slots=True)
class Restored:
    """`size` bytes have come back to the device; `refused` is the driver's error that ended it, or 0."""

    epoch: int
    device: int
    size: int
    refused: int = 0


@dataclass(frozen=True, slots=True)
class StateRow:
    """What a process has of one device (binary UUID): on it and movable, on it and fixed, and on the host."""

    device: bytes
    movable: int
    fixed: int
    out: int


@dataclass(frozen=True, slots=True)
class State:
    """Where the memory of a process is, and whether its gate is open (1)."""

    epoch: int
    open: int
    rows: tuple[StateRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Carrier:
    """A new connection to the porter comes along; `version` of what is spoken there (`carrier.h`)."""

    version: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Close the gate and drain within `deadline` milliseconds."""

    epoch: int
    deadline: int


@dataclass(frozen=True, slots=True)
class Step:
    """Let `count` submissions pass the closed gate."""

    epoch: int
    count: int


@dataclass(frozen=True, slots=True)
class Evict:
    """Move at least `size` bytes to the host, if there is as much."""

    epoch: int
    device: int
    size: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Move up to `size` bytes back to the device, where there is room for them."""

    epoch: int
    device: int
    size: int


@dataclass(frozen=True, slots=True)
class Go:
    """Open the gate."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Idle:
    """The process is idle (1) or works again (0), and so many nanoseconds ago it worked last."""

    idle: int
    nanoseconds: int = 0


@dataclass(frozen=True, slots=True)
class Watch:
    """Tell by IDLE when the process becomes idle and when it works again (1), or do not any more (0)."""

    on: int


ToScheduler = Able | Run | Stopped | Evicted | Restored | State | Idle
ToProcess = Carrier | Stop | Step | Evict | Restore | Go | Watch
ResidencyMessage = ToScheduler | ToProcess

KIND_OF: Final[Mapping[type, Kind]] = {
    Able: Kind.ABLE,
    Run: Kind.RUN,
    Stopped: Kind.STOPPED,
    Evicted: Kind.EVICTED,
    Restored: Kind.RESTORED,
    State: Kind.STATE,
    Idle: Kind.IDLE,
    Carrier: Kind.CARRIER,
    Stop: Kind.STOP,
    Step: Kind.STEP,
    Evict: Kind.EVICT,
    Restore: Kind.RESTORE,
    Go: Kind.GO,
    Watch: Kind.WATCH,
}
