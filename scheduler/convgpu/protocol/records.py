"""Answers to administration requests (docs/protocol.md, Administration).

Readers ignore unknown fields, so that an older `convgpu` works with a newer plugin. Sizes are bytes, times Unix
seconds. msgspec checks types when an answer is read (decision 29).
"""

from typing import Final, Literal

import msgspec

from convgpu.protocol.engine_container import EngineContainer
from convgpu.protocol.residency.records import CardTurn, DeviceMoves


class Record(msgspec.Struct, frozen=True):
    """An immutable answer, or a part of one."""


class Done(Record, frozen=True):
    """Answer to a request that returns nothing: it was carried out."""


class Mounted(Record, frozen=True):
    """Answer to `mount`: the folder that the container gets."""

    mountpoint: str


class Share(Record, frozen=True):
    """A container's memory on one device.

    Attributes:
        seen, peak: by the driver's count at the last audit, None when it does not count; the highest usage noted.
        target: a limit that was requested and is not in force yet; None when there is none.
        learned: a smaller limit by which it is reckoned with, because it needed no more for a while; None: none.
        out, fixed: of the usage, what lies on the host; what cannot leave, known once its processes were stopped.
    """

    uuid: str
    limit: int
    grant: int
    usage: int
    seen: int | None = None
    target: int | None = None
    out: int = 0
    fixed: int = 0
    peak: int = 0
    learned: int | None = None


class Waiting(Record, frozen=True):
    """One paused allocation.

    Attributes:
        missing: bytes that it needs and that are neither granted to its container nor free.
        reason: why it is not served; one of `WaitReason`.
        ahead: number of allocations on the device that the policy would serve before it.
        behind: containers that hold the memory it waits for, largest first.
        free: bytes of the device that nobody was granted, and that `reason` says why it is not given either.
        deadline: Unix time at which it is rejected, by the option `wait`; None without.
        estimate: seconds until those that it is behind will have ended, by past runs of their images; None: not known.
    """

    uuid: str
    size: int
    call: str
    pid: int
    since: float
    missing: int
    reason: str = "memory"
    ahead: int = 0
    behind: tuple[str, ...] = ()
    free: int = 0
    deadline: float | None = None
    estimate: float | None = None


class SessionShare(Record, frozen=True):
    """Usage of one process on one device."""

    uuid: str
    usage: int


class Session(Record, frozen=True):
    """One connected process; `pid` in the scheduler's PID namespace, 0 when it is not visible there."""

    pid: int
    program: str
    since: float
    devices: tuple[SessionShare, ...] = ()


class ComparedDevice(Record, frozen=True):
    """A GPU as the choice saw it, in bytes.

    Attributes:
        limit: of the container there.
        free: capacity that was granted to nobody.
        promised, containers: sum of the limits of the containers that were there, and their number.
        obstacle: `lost`, `drained`, `capacity`, `gang` (too little beside its gang) or `hidden` (not in the container);
            None if it could be chosen.
    """

    uuid: str
    limit: int
    capacity: int
    free: int
    promised: int
    containers: int
    obstacle: str | None = None


class Placement(Record, frozen=True):
    """The choice of GPUs for a container that leaves them to the scheduler.

    Attributes:
        count: number of GPUs to be chosen.
        limits: bytes on each GPU that it may get.
        uuids: of the GPUs that it has; empty while nothing is chosen.
        policy: that chose; empty if there was no choice, because the container was given certain GPUs.
        compared: the GPUs with the figures that were compared.
    """

    count: int
    limits: dict[str, int]
    uuids: tuple[str, ...] = ()
    policy: str = ""
    compared: tuple[ComparedDevice, ...] = ()


class Container(Record, frozen=True, kw_only=True):
    """One container, by the name of its volume.

    Attributes:
        engine: None until the Engine has listed it. `since`: when it entered its state.
        admit: `whole` if its first allocation waits until its whole limits are free, else `part`.
        residency: None if its memory never leaves its devices; else one of `ResidenceState`.
        suspended: by an administrator; `deep`: its contexts leave too, if the driver can. `turn`: None if none leaves.
        backing: `unified`: its memory is managed by the driver, and its limit may be more than its device has.
        placement: None for a container that has certain GPUs.
        injected: it has no volume of Docker's; `name` is its id.
        own_priority: that of its volume's options, where an administrator gave it another one (`convgpu set`).
    """

    name: str
    engine: EngineContainer | None = None
    priority: int = 0
    wait: float | None = None
    admit: Literal["part", "whole"] = "part"
    gang: str = ""
    since: float | None = None
    mountpoint: str
    created: float
    state: Literal["created", "running", "waiting", "ended"]
    mounts: int = 0
    devices: tuple[Share, ...] = ()
    sessions: tuple[Session, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    residency: str | None = None
    suspended: bool = False
    turn: CardTurn | None = None
    deep: bool = False
    backing: Literal["vmm", "unified"] = "vmm"
    placement: Placement | None = None
    injected: bool = False
    own_priority: int | None = None


class Containers(Record, frozen=True):
    """Answer to `containers`."""

    containers: tuple[Container, ...]


class ActiveContainer(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One container with what its figures need; the attributes are those of `Container`.

    Attributes:
        processes: how many are connected.
        devices: those on which it was granted memory or waits for some.
        waiting: without behind whom, and until when about.
    """

    name: str
    engine: EngineContainer | None = None
    state: Literal["running", "waiting"]
    residency: str | None = None
    processes: int = 0
    devices: tuple[Share, ...] = ()
    waiting: tuple[Waiting, ...] = ()


class ContainerCount(Record, frozen=True):
    """How many containers are in a state and do the same (`residency`)."""

    state: Literal["created", "running", "ended"]
    residency: str | None
    count: int


class ActiveContainers(Record, frozen=True):
    """Answer to `active-containers`.

    Attributes:
        others: those that have no figures of their own: neither a process, nor memory, nor a name at the Engine.
    """

    containers: tuple[ActiveContainer, ...]
    others: tuple[ContainerCount, ...]


class Telemetry(Record, frozen=True):
    """The activity of a GPU; None: this GPU does not report it, or does not answer.

    Attributes:
        utilization: percent of NVML's last sample period in which a kernel ran.
        temperature: of the GPU, in degrees Celsius.
        power, power_limit: watts; the limit is the one in force.
    """

    utilization: int | None = None
    temperature: int | None = None
    power: float | None = None
    power_limit: float | None = None


class Unlimited(Record, frozen=True):
    """A container that holds memory of a GPU where it has no limit, or a program of the host's.

    Attributes:
        name: of its volume; the Engine's id without one.
        id: of the container; empty if its cgroup does not say it, and then it is never ended; empty, too, of one that
            has ended, whose memory others keep. Of a program of the host's its own, for this GPU.
        started: when its oldest process did, in clock ticks since boot; 0 while nobody has looked.
        kept: why it is not ended, as the plugin judged; empty: nothing permits it; None: not judged. Of memory of one
            that has ended: who may keep it.
        pid: of a program of the host's, which is listed only where it may be ended; 0: a container.
        is_charged: the container has ended or goes on, and is charged with what one of its processes left to others.
    """

    name: str
    id: str
    size: int
    started: int = 0
    kept: str | None = None
    pid: int = 0
    is_charged: bool = False

    @property
    def is_left(self) -> bool:
        """Whether it is what a container, or a process of it, left to others when it ended."""
        return not self.id and not self.pid and self.kept is not None


class Device(Record, frozen=True):
    """One GPU.

    Attributes:
        used: by containers, by the ledger.
        settling: memory of ended processes that the driver has not freed yet.
        external: memory of processes outside ConvGPU.
        health: `ok`, or one line that says what is wrong.
        out: memory of containers that lies on the host.
        pool: host memory that is there for what leaves this device.
        promised: what may be granted: the capacity and the part of the pool beyond it.
        granule: limit of a container that names none; 0 without one.
        reuse_count: how many containers of the granule may be here whose memory may leave; 0: any number.
        elastic: how many of those run here.
        moves: between the device and the host.
        telemetry: what it does, by NVML.
        unlimited: containers without a limit here, and programs of the host's, as the audit saw them last.
    """

    uuid: str
    index: int
    name: str
    total: int
    capacity: int
    granted: int
    used: int
    settling: int
    external: int = 0
    drained: bool = False
    health: str = "ok"
    out: int = 0
    pool: int = 0
    promised: int = 0
    granule: int = 0
    reuse_count: int = 0
    elastic: int = 0
    moves: DeviceMoves = DeviceMoves()
    telemetry: Telemetry = Telemetry()
    unlimited: tuple[Unlimited, ...] = ()


class Devices(Record, frozen=True):
    """Answer to `devices`.

    Attributes:
        volume_library_path: of the CUDA driver that comes with a volume; None with real devices.
        database: `ok`, or one line that says why it cannot be written.
        placement: the policy that chooses GPUs; empty before there was one.
        surviving: lines, each of what the audit ended some seconds ago and is still there, and why.
    """

    devices: tuple[Device, ...]
    policy: str
    volume_library_path: str | None = None
    database: str = "ok"
    placement: str = ""
    surviving: tuple[str, ...] = ()


class Event(Record, frozen=True, omit_defaults=True):
    """An event of a container; fields that do not apply to its kind are left out.

    Attributes:
        kind: one of `EventKind`, or a kind of a newer scheduler.
        reason: of a rejection, one of `RejectReason`; `waited`: seconds.
        name: of a `removed` container in the Engine, so that its history can be found by it.
        behind: of a pause, the containers that hold what it waits for, largest first.
        by: who changed something; `ran`, `image`: of an `ended` container, its seconds since it started, and its image.
    """

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
    name: str | None = None
    behind: tuple[str, ...] = ()
    by: str | None = None
    ran: float | None = None
    image: str | None = None


class LimitChange(Record, frozen=True):
    """The limit on one device after a change: `limit` is in force now, `target` was requested."""

    uuid: str
    limit: int
    target: int
    usage: int


class LimitChanges(Record, frozen=True):
    """Answer to `set`: the limits that were changed; longest pause in seconds (None without end), priority."""

    devices: tuple[LimitChange, ...]
    wait: float | None = None
    priority: int = 0


class PolicyChoice(Record, frozen=True):
    """Answer to `policy`; `known` are the names that can be chosen."""

    policy: str
    known: tuple[str, ...] = ()


class History(Record, frozen=True):
    """Answer to `history`."""

    events: tuple[Event, ...]


# Upper bounds (inclusive, in seconds) of the buckets of `Totals.waits`; the last bucket has none.
WAITS: Final = (0.01, 0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)


class Totals(Record, frozen=True):
    """Counters since the scheduler started: events by kind, a histogram of ended waits, and the sum of all waits."""

    events: dict[str, int] = {}
    waits: tuple[int, ...] = ()
    waited: float = 0.0


class Events(Record, frozen=True):
    """Answer to `events`; `next` is the value of `since` for the next request."""

    events: tuple[Event, ...]
    next: int
    totals: Totals = Totals()
