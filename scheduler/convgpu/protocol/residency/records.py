"""What people see of containers whose memory can leave; parts of the answers in `convgpu.protocol.records`."""

import msgspec


class CardTurn(msgspec.Struct, frozen=True):
    """A container whose memory may leave.

    Attributes:
        since: Unix seconds: since when it has its card turn, or waits for it (`behind` somebody), or stands still.
        due: Unix seconds: when it gets it at the latest, because those who have it may keep it no longer; None if
            nobody can say (others come first, or nobody loses a turn).
        behind: the containers that have the room it waits for, the largest first.
        switches: how often it was stopped since the scheduler knows it.
        moved_out, moved_in: bytes that went to the host and came back.
        drain: seconds until its work had ended when it was stopped last; None if it never was.
    """

    since: float
    behind: tuple[str, ...] = ()
    switches: int = 0
    moved_out: int = 0
    moved_in: int = 0
    drain: float | None = None
    due: float | None = None


class DeviceMoves(msgspec.Struct, frozen=True):
    """What moves between a GPU and the host.

    Attributes:
        moved_out, moved_in: bytes since the scheduler started.
        rate_out, rate_in: bytes per second as quanta are computed with: measured, before that a guess.
        drain: seconds that a stop takes, likewise.
    """

    moved_out: int = 0
    moved_in: int = 0
    rate_out: float = 0.0
    rate_in: float = 0.0
    drain: float = 0.0
