"""What administrators are answered (docs/protocol.md, Administration).

Fields that are not known are passed over, so that an older `convgpu` works with a newer plugin. Sizes are bytes,
times Unix seconds.
"""

from typing import Literal

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
    """One process that is connected; `pid` as the scheduler sees it, 0 when it does not."""

    pid: int
    program: str
    since: float
    devices: tuple[SessionShare, ...] = ()


class Container(Record):
    """One container; `name` is that of its volume, `mountpoint` the volume's folder."""

    name: str
    mountpoint: str
    created: float
    state: Literal["created", "running", "waiting", "ended"]
    mounts: int = 0
    devices: tuple[Share, ...] = ()
    sessions: tuple[Session, ...] = ()
    waiting: tuple[Waiting, ...] = ()


class Containers(Record):
    """Answer of `containers`."""

    containers: tuple[Container, ...]


class Device(Record):
    """One GPU; `used` by containers as the ledger says, `settling` as in docs/protocol.md."""

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
    limits: dict[str, int] | None = None


class Events(Record):
    """Answer of `events`; `next` is what to ask with as `since` the next time."""

    events: tuple[Event, ...]
    next: int
