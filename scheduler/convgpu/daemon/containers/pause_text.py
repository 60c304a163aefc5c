"""What a user is told about a pause: of what, on which GPU, behind whom, until when."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from convgpu.core.allocation.wait_reasons import Wait
from convgpu.core.machine import Machine
from convgpu.daemon.containers.registry import ContainerRegistry, VolumeContainer
from convgpu.daemon.sessions.session import PendingAllocation
from convgpu.protocol.event_kinds import WAIT_TEXTS, WaitReason
from convgpu.protocol.sizes import format_size

_RunTime = Callable[[str], float | None]  # seconds, by image


class PauseText:
    """Describes pauses, and estimates how long they last.

    Attributes:
        containers: of the pauses, and those that they are behind.

    Args:
        indices: of the devices by UUID.
        run_time: how long containers of an image run, by those that have ended; None if too few have.
        wall_clock: Unix seconds.
    """

    def __init__(
        self,
        containers: ContainerRegistry,
        machine: Machine,
        indices: Mapping[str, int],
        run_time: _RunTime,
        wall_clock: Callable[[], float],
    ) -> None:
        self.containers = containers
        self._machine = machine
        self._indices = indices
        self._run_time = run_time
        self._wall_clock = wall_clock

    def describe(self, pending: PendingAllocation, size: int, wait: Wait) -> str:
        """Return one line of at most 239 bytes; what is cut off is the estimate."""
        gpu = self._indices.get(pending.device, pending.device)
        text = f"{pending.call} waits for {format_size(size)} of GPU {gpu} since {_clock(pending.since)}"
        text += self._behind(wait, pending.device)
        deadline = self.deadline(pending)
        if deadline is not None:
            text += f"; rejected at {_clock(deadline)} (wait)"
        estimate = self.estimate(wait.behind)
        if estimate is not None:
            text += f"; about {_span(estimate)} more by past runs (an estimate)"
        return text

    def _behind(self, wait: Wait, device: str) -> str:
        names = [self._name_with_size(name, device) for name in wait.behind[:2]]
        if len(wait.behind) > len(names):
            names.append(f"{len(wait.behind) - len(names)} more")
        behind = f" behind {', '.join(names)}" if names else ""
        if behind and wait.reason is WaitReason.MEMORY:
            return behind
        return f"{behind}: {WAIT_TEXTS[wait.reason]}{self._others() if wait.reason is WaitReason.DRAINED else ''}"

    def _others(self) -> str:
        """Return which GPUs are not drained: a program waits for what it was given, and another would get memory."""
        others = [str(index) for uuid, index in self._indices.items() if uuid not in self._machine.drained]
        return f" (convgpu drain --undo); not drained: {', '.join(others) or 'none'}"

    def _name_with_size(self, name: str, device: str) -> str:
        account = self._machine.account(name, device)
        return self.name(name) + (f" ({format_size(account.grant)})" if account and account.grant else "")

    def name(self, volume: str) -> str:
        """Return the name of the container that has a volume, short."""
        container = self.containers.by_name.get(volume)
        engine = container.volume.engine if container else None
        return (engine.name if engine else volume)[:40]

    def deadline(self, pending: PendingAllocation) -> float | None:
        """Return the Unix time at which a paused allocation is rejected; None without the option `wait`."""
        container = self.containers.by_name.get(pending.session.container)
        wait = container.terms.wait if container else None
        return None if wait is None else pending.since + wait

    def estimate(self, behind: Sequence[str]) -> float | None:
        """Return in how many seconds these containers will have ended; None if that is not known of all.

        An estimate: the median of the past runs of each image, less the time that its container has run.
        """
        known = [self.containers.by_name.get(name) for name in behind]
        rests = [self._rest(container) for container in known]
        certain = [rest for rest in rests if rest is not None]
        return max(certain) if certain and len(certain) == len(rests) else None

    def _rest(self, container: VolumeContainer | None) -> float | None:
        engine = container.volume.engine if container else None
        if container is None or engine is None or not container.runs:
            return None
        usual = self._run_time(engine.image)
        rest = None if usual is None else usual - (self._wall_clock() - container.volume.since)
        return rest if rest is not None and rest > 0 else None  # it runs for longer than others did


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S UTC")


def _span(seconds: float) -> str:
    for unit, name in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
