"""What the machine keeps of containers and of allocations without an answer."""

from dataclasses import dataclass, field

from convgpu.core import events as e
from convgpu.policies.base import Waiting


@dataclass(slots=True)
class Container:
    """`order`: containers are numbered as they come. `wait`: seconds, None for ever. `requests`: those that wait."""

    order: int
    wait: float | None
    mounted: bool = False
    sessions: int = 0
    requests: "dict[int, Request]" = field(default_factory=dict)


@dataclass(slots=True)
class Request:
    """An allocation without an answer. `paused`: the history knows that it waits."""

    asked: e.AllocationAsked
    view: Waiting
    deadline: float | None
    paused: bool = False

    @property
    def sequence(self) -> int:
        """Order in which it was asked for."""
        return self.view.sequence

    @property
    def container(self) -> str:
        """Its container."""
        return self.view.container
