"""The view of a container that programs without a session get through NVML (`nvidia-smi`); it costs no memory."""

from collections.abc import Sequence
from typing import Final

from convgpu.core.machine import Machine
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.system.procfs import KernelFacts
from convgpu.protocol.messages import Observed, ProcessRow
from convgpu.protocol.uuids import uuid_text
from convgpu.protocol.wire import ObservedFlag

_MAX_ROWS: Final = 4000  # of a frame


def observe(
    machine: Machine, sessions: SessionRegistry, container: str, asker: KernelFacts | None, device: bytes
) -> Observed:
    """Return limit and usage of a container on a device, and its processes that use it.

    Args:
        machine: knows the limit.
        sessions: of all containers.
        container: name of the volume.
        asker: what the kernel tells of the asking process; None when it is not visible here.
        device: binary UUID.
    """
    uuid = uuid_text(device)
    account = machine.account(container, uuid)
    flags = ObservedFlag.CHOSEN if machine.hides_others(container) else ObservedFlag(0)
    if machine.choice(container) is not None and machine.placement(container) is None:
        chosen = machine.propose(container).devices
        return Observed(machine.offer(container)[uuid] if uuid in chosen else 0, 0, flags=flags)
    if account is None:
        return Observed(0, 0, flags=flags)
    used = ((session, sessions.used_by(session, uuid)) for session in sessions.of(container))
    rows = []
    for session, size in used:
        pid: int | None = session.own_pid
        if session.pid and asker is not None:
            pid = pid_seen_by(session.pids, session.namespace, asker.pids, asker.namespace)
        if size and pid is not None:
            rows.append(ProcessRow(pid, session.pid, size))
    return Observed(account.limit, sessions.used(container, uuid), tuple(rows[:_MAX_ROWS]), flags)


def pid_seen_by(
    pids: Sequence[int], namespace: int | None, asker_pids: Sequence[int], asker_namespace: int | None
) -> int | None:
    """Return the pid of a process in the pid namespace of another process, None if not visible there or ended.

    See `procfs.namespace_pids` and `procfs.pid_namespace` for the arguments.
    """
    depth = len(asker_pids)
    if depth == 0 or len(pids) < depth or (len(pids) == depth and namespace != asker_namespace):
        return None
    return pids[depth - 1]
