"""What programs without a session are told: NVML's view of a container (`nvidia-smi`), which costs nobody memory."""

from pathlib import Path
from typing import Final

from convgpu.daemon.sessions import Session, Sessions
from convgpu.protocol.messages import Observed, ProcessRow
from convgpu.protocol.uuids import uuid_text

_MOST_ROWS: Final = 4000  # of a frame


def observe(sessions: Sessions, container: str, asker: int, device: bytes) -> Observed:
    """Return limit and usage of a container on a device, and its processes that use it.

    Args:
        sessions: of all containers.
        container: whose.
        asker: pid of who asks, as we see it; 0 when it is not visible here.
        device: binary UUID.
    """
    uuid = uuid_text(device)
    account = sessions.machine.ledger.accounts[container].get(uuid)
    if account is None:
        return Observed(0, 0)
    rows = (_row(session, asker, sessions.used_by(session, uuid)) for session in sessions.of(container))
    seen = [row for row in rows if row is not None and row.used]
    return Observed(account.limit, sessions.used(container, uuid), tuple(seen[:_MOST_ROWS]))


def _row(session: Session, asker: int, used: int) -> ProcessRow | None:
    pid = pid_seen_by(session.pid, asker) if session.pid and asker else session.own_pid
    return None if pid is None else ProcessRow(pid, session.pid, used)


def pid_seen_by(pid: int, asker: int) -> int | None:
    """Return the pid of a process in the pid namespace of another one; both as we see them.

    None when it is not visible there, or gone. The source is NSpid of proc(5): the pids of a process in our
    namespace, in the one below, and so on to its own.
    """
    levels, depth = _namespace_pids(pid), len(_namespace_pids(asker))
    if depth == 0 or len(levels) < depth:
        return None
    if len(levels) == depth and _namespace(pid) != _namespace(asker):
        return None
    return levels[depth - 1]


def _namespace_pids(pid: int) -> list[int]:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return []
    return next(([int(word) for word in line.split()[1:]] for line in status.splitlines() if line[:6] == "NSpid:"), [])


def _namespace(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}/ns/pid").stat().st_ino
    except OSError:
        return None
