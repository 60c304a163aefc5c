"""What the judge asks of the world."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from convgpu.protocol.records import Container as Record
from convgpu.protocol.records import Device

Document = Mapping[str, Any]


class EngineUnreachable(Exception):  # noqa: N818 - a state, not an accident
    """The Engine does not answer; one line."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What is known of the Engine's host.

    Attributes:
        docker_root: the Engine's own folder.
        default_runtime: of containers that name none; empty if nobody knows.
        runtime_memory: the limit of containers that our runtime covers and that name none; None if they are refused.
        local: the caller came over the Engine's own socket, so it tells him nothing new.
    """

    docker_root: str = "/var/lib/docker"
    default_runtime: str = ""
    runtime_memory: str | None = None
    local: bool = True


class EnginePort(Protocol):
    """What the Engine says; every method may raise `EngineUnreachable`, and returns None for what it does not have."""

    def container(self, name: str) -> Document | None:
        """Return `GET /containers/NAME/json`."""
        ...

    def volume(self, name: str) -> Document | None:
        """Return `GET /volumes/NAME`."""
        ...

    def image(self, name: str) -> Document | None:
        """Return `GET /images/NAME/json`."""
        ...

    def service(self, name: str) -> Document | None:
        """Return `GET /services/NAME`."""
        ...

    def states(self) -> Mapping[str, str]:
        """Return the state of each container, `created`, `running`, `exited`..., by its id."""
        ...

    def facts(self) -> HostFacts:
        """Return what rules depend on beside the container."""
        ...


class HostDevicePort(Protocol):
    """The host's device nodes and links."""

    def is_gpu(self, path: str) -> bool:
        """Tell whether `--device path` gives a GPU, directly, by a link, or inside a folder."""
        ...

    def is_gpu_number(self, major: int, minor: int | None = None) -> bool:
        """Tell whether character devices of these numbers, or any minor of a major number, belong to a GPU."""
        ...

    def resolve(self, path: str) -> str:
        """Return a path of the host without links, as far as it can be seen; normal in any case."""
        ...


class SchedulerPort(Protocol):
    """What the scheduler keeps; its errors (`SchedulerUnavailable`, `SchedulerRefused`) reach the judge's caller."""

    def find(self, volume: str) -> Record | None:
        """Return the container with a volume of ours, or None."""
        ...

    def all(self) -> list[Record]:
        """Return all containers."""
        ...

    def devices(self) -> Sequence[Device]:
        """Return the GPUs."""
        ...

    def set_limit(self, volume: str, memory: str) -> None:
        """Give a container its limit, in the form of the option `memory`."""
        ...
