"""The last answers of NVML, for administrators."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from convgpu.protocol.records import Telemetry, Unlimited


@dataclass(slots=True)
class AuditReport:
    """What NVML said last.

    Attributes:
        seen: count in bytes by device and container.
        over: what those above their limit hold, or say that they do, in bytes by device and container.
        health: of each device, `ok` or what is wrong.
        telemetry: of each device that answers.
        unlimited: containers that hold memory of a device where they have no limit, by device.
        left: containers that have ended and of whose memory something stays in use, by device.
        surviving: why what was ended some seconds ago is still there, by its name.
    """

    seen: dict[str, Mapping[str, int]] = field(default_factory=dict)
    over: dict[str, Mapping[str, int]] = field(default_factory=dict)
    health: dict[str, str] = field(default_factory=dict)
    telemetry: dict[str, Telemetry] = field(default_factory=dict)
    unlimited: dict[str, tuple[Unlimited, ...]] = field(default_factory=dict)
    left: dict[str, tuple[Unlimited, ...]] = field(default_factory=dict)
    surviving: dict[str, str] = field(default_factory=dict)

    def seen_of(self, container: str, device: str) -> int | None:
        """Return NVML's count for a container in bytes, None when NVML was not asked or does not tell."""
        return self.seen[device].get(container, 0) if device in self.seen else None
