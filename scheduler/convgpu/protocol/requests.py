"""What administrators ask, as JSON objects (docs/protocol.md, Administration). The answers: `records`."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

# Docker's own rule for names of volumes, with room for what Swarm makes of templates.
Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$", max_length=255)]


class _Model(BaseModel):
    """`cause` is the asker's word for what the request is part of, for log and history (`journal`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    cause: str = Field(default="", max_length=64, pattern=r"^[!-~]*$")


class Create(_Model):
    """Make a container's volume; options as the user gave them."""

    op: Literal["create"]
    name: Name
    options: dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict
    )


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


class Past(_Model):
    """The kept history, newest last; what the database still has of it.

    Attributes:
        container: name of a volume, or None for all.
        kinds: of events, or empty for all.
        after: Unix seconds; only later events.
        limit: at most so many of the newest.
    """

    op: Literal["history"]
    container: Name | None = None
    kinds: tuple[str, ...] = ()
    after: float | None = None
    limit: int = Field(default=1000, ge=1, le=100_000)


class SetLimits(_Model):
    """Change the limits of a container; `memory` as the option of a volume."""

    op: Literal["set"]
    name: Name
    memory: str


class Drain(_Model):
    """Give no new grants on a device (UUID or index), or give them again."""

    op: Literal["drain"]
    device: str
    drained: bool


class ChoosePolicy(_Model):
    """Change the policy, or with None only tell it."""

    op: Literal["policy"]
    policy: str | None = None


class ListedContainer(_Model):
    """A container as the Engine lists it; `state` is the Engine's own word, `volumes` the names of its volumes."""

    id: str
    name: str
    image: str = ""
    state: str
    volumes: tuple[str, ...] = ()


class Listed(_Model):
    """What the Engine lists: all containers that have a volume of ours, whatever their state.

    A container that is being started is mounted, and listed with its old state (`created`, `exited`) for as long as
    that takes. The Engine asks the plugin for its volumes, so `volumes` never lacks one that the plugin has.

    Attributes:
        asked: Unix seconds, before the Engine was asked; a mount that came later is not contradicted by the list.
        volumes: names of all volumes of ours that the Engine knows.
    """

    op: Literal["listed"]
    asked: float
    containers: tuple[ListedContainer, ...]
    volumes: tuple[str, ...]


Request = Annotated[
    Create
    | Remove
    | Mount
    | Unmount
    | Containers
    | Devices
    | Events
    | Past
    | SetLimits
    | Drain
    | ChoosePolicy
    | Listed,
    Field(discriminator="op"),
]
REQUEST: TypeAdapter[Request] = TypeAdapter(Request)
