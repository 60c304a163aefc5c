"""Rows of the database as the tables return them; pure."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from convgpu.core.liveness import Mount
from convgpu.core.placement import Choice, Placement
from convgpu.protocol.engine_container import EngineContainer
from convgpu.protocol.requests import VolumeName

State = Literal["created", "running", "ended"]


class Holding(NamedTuple):
    """What a container holds on a device, in bytes; `out` and `fixed` are parts of `used`."""

    granted: int = 0
    used: int = 0
    out: int = 0
    fixed: int = 0


@dataclass(slots=True)
class Volume:
    """A volume that Docker knows.

    Attributes:
        name: of the volume.
        options: as the user gave them.
        created: Unix seconds.
        state: of its container.
        since: when it came into its state, Unix seconds.
        mounts: by the Engine's id.
        limits: bytes per device; empty while none are declared.
        choice: what the scheduler is to choose of these devices; None when the container has all of them.
        placed: where it was placed.
        changed: options that an administrator changed since; None: without it.
        engine: the container as the Engine names it, None until the Engine listed it.
    """

    name: VolumeName
    options: dict[str, str]
    created: float
    state: State = "created"
    since: float = 0.0
    mounts: dict[str, Mount] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    engine: EngineContainer | None = None
    choice: Choice | None = None
    placed: Placement | None = None
    changed: dict[str, str | None] = field(default_factory=dict)

    @property
    def options_in_force(self) -> dict[str, str]:
        """The options as they are now."""
        both = {**self.options, **self.changed}
        return {name: text for name, text in both.items() if text is not None}


@dataclass(frozen=True, slots=True)
class PreviousSession:
    """A process that was connected to an earlier scheduler; `started`: see `procfs.start_time`."""

    pid: int
    started: int
    container: str
    program: str


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The memory of one device in bytes; `own`: taken by the driver for itself, `external`: by external programs."""

    device: str
    total: int
    capacity: int
    own: int
    external: int
