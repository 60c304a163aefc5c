"""Where the memory of elastic containers lies, and what each of them does; sums per device are kept up to date."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from typing import Final

from convgpu.core.residency.events import Mover
from convgpu.policies.memory.base import WaitingAllocation
from convgpu.protocol.event_kinds import EventKind, SuspendReason

GIB: Final = 1 << 30
MOVES: Final = (EventKind.EVICTED, EventKind.RESTORED)
_WEIGHT: Final = 0.25  # of a measurement beside those before it
Sizes = dict[str, int]  # bytes by device


class Phase(StrEnum):
    """What an elastic container does."""

    RUNNING = "running"  # nothing of it is out
    STOPPING = "stopping"  # its processes were told to stop, and not all have answered
    STOPPED = "stopped"  # nothing of it runs
    RESTORING = "restoring"  # it has its turn, and its memory is on the way back


class Checkpointing(StrEnum):
    """What the driver does with the contexts of a process."""

    NONE = "none"
    TAKING = "taking"
    TAKEN = "taken"
    RESTORING = "restoring"


# What is so until a porter says otherwise, when it may answer an order under a number that nobody has any more.
_UNANSWERED: Final = {
    Checkpointing.TAKING: Checkpointing.NONE,
    Checkpointing.RESTORING: Checkpointing.TAKEN,
}


@dataclass(slots=True)
class SessionMemory:
    """One process of an elastic container.

    Attributes:
        mover: how its memory moves, None if it cannot be stopped.
        is_stopped: its gate is closed and its work is drained.
        is_known: it has said how it stands since its connection was lost.
        is_let_go: it was told on this connection that its gate may open, and has not been told to stop since.
        waiting: threads that waited at its gate when it answered last.
        out: by device, what lies on the host.
        evicting: by device, what it was told to move out and has not.
        restoring: by device, what it was told to move back and has not.
        fixed: by device, what cannot leave, None until it has said so.
        stuck: by device, what did not leave although it was told to; it is tried again when the host has more room.
        pool_then: by device, the host memory that there was when it was told what it has not moved out.
        checkpoint: what the driver does with its contexts.
        saved: by device, what the driver has taken off beside `out`; it needs no room of the pool.
    """

    mover: Mover | None = None
    is_stopped: bool = False
    is_known: bool = True
    is_let_go: bool = False
    waiting: int = 0
    out: Sizes = field(default_factory=dict)
    evicting: Sizes = field(default_factory=dict)
    restoring: Sizes = field(default_factory=dict)
    fixed: Mapping[str, int] | None = None
    stuck: Sizes = field(default_factory=dict)
    pool_then: Sizes = field(default_factory=dict)
    checkpoint: Checkpointing = Checkpointing.NONE
    saved: Sizes = field(default_factory=dict)


@dataclass(slots=True)
class Residence:
    """One elastic container.

    Attributes:
        fixed: by device, the share of its limit that may be fixed.
        sessions: its processes.
        epoch: number of its last Stop; answers to earlier ones are not heeded.
        is_preempted: it lost its turn, because its quantum was over and another waited.
        is_suspended: by hand; it has no turn before it is resumed by hand. `is_deep`: its contexts leave as well.
        wants_turn: a thread waits at the gate of a stopped process.
        works: it has its turn for such a thread, although an allocation of another is paused.
        idle_since: when it worked last, None while it works.
        leaves_at: when its idleness has lasted as long as its way out and back would; infinite while it works.
        since: when it got its turn.
        suspended_at: when it was told to stop.
        busy_until, back_off: it did not stop in time, and is not told again before that.
        switches: how often it was stopped; `moved_out`, `moved_in`: bytes; `drained_in`: seconds of its last stop.
        why: it was stopped last.
        restore_at: the driver refused memory for what is out, and is not asked again before that.
        asked_at, stepped_at: when its processes were told to stop, or to let a submission pass.
    """

    fixed: Mapping[str, int]
    sessions: dict[int, SessionMemory] = field(default_factory=dict)
    phase: Phase = Phase.RUNNING
    epoch: int = 0
    is_preempted: bool = False
    is_suspended: bool = False
    is_deep: bool = False
    wants_turn: bool = False
    works: bool = False
    idle_since: float | None = None
    leaves_at: float = inf
    since: float = 0.0
    suspended_at: float = 0.0
    busy_until: float = 0.0
    back_off: float = 0.0
    switches: int = 0
    moved_out: int = 0
    moved_in: int = 0
    drained_in: float | None = None
    why: SuspendReason = SuspendReason.ASKED
    restore_at: float = 0.0
    asked_at: float = 0.0
    stepped_at: float = 0.0

    @property
    def able(self) -> Iterable[tuple[int, SessionMemory]]:
        """Its processes that can be stopped."""
        return ((number, memory) for number, memory in self.sessions.items() if memory.mover is not None)

    @property
    def is_stopped(self) -> bool:
        """Whether every process that can be stopped has."""
        return all(memory.is_stopped for _, memory in self.able)

    @property
    def is_known(self) -> bool:
        """Whether every process has said how it stands."""
        return all(memory.is_known for memory in self.sessions.values())

    @property
    def has_out(self) -> bool:
        """Whether anything of it is not on the card, or about to leave it."""
        return any(
            m.checkpoint is not Checkpointing.NONE or any(m.out.values()) or any(m.evicting.values())
            for m in self.sessions.values()
        )


@dataclass(slots=True)
class QuantumEnds:
    """When the quanta of others end for a container that waits for its turn, as long as it waits as it does.

    Attributes:
        rates: with which they were computed; `is_overdue`: whether it was then.
        known: by name of another, for which number of its refresh, and when.
        refused: when nobody lost the turn to it last: by device, what it could get, and who ran there.
        until: when a quantum ends next that did not help then.
    """

    rates: Mapping[str, "Rates"]
    is_overdue: bool
    known: dict[str, tuple[int, float]] = field(default_factory=dict)
    refused: list[tuple[int, int]] = field(default_factory=list)
    until: float = 0.0


@dataclass(slots=True)
class Turn:
    """A container that waits for its turn, or has it and lacks memory on a card.

    Attributes:
        sequence: its place in the order in which containers began to wait.
        since: when it began to wait.
        order: the container's place in the order in which containers arrived.
        priority: of the container.
        need: by device, what it needs on the card and does not have there.
        claims: by device, the bytes of the card that it takes when it gets its turn; none once it has it.
        is_admitted: it has its turn.
        ends: when others may lose their turn to it, as far as that was computed.
        view: as memory policies see it, once one was asked.
    """

    container: str
    sequence: int
    since: float
    order: int
    priority: int
    need: Sizes = field(default_factory=dict)
    claims: Sizes = field(default_factory=dict)
    is_admitted: bool = False
    ends: QuantumEnds | None = field(default=None, compare=False, repr=False)
    view: WaitingAllocation | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second out of a device and into it, and the seconds of a drain: guesses until they are measured.

    A measurement takes the place of the guess; each later one counts for a quarter.
    """

    out: float = 40.0 * GIB
    into: float = 40.0 * GIB
    drain: float = 0.05
    measured: frozenset[str] = frozenset()

    def weigh(self, name: str, value: float) -> "Rates":
        """Return the rates with one more measurement of `out`, `into` or `drain`."""
        before: float = getattr(self, name)
        weight = _WEIGHT if name in self.measured else 1.0
        values = {name: before + weight * (value - before), "measured": self.measured | {name}}
        return replace(self, **values)  # type: ignore[arg-type]  # of the fields' own types


class Residency:
    """All elastic containers, and sums per device.

    Attributes:
        containers: by name.
        turns: the containers that wait for their turn, or have it and are not whole, oldest first.
        stopping, suspended, busy, resting: the containers that are told to stop, that an administrator suspended, that
            did not stop in time, that are idle and not yet for long enough to leave.
        watched: the containers whose processes say whether they are idle, and since when they do.
        inexact: containers that were stopped since, and whose headroom counts as memory that may leave.
        changed: containers whose memory or stance changed since the last decision.
        out, evicting, restoring, saved: sums of the processes.
        deferred: bytes of allocations that the ledger has leased and that wait for room on the card.
        pool: host memory for what leaves the device.
        promise: what of it may be granted beside the capacity, as soon as what cannot leave fits (reservations.py).
        rates: as measured; others whenever one of them changes.
        piece: bytes that move together at least, where there are as many; a multiple of it where more are left.
        refused: containers whose `restore_at` is to come.
        stuck: containers of which bytes did not leave, and the devices.
        moved: bytes that went out (EVICTED) and came back (RESTORED) since the scheduler started.
        is_tight: a container waits for room on a card, so that no headroom is given ahead.
    """

    def __init__(self, devices: Iterable[str]) -> None:
        self.devices = tuple(devices)
        self.containers: dict[str, Residence] = {}
        self.turns: dict[str, Turn] = {}
        self.stopping: dict[str, None] = {}
        self.suspended: dict[str, None] = {}
        self.busy: dict[str, None] = {}
        self.resting: dict[str, None] = {}
        self.watched: dict[str, float] = {}
        self.inexact: dict[str, None] = {}
        self.changed: dict[str, None] = {}
        self.out: Sizes = dict.fromkeys(self.devices, 0)
        self.evicting: Sizes = dict.fromkeys(self.devices, 0)
        self.restoring: Sizes = dict.fromkeys(self.devices, 0)
        self.saved: Sizes = dict.fromkeys(self.devices, 0)
        self.deferred: Sizes = dict.fromkeys(self.devices, 0)
        self.pool: Sizes = dict.fromkeys(self.devices, 0)
        self.promise: Sizes = dict.fromkeys(self.devices, 0)
        self.rates: Mapping[str, Rates] = dict.fromkeys(self.devices, Rates())
        self.piece = 1
        self.refused: dict[str, None] = {}
        self.stuck: dict[str, set[str]] = {}
        self.moved: dict[EventKind, Sizes] = {kind: dict.fromkeys(self.devices, 0) for kind in MOVES}
        self.is_tight = False

    @property
    def is_active(self) -> bool:
        """Whether any memory can leave, or may be granted beside a card; if not, all that is granted has room."""
        return bool(self.containers or self.turns) or any(self.promise.values())

    def remove(self, container: str) -> None:
        """Forget a container; its sessions have ended before."""
        indices = (self.stopping, self.suspended, self.busy, self.resting, self.inexact, self.refused)
        for index in (self.containers, *indices):
            index.pop(container, None)
        self.watched.pop(container, None)
        self.stuck.pop(container, None)
        self.changed[container] = None

    def is_away(self, container: str) -> bool:
        """Whether a container is stopped, or about to be: what it frees is reported, so that its figures are exact."""
        residence = self.containers.get(container)
        return residence is not None and residence.phase is not Phase.RUNNING

    def open_session(self, container: str, session: int) -> None:
        """Count a process that connected; it cannot be stopped before SessionAble."""
        if container in self.containers:
            self.containers[container].sessions[session] = SessionMemory()
            self.changed[container] = None

    def move_session(self, container: str, replaced: int, session: int) -> None:
        """Let a process go on under another number. What was on its way may have been lost with its connection."""
        if container in self.containers:
            sessions = self.containers[container].sessions
            memory = sessions[session] = sessions.pop(replaced)
            memory.is_known = memory.mover is None  # which says nothing of how it stands
            memory.is_let_go = False
            self.watched.pop(container, None)  # its hook begins anew
            self.forget(memory, "evicting", "restoring")
            memory.checkpoint = _UNANSWERED.get(memory.checkpoint, memory.checkpoint)
            self.changed[container] = None

    def close_session(self, container: str, session: int) -> Mapping[str, int]:
        """Forget a process that ended; return what of it was out, by device."""
        if container not in self.containers:
            return {}
        memory = self.containers[container].sessions.pop(session)
        out = dict(memory.out)
        for device in filter(out.get, out):
            self.try_stuck(device)
        self.forget(memory, "out", "evicting", "restoring", "saved")
        self.changed[container] = None
        return out

    def revoke(self, container: str) -> None:
        """Take a container's turn away: it waits, or it is suspended."""
        turn = self.turns.get(container)
        residence = self.containers.get(container)
        if turn is not None:
            turn.is_admitted = False
        if residence is not None and residence.phase is Phase.RESTORING:
            residence.phase = Phase.STOPPED
            residence.wants_turn = True
        self.changed[container] = None

    def pool_free(self, device: str) -> int:
        """Bytes that can be moved out right now."""
        return self.pool[device] - self.out[device] - self.evicting[device]

    def weigh_rate(self, device: str, name: str, value: float) -> None:
        """Count a measurement of `out`, `into` or `drain` of a device; 0 is none."""
        if value > 0:
            self.rates = {**self.rates, device: self.rates[device].weigh(name, value)}

    def whole_pieces(self, wanted: int, room: int) -> int:
        """Return how many of these bytes to move where there is so much room: all, or so many whole pieces."""
        return wanted if wanted <= room else max(room, 0) // self.piece * self.piece

    def try_stuck(self, device: str) -> None:
        """Let what did not leave a device be told so again: the host has more room."""
        for name in [name for name, devices in self.stuck.items() if device in devices]:
            self.forget_stuck(name)

    def forget_stuck(self, container: str) -> None:
        """Let what of a container did not leave be told so again."""
        if self.stuck.pop(container, None) is not None:
            for memory in self.containers[container].sessions.values():
                memory.stuck.clear()
            self.changed[container] = None

    def note_stuck(self, container: str, memory: SessionMemory, device: str, size: int) -> None:
        """Note bytes that did not leave."""
        memory.stuck[device] = memory.stuck.get(device, 0) + size
        self.stuck.setdefault(container, set()).add(device)

    def change(self, of: str, memory: SessionMemory, device: str, size: int) -> None:
        """Add bytes to `out`, `evicting`, `restoring` or `saved` of a process; a negative size takes some away."""
        sizes: Sizes = getattr(memory, of)
        total: Sizes = getattr(self, of)
        sizes[device] = sizes.get(device, 0) + size
        total[device] += size

    def forget(self, memory: SessionMemory, *names: str) -> None:
        """Forget what is `out`, `evicting`, `restoring` or `saved`: the process has ended, or says it anew."""
        for of in names:
            for device, size in list(getattr(memory, of).items()):
                self.change(of, memory, device, -size)
