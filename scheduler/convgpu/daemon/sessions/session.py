"""One connected process, and one allocation that waits for its answer."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from convgpu.core.events import cause_of
from convgpu.daemon.transport.connection import Absent, Connection
from convgpu.daemon.transport.shared_page import Page


@dataclass(slots=True, eq=False)
class Session:
    """One process: connected, disconnected, or adopted from an earlier scheduler.

    Attributes:
        number: unique within one scheduler.
        container: name of the volume.
        page: shared with the process; holds its headroom.
        rows: device UUIDs in the order of its WELCOME, which is also the order of the page's slots.
        program: as the process calls itself.
        since: Unix seconds.
        process: a pidfd, None if the process is not visible here.
        started: start time of the process (`procfs.start_time`), 0 when the pid is not visible here.
        ids: the Engine's ids of the containers it runs in, the outermost first.
        namespace: inode of its pid namespace.
        pids: its pids, from our namespace down to its own.
        own_pid: as the process sees itself.
        is_elastic: whether it was told that its memory may leave.
        fixed_leases: what of it may be memory that cannot leave, in bytes per device.
    """

    number: int
    container: str
    connection: Connection | Absent
    page: Page
    rows: Sequence[str]
    program: str
    since: float
    process: int | None = None
    started: int = 0
    ids: Sequence[str] = ()
    namespace: int | None = None
    pids: Sequence[int] = ()
    own_pid: int = 0
    is_elastic: bool = False
    fixed_leases: dict[str, int] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        """Its pid in our namespace; 0 when it is not visible here."""
        return self.connection.pid

    @property
    def cause(self) -> str:
        """The cause under which logs and history show the session."""
        return cause_of(self.number)

    def take_headroom(self, device: str) -> int:
        """Empty the headroom slot of a device, and return how much it held, in bytes.

        The slot is emptied and not only read, because a process that lives on must not use these bytes any more.
        """
        return self.page.take_all(self.rows.index(device))

    def take_all_headroom(self) -> dict[str, int]:
        """Empty all headroom slots, and return how much each held, in bytes per device."""
        return {uuid: self.page.take_all(row) for row, uuid in enumerate(self.rows)}

    def usage(self, device: str, lease: int) -> int:
        """Return how much of a lease is used, in bytes. A headroom above the lease counts as the whole lease."""
        return max(lease - self.page.read(self.rows.index(device)), 0)


@dataclass(frozen=True, slots=True)
class PendingAllocation:
    """An allocation that waits for its answer.

    Attributes:
        session: of the process.
        frame: id of the frame to answer.
        device: UUID; empty if the process named no device of its own.
        size: bytes.
        call: name of the CUDA call.
        since: Unix seconds.
    """

    session: Session
    frame: int
    device: str
    size: int
    call: str
    since: float
