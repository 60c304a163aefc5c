"""Whether a process may use the socket of a container: it must run in that container (decision 71).

A container that sees the processes of others (`/proc` of the host, a shared pid namespace) reaches their sockets by
`/proc/PID/root`. So the kernel is asked who is at the other end, and what it has mounted.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from convgpu.daemon.system.mounts import Place, mounts_of
from convgpu.daemon.system.procfs import containers_of
from convgpu.daemon.transport.shares import Shares
from convgpu.protocol.stream import ProtocolError
from convgpu.protocol.wire import Failure


class PeerCheck:
    """Refuses processes of other containers.

    Args:
        volume_of: gives volumes by the Engine's ids of containers, as the Engine listed them last.
        place_of: finds the folder of a volume; None when it is not to be found.
    """

    def __init__(self, volume_of: Callable[[], Mapping[str, str]], place_of: Callable[[str], Place | None]) -> None:
        self._volume_of = volume_of
        self._place_of = place_of
        self._own_ids = set(containers_of(os.getpid()))

    def check(self, container: str, pid: int, ids: Sequence[str], request: int) -> None:
        """Check a process before it is told anything.

        Args:
            container: whose socket it has connected to.
            pid: in our pid namespace.
            ids: the Engine's, of the containers in whose cgroups it runs.
            request: of the frame to answer.

        Raises:
            ProtocolError: it runs in another container.
        """
        if not self._is_inside(container, pid, [one for one in ids if one not in self._own_ids]):
            text = "this process runs in another container than the one whose socket this is: use your own volume"
            raise ProtocolError(Failure.PEER, text, request)

    def _is_inside(self, container: str, pid: int, ids: list[str]) -> bool:
        """Say whether a process with these ids belongs to a container.

        Outside of all containers nobody is refused: who reaches a socket there may. Of nested ones the outermost that
        the Engine listed counts: below its own cgroup a container chooses names as it likes. What was not listed yet,
        and what has several volumes, is known by the volume's folder: the Engine mounts it, and only root can.
        """
        if not ids:
            return True
        known = self._volume_of()
        if next((known[one] for one in ids if one in known), None) == container:
            return True
        place = self._place_of(container)
        return place is None or any(mount.place == place for mount in mounts_of(pid))


@dataclass(frozen=True, slots=True)
class Isolation:
    """What keeps containers apart: each has its share of the event loop, and its socket for its own processes."""

    shares: Shares
    peers: PeerCheck
