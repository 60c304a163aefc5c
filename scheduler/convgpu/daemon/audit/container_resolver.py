"""Finds the container that a process belongs to. The kernel tells, never the process itself."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.system.procfs import containers_of, pid_namespace


@dataclass(frozen=True, slots=True)
class ProcessIndex:
    """The facts by which processes are told apart, as they were at one moment.

    Attributes:
        by_pid: volumes by the pids of connected processes.
        by_id: volumes by the Engine's ids of containers.
        by_namespace: volumes by pid namespaces; for processes outside of all containers of the Engine.
        own: ids of the containers in which the scheduler itself runs, and with it all others that it sees.
    """

    by_pid: Mapping[int, str]
    by_id: Mapping[str, str]
    by_namespace: Mapping[int, str]
    own: AbstractSet[str] = frozenset()

    def volume_of(self, pid: int) -> str | None:
        """Return the volume of the container that a process belongs to, None for an external process."""
        return self.by_pid.get(pid) or self.without_session(pid)

    def owner_of(self, pid: int) -> tuple[str | None, str | None]:
        """Return both `volume_of` and `container_of`."""
        ids = containers_of(pid)
        return self.by_pid.get(pid) or self._volume(pid, ids), self.outermost(ids)

    def without_session(self, pid: int) -> str | None:
        """As `volume_of`, but only by what the kernel says of the process now."""
        return self._volume(pid, containers_of(pid))

    def _volume(self, pid: int, ids: Sequence[str]) -> str | None:
        if ids:
            return self.by_id.get(self.outermost(ids) or "")
        namespace = pid_namespace(pid)
        return None if namespace is None else self.by_namespace.get(namespace)

    def container_of(self, pid: int) -> str | None:
        """Return the id of the container in whose cgroup a process runs now, None for one of the host."""
        return self.outermost(containers_of(pid))

    def outermost(self, ids: Iterable[str]) -> str | None:
        """Return the container of the Engine among those in which a process runs, None if there is none."""
        # Not the first that is known: a container may name cgroups below its own as it likes, after another one too.
        return next((found for found in ids if found not in self.own), None)


class ContainerResolver:
    """Makes indices of the processes of all containers.

    Args:
        sessions: of all containers.
        listed: gives volumes by the Engine's ids of containers, as the Engine listed them last.
    """

    def __init__(self, sessions: SessionRegistry, listed: Callable[[], Mapping[str, str]]) -> None:
        self._sessions = sessions
        self._listed = listed
        self._own_ids = frozenset(containers_of(os.getpid()))
        self._own_namespace = pid_namespace(os.getpid())

    def index(self) -> ProcessIndex:
        """Return what is known now."""
        by_id = dict(self._listed())
        by_namespace: dict[int, str] = {}
        shared: set[int] = set()
        sessions = self._sessions.by_number.values()
        for session in sessions:
            ids, namespace = session.ids, session.namespace
            # A container that was not listed yet: its own id is the innermost.
            if ids and not any(container_id in by_id for container_id in ids) and ids[-1] not in self._own_ids:
                by_id[ids[-1]] = session.container
            if ids or namespace is None or namespace == self._own_namespace:
                continue
            if by_namespace.setdefault(namespace, session.container) != session.container:
                shared.add(namespace)
        by_namespace = {namespace: volume for namespace, volume in by_namespace.items() if namespace not in shared}
        by_pid = {session.pid: session.container for session in sessions if session.pid}
        return ProcessIndex(by_pid, by_id, by_namespace, self._own_ids)
