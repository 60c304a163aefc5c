"""Leases of memory that cannot leave a device: contexts, small allocations, exported ranges (docs/protocol.md).

They say how much of what a process is granted may be of that kind, and come beside the grant.
"""

from dataclasses import dataclass

from convgpu.daemon.containers.registry import ContainerRegistry
from convgpu.daemon.residency.elastic_sessions import ElasticSessions
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import Session


class FixedLeases:
    """Leases fixed memory to the processes of elastic containers.

    Args:
        containers: know the shares.
        sessions: all that are connected.
    """

    def __init__(self, containers: ContainerRegistry, sessions: SessionRegistry) -> None:
        self._containers = containers
        self._sessions = sessions

    def may_leave(self, container: str) -> bool:
        """Say whether the memory of a container may leave its devices."""
        return self._containers.may_leave(container)

    def open(self, session: Session) -> None:
        """Lease what other processes of the container have not been leased, before the process gets its page."""
        if not session.is_elastic:
            return
        for uuid, share in self._containers.fixed_shares(session.container).items():
            if uuid in session.rows:
                self._lease(session, uuid, max(share - self._leased(session.container, uuid), 0))

    def grow(self, session: Session, device: str, size: int) -> bool:
        """Let a process have more fixed memory; False if its container may not. Its own account counts it already."""
        most = self._containers.most_fixed(session.container).get(device, 0)
        if not session.is_elastic or self._leased(session.container, device) + size > most:
            return False
        session.fixed_leases[device] = session.fixed_leases.get(device, 0) + size
        return True

    def _lease(self, session: Session, device: str, size: int) -> None:
        session.page.lease_fixed(session.rows.index(device), size)
        session.fixed_leases[device] = session.fixed_leases.get(device, 0) + size

    def _leased(self, container: str, device: str) -> int:
        return sum(session.fixed_leases.get(device, 0) for session in self._sessions.of(container))


@dataclass(frozen=True, slots=True)
class Suspension:
    """What the requests of elastic processes need: who moves memory, and what cannot leave."""

    elastic: ElasticSessions
    fixed: FixedLeases
