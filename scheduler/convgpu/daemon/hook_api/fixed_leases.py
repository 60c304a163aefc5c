"""Leases of memory that cannot leave a device: contexts, small allocations, exported ranges (docs/protocol.md).

They say how much of what a process is granted may be of that kind, and come beside the grant.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from convgpu.core.residency.events import ElasticSet
from convgpu.daemon.containers.registry import ContainerRegistry
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.residency.elastic_sessions import ElasticSessions
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import Session

Copies = Callable[[str, int, int], Mapping[str, int] | None]


class FixedLeases:
    """Leases fixed memory to the processes of elastic containers.

    Args:
        containers: know the shares.
        driver: handles the events.
        sessions: all that are connected.
        copies: see `copies_of`.
    """

    def __init__(
        self, containers: ContainerRegistry, driver: MachineDriver, sessions: SessionRegistry, copies: Copies
    ) -> None:
        self.copies_of = copies
        """By container, pid and start time of a process whose memory may leave, its bytes on the host by device.

        None if nobody can tell.
        """
        self._containers = containers
        self._driver = driver
        self._sessions = sessions

    def may_leave(self, container: str) -> bool:
        """Say whether the memory of a container may leave its devices."""
        return self._containers.may_leave(container)

    def is_unified(self, container: str) -> bool:
        """Say whether the memory of a container is managed by the driver."""
        return self._containers.is_unified(container)

    def open(self, session: Session) -> None:
        """Lease what other processes of the container have not been leased, before the process gets its page."""
        if not session.is_elastic:
            return
        for uuid, share in self._containers.fixed_shares(session.container).items():
            if uuid in session.rows:
                self._lease(session, uuid, max(share - self._leased(session.container, uuid), 0))

    def grow(self, session: Session, device: str, size: int) -> bool:
        """Let a process have more fixed memory; False if its container may not. Its own account counts it already.

        Beyond the share of its container the card has to have room for it beside everybody who could run there.
        """
        name, most = session.container, self._containers.most_fixed(session.container).get(device, 0)
        wanted = self._leased(name, device) + size
        if not session.is_elastic or wanted > most:
            return False
        shares = self._driver.machine.fixed_shares(name)
        if wanted > shares.get(device, 0):
            if not self._driver.machine.may_fix(name, device, wanted):
                return False
            self._driver.dispatch(ElasticSet(name, {**shares, device: wanted}))
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
