"""What administrators ask and are told, as JSON objects (docs/protocol.md, Administration)."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

# Docker's own rule for names of volumes, with room for what Swarm makes of templates.
Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$", max_length=255)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Create(_Model):
    """Make a container's volume; options as the user gave them."""

    op: Literal["create"]
    name: Name
    options: dict[str, str] = Field(default_factory=dict)


class Remove(_Model):
    """Forget a volume."""

    op: Literal["remove"]
    name: Name


class Mount(_Model):
    """A container that has the volume starts; `id` is the Engine's for this mount."""

    op: Literal["mount"]
    name: Name
    id: str = Field(min_length=1, max_length=255)


class Unmount(_Model):
    """The mount `id` ends."""

    op: Literal["unmount"]
    name: Name
    id: str = Field(min_length=1, max_length=255)


class Containers(_Model):
    """List all containers, or one."""

    op: Literal["containers"]
    name: Name | None = None


class Devices(_Model):
    """List the devices."""

    op: Literal["devices"]


class Events(_Model):
    """The history from a sequence number on."""

    op: Literal["events"]
    since: int = Field(default=1, ge=0)


Request = Annotated[Create | Remove | Mount | Unmount | Containers | Devices | Events, Field(discriminator="op")]
REQUEST: TypeAdapter[Request] = TypeAdapter(Request)


class DeviceUsage(_Model):
    """A container on one device, in bytes."""

    uuid: str
    limit: int
    grant: int
    usage: int


class SessionUsage(_Model):
    """What a process uses of one device, in bytes."""

    uuid: str
    usage: int


class Session(_Model):
    """A connected process. `pid` as the scheduler sees it (0: not visible); `since`: Unix seconds."""

    pid: int
    program: str
    since: float
    devices: list[SessionUsage]


class WaitingAllocation(_Model):
    """A paused call. `missing`: bytes that the grant lacks; `since`: Unix seconds."""

    uuid: str
    size: int
    call: str
    pid: int
    since: float
    missing: int


class Container(_Model):
    """A volume of ours and the container that has it. `created`: Unix seconds."""

    name: str
    created: float
    state: Literal["created", "running", "waiting", "ended"]
    mounts: int
    devices: list[DeviceUsage]
    sessions: list[Session]
    waiting: list[WaitingAllocation]


class Device(_Model):
    """A GPU, in bytes. `used`: what containers use by the ledger; `settling`: see docs/protocol.md."""

    uuid: str
    index: int
    name: str
    total: int
    capacity: int
    granted: int
    used: int
    settling: int
