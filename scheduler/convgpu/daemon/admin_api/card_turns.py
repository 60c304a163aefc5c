"""Records of memory that leaves: of containers and of devices."""

from collections.abc import Callable

from convgpu.core.machine import Machine
from convgpu.protocol.residency.records import CardTurn, DeviceMoves


class CardTurns:
    """Makes records of what moves.

    Args:
        machine: is read.
        host_pool: of a device, the host memory that is there for it, and what of that may be granted; in bytes.
        clock: of the events.
        wall_clock: Unix seconds.
    """

    def __init__(
        self,
        machine: Machine,
        host_pool: Callable[[str], tuple[int, int]],
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._machine = machine
        self.host_pool = host_pool
        self._clock = clock
        self._wall_clock = wall_clock

    def of(self, container: str) -> CardTurn | None:
        """Return how a container stands, None if its memory never leaves."""
        residence = self._machine.residence(container)
        if residence is None:
            return None
        offset = self._wall_clock() - self._clock()
        since = residence.since if residence.waits_since is None else residence.waits_since
        return CardTurn(
            since=offset + since if since else 0.0,
            due=None if residence.due is None else offset + residence.due,
            behind=residence.behind,
            switches=residence.switches,
            moved_out=residence.moved_out,
            moved_in=residence.moved_in,
            drain=residence.drained_in,
        )

    def on(self, device: str) -> DeviceMoves:
        """Return what moves between a device and the host."""
        out, into, drain = self._machine.rates(device)
        moved_out, moved_in = self._machine.moved(device)
        return DeviceMoves(moved_out=moved_out, moved_in=moved_in, rate_out=out, rate_in=into, drain=drain)
