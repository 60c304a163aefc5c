"""Where memory of dead processes is searched for: the outermost PID namespaces of containers, and who lives there."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from convgpu.core.audit.attribution import Owner
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.gpu.namespace_lists import NO_IDS
from convgpu.daemon.system.procfs import (
    containers_of,
    is_alive,
    is_exiting,
    is_running,
    namespace_pids,
    open_pid_namespace,
    pid_namespace,
    processes,
    start_time,
    ticks_since_boot,
    user,
)

T = TypeVar("T")

# Pids are given to so many more processes while we ask; and the kernel gives none from here on (PID_MAX_LIMIT). Since
# Linux 6.14 each PID namespace has a bound of its own, and that of the host says nothing.
_MORE: Final = 4096
_MOST: Final = 1 << 22
# Seconds for which a process of the host may be within a namespace: a runtime's is on its way into the container.
_PASSING: Final = 1.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_FORKS: Final = re.compile(r"^processes (\d+)$", re.MULTILINE)

# The pids that processes of each container have in each namespace from ours down, by container and the first of those.
_Numbers = dict[str, dict[int, Sequence[int]]]


@dataclass(slots=True)
class Namespace:
    """The outermost PID namespace of a container, as a look finds it.

    Attributes:
        owner: the container.
        descriptor: of the namespace.
        living: the pids of its processes there.
    """

    owner: Owner
    descriptor: int
    living: set[int] = field(default_factory=set)


class Unended(NamedTuple):
    """Processes of a container by their pids in its outermost PID namespace. Others have ended, a zombie too.

    Attributes:
        alive: live.
        exiting: have files still, the driver's maybe, which may be about to free their memory.
    """

    alive: AbstractSet[int] = frozenset()
    exiting: AbstractSet[int] = frozenset()


def find_namespaces(index: ProcessIndex, own: int) -> dict[int, Namespace]:
    """Return the namespaces of containers by their inodes; those are left out that others are in, too, or we."""
    numbers, shared = _look(index)
    found = dict[int, Namespace]()
    try:
        for container, rows in numbers.items():
            depth = min(len(pids) for pids in rows.values())
            outermost = [pid for pid, pids in rows.items() if len(pids) == depth]
            if (volume := index.by_id.get(container)) is None:
                shared.add(_first_told(pid_namespace, outermost))
            elif (descriptor := _first_told(open_pid_namespace, outermost)) is not None:
                inode, living = os.fstat(descriptor).st_ino, _which(is_alive, rows)
                if inode in found:
                    shared.add(inode)
                    os.close(descriptor)
                else:
                    found[inode] = Namespace(Owner(volume, container), descriptor, living)
    except BaseException:
        shared |= found.keys()
        raise
    finally:
        for inode in found.keys() & (shared | {own}):
            os.close(found.pop(inode).descriptor)
    return found


def unended_in(index: ProcessIndex) -> dict[str, Unended]:
    """Return the processes of each container that have not ended."""
    numbers, _ = _look(index)
    return {container: Unended(_which(is_alive, rows), _which(is_exiting, rows)) for container, rows in numbers.items()}


def _which(is_so: Callable[[int], bool], rows: Mapping[int, Sequence[int]]) -> set[int]:
    depth = min(len(pids) for pids in rows.values())
    return {pids[depth - 1] for pid, pids in rows.items() if is_so(pid)}


def _first_told(tell: Callable[[int], T | None], pids: Iterable[int]) -> T | None:
    """Return what is told of the first of these processes that does not keep the kernel from telling."""
    return next((told for pid in pids if (told := tell(pid)) is not None), None)


def _look(index: ProcessIndex) -> tuple[_Numbers, set[int | None]]:
    """Return the pids that processes of each container have in each namespace, and where processes of the host are."""
    numbers: _Numbers = {}
    shared = set[int | None]()
    for pid in processes():
        # A runtime's own, on its way into a container, is in our namespace still.
        if len(pids := namespace_pids(pid)) > 1:
            container = index.outermost(containers_of(pid))
            if container is not None:
                numbers.setdefault(container, {})[pid] = pids
            elif _stays(pid):
                shared.add(pid_namespace(pid))
    return numbers, shared


def _stays(pid: int) -> bool:
    """Say whether a process of the host lives within a namespace: not ours, nor a runtime's on its way.

    Who has ended may be a container's: under cgroup v1 it has no cgroup any more.
    """
    is_old = ticks_since_boot() - start_time(pid) > _PASSING * _TICKS
    return is_old and user(pid) not in NO_IDS and is_running(pid) is True


def most_pids() -> int:
    """Return a number above all pids: as many processes as began since the machine did, at most (proc_stat(5))."""
    begun = _FORKS.search(Path("/proc/stat").read_text())
    return min(_MOST, int(begun[1]) + _MORE) if begun else _MOST
