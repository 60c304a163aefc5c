"""To which container does a process belong? The kernel tells, never the process."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.system.procfs import containers_of, pid_namespace


@dataclass(frozen=True, slots=True)
class Members:
    """How processes are told apart, at one moment.

    Attributes:
        by_pid: volumes by the pids of connected processes.
        by_id: volumes by the Engine's ids of containers.
        by_namespace: volumes by pid namespaces; for processes outside of all containers of the Engine.
    """

    by_pid: Mapping[int, str]
    by_id: Mapping[str, str]
    by_namespace: Mapping[int, str]

    def volume_of(self, pid: int) -> str | None:
        """Return the volume of the container that a process belongs to, None outside of all."""
        return self.by_pid.get(pid) or self.without_session(pid)

    def without_session(self, pid: int) -> str | None:
        """As `volume_of`, by the kernel's word of this moment alone."""
        ids = containers_of(pid)
        # The outermost that is known: a container may call cgroups below its own what it likes.
        known = next((self.by_id[one] for one in ids if one in self.by_id), None)
        if known is not None or ids:
            return known
        namespace = pid_namespace(pid)
        return None if namespace is None else self.by_namespace.get(namespace)


class ContainerResolver:
    """Knows the members of all containers.

    Args:
        listed: volumes by the Engine's ids of containers, as the Engine listed them last.
    """

    def __init__(self, sessions: SessionRegistry, listed: Callable[[], Mapping[str, str]]) -> None:
        self._sessions = sessions
        self._listed = listed
        self._ours = set(containers_of(os.getpid()))
        self._namespace = pid_namespace(os.getpid())

    def members(self) -> Members:
        """Return what is known now."""
        by_id = dict(self._listed())
        by_namespace: dict[int, str] = {}
        shared: set[int] = set()
        sessions = self._sessions.by_number.values()
        for session in sessions:
            ids, namespace = session.ids, session.namespace
            # Of a container that was not listed yet: its own id is the innermost.
            if ids and not any(one in by_id for one in ids) and ids[-1] not in self._ours:
                by_id[ids[-1]] = session.container
            if ids or namespace is None or namespace == self._namespace:
                continue
            if by_namespace.setdefault(namespace, session.container) != session.container:
                shared.add(namespace)
        by_namespace = {one: volume for one, volume in by_namespace.items() if one not in shared}
        by_pid = {session.pid: session.container for session in sessions if session.pid}
        return Members(by_pid, by_id, by_namespace)
