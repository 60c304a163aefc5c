"""What administrators are answered (docs/protocol.md, Administration).

Fields that are not known are passed over, so that an older `convgpu` works with a newer plugin. Sizes are bytes,
times Unix seconds. msgspec checks them when they are read (docs/decisions/0018-records-by-msgspec.md).
"""

from dataclasses import dataclass
from typing import Final, Literal

import msgspec


class Record(msgspec.Struct, frozen=True):
    """An immutable piece of an answer."""


class Done(Record, frozen=True):
    """Answer of a request that has nothing to say but that it was carried out."""


class Mounted(Record, frozen=True):
    """Answer of `mount`: the folder that the container gets."""

    mountpoint: str


class Share(Record, frozen=True):
    """What a container has on one device.

    `seen` is what the driver says that its processes hold, at the last audit, None when it does not tell;
    `target` a limit that was asked for and is below what is in use, None otherwise.
    """

    uuid: str
    limit: int
    grant: int
    usage: int
    seen: int | None = None
    target: int | None = None


class Waiting(Record, frozen=True):
    """One paused allocation; `missing` is what the grant lacks for it.

    `reason` says why it is not served: `memory` (not enough is free), `turn` (others are before it), `safety` (it
    fits, but then not everybody could end), `drained`, `recovering`. `ahead` counts the allocations on the device
    that the policy would serve before it, `behind` names the containers that hold what it waits for, most first.
    """

    uuid: str
    size: int
    call: str
    pid: int
    since: float
    missing: int
    reason: str = "memory"
    ahead: int = 0
    behind: tuple[str, ...] = ()


class SessionShare(Record, frozen=True):
    """What one process uses on one device."""

    uuid: str
    usage: int


class Session(Record, frozen=True):
    """One process that is connected; `pid` as the scheduler sees it, 0 when it does not."""

    pid: int
    program: str
    since: float
    devices: tuple[SessionShare, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineContainer:
    """The container as the Engine names it. A plain dataclass: the database's rows hold it too."""

    id: str
    name: str
    image: str = ""


class Container(Record, frozen=True, kw_only=True):
    """One container; `name` is that of its volume, `mountpoint` the volume's folder.

    `engine` is None until the Engine was asked; `since` is when it came into its state.
    """

    name: str
    engine: EngineContainer | None = None
    priority: int = 0
    since: float | None = None
    mountpoint: str
    created: float
    state: Literal["created", "running", "waiting", "ended"]
    mounts: int = 0
    devices: tuple[Share, ...] = ()
    sessions: tuple[Session, ...] = ()
    waiting: tuple[Waiting, ...] = ()


class Containers(Record, frozen=True):
    """Answer of `containers`."""

    containers: tuple[Container, ...]


class Device(Record, frozen=True):
    """One GPU; `used` by containers as the ledger says, `settling` as in docs/protocol.md.

    `external` is what programs outside ConvGPU hold; `health` is `ok` or one line that says what is wrong with it.
    """

    uuid: str
    index: int
    name: str
    total: int
    capacity: int
    granted: int
    used: int
    settling: int
    external: int = 0
    drained: bool = False
    health: str = "ok"


class Devices(Record, frozen=True):
    """Answer of `devices`; the library path is set where the CUDA driver comes with the volume.

    `database` is `ok` or one line that says why what has to survive a restart cannot be written.
    """

    devices: tuple[Device, ...]
    policy: str
    volume_library_path: str | None = None
    database: str = "ok"


class Event(Record, frozen=True, omit_defaults=True):
    """One thing that happened to a container; `waited` is in seconds. What does not apply is left out.

    `name` is what the Engine called a container that is `removed`, so that its past can be told.
    """

    sequence: int
    time: float
    kind: str
    container: str | None = None
    cause: str | int | None = None
    uuid: str | None = None
    size: int | None = None
    pid: int | None = None
    program: str | None = None
    call: str | None = None
    reason: str | None = None
    waited: float | None = None
    limits: dict[str, int] | None = None
    name: str | None = None


class LimitChange(Record, frozen=True):
    """What became of a limit on one device: `limit` is in force now, `target` what was asked for."""

    uuid: str
    limit: int
    target: int
    usage: int


class LimitChanges(Record, frozen=True):
    """Answer of `set`."""

    devices: tuple[LimitChange, ...]


class PolicyChoice(Record, frozen=True):
    """Answer of `policy`; `known` are the names that can be chosen."""

    policy: str
    known: tuple[str, ...] = ()


class Authorization(Record, frozen=True):
    """What the plugin says of its own authorization: the rules in force, and whether the Engine answers it."""

    mode: str
    rules: str
    error: str | None = None
    administrators: tuple[str, ...] = ()
    engine: str | None = None
    engine_error: str | None = None


class History(Record, frozen=True):
    """Answer of `history`."""

    events: tuple[Event, ...]


# Seconds up to which (inclusive) a wait is counted in each but the last of `Totals.waits`.
WAITS: Final = (0.01, 0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)


class Totals(Record, frozen=True):
    """Counted since the scheduler's start: events by kind, waits that ended by their length, and all their seconds."""

    events: dict[str, int] = {}
    waits: tuple[int, ...] = ()
    waited: float = 0.0


class Events(Record, frozen=True):
    """Answer of `events`; `next` is what to ask with as `since` the next time."""

    events: tuple[Event, ...]
    next: int
    totals: Totals = Totals()
