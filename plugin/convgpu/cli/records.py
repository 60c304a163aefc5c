"""What the scheduler's administration answers (docs/protocol.md), as far as people are shown it.

Unlike `convgpu.protocol.admin`, which declares the same fields for the scheduler itself, these pass over fields
that they do not know: an older `convgpu` still works with a newer plugin.
Sizes are bytes, times Unix seconds.
"""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """An immutable piece of an answer."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Share(Record):
    """What a container has on one device."""

    uuid: str
    limit: int
    grant: int
    usage: int


class Waiting(Record):
    """One paused allocation; `missing` is what the grant lacks for it."""

    uuid: str
    size: int
    call: str
    pid: int
    since: float
    missing: int


class SessionShare(Record):
    """What one process uses on one device."""

    uuid: str
    usage: int


class Session(Record):
    """One process that is connected to the scheduler."""

    pid: int
    program: str
    since: float
    devices: tuple[SessionShare, ...] = ()


class Container(Record):
    """One container; `name` is that of its volume."""

    name: str
    created: float
    state: str
    mounts: int = 0
    devices: tuple[Share, ...] = ()
    sessions: tuple[Session, ...] = ()
    waiting: tuple[Waiting, ...] = ()


class Containers(Record):
    """Answer of `containers`."""

    containers: tuple[Container, ...]


class Device(Record):
    """One GPU."""

    uuid: str
    index: int
    name: str
    total: int
    capacity: int
    granted: int
    used: int
    settling: int


class Devices(Record):
    """Answer of `devices`; the library path is set where the CUDA driver comes with the volume."""

    devices: tuple[Device, ...]
    policy: str
    volume_library_path: str | None = None


class Event(Record):
    """One thing that happened to a container; `waited` is in seconds."""

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
    limit: int | None = None


class Events(Record):
    """Answer of `events`; `next` is what to ask with as `since` the next time."""

    events: tuple[Event, ...]
    next: int
