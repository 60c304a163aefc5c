"""The scheduler as the plugin sees it: what it can be asked, and the part of its answers that Docker shows."""

from typing import Protocol

from pydantic import BaseModel, ConfigDict


class Scheduler(Protocol):
    """Anything that answers administration requests, `convgpu.client.admin.AdminClient` first of all."""

    def request(self, op: str, **fields: object) -> dict[str, object]:
        """Return the `ok` object of the answer (docs/protocol.md, Administration).

        Raises:
            SchedulerRefused: the scheduler said no; the text is for the user.
            SchedulerUnavailable: no answer in time.
        """
        ...


class DeviceShare(BaseModel):
    """What a container may use, was given and uses of one device, in bytes."""

    model_config = ConfigDict(frozen=True)

    uuid: str
    limit: int
    grant: int
    usage: int


class Container(BaseModel):
    """A container in the scheduler's book; `name` is that of its volume, `created` is in Unix seconds."""

    model_config = ConfigDict(frozen=True)

    name: str
    created: float
    state: str
    mounts: int
    devices: list[DeviceShare]


class _Containers(BaseModel):
    containers: list[Container]


def list_containers(scheduler: Scheduler) -> list[Container]:
    """Return all containers that the scheduler knows."""
    return _Containers.model_validate(scheduler.request("containers")).containers


def find_container(scheduler: Scheduler, name: str) -> Container | None:
    """Return the container with the volume `name`, or None if the scheduler does not know it."""
    # All of them are asked for: whether an unknown name is a refusal or an empty list is the scheduler's choice.
    return next((container for container in list_containers(scheduler) if container.name == name), None)
