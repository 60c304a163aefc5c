"""What administrators ask, as JSON objects (docs/protocol.md, Administration). The answers: `records`."""

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
