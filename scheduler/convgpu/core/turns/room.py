"""How much of each card is free, and how much could be: an index of what may leave, kept up to date by container."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from math import inf

from convgpu.core.residency.quantum import switch_seconds
from convgpu.core.residency.state import Phase, Residence, SessionMemory, Sizes
from convgpu.core.state import State
from convgpu.policies.eviction import Victim


class VictimClass(IntEnum):
    """Why a container may leave, in the order in which they do."""

    PAUSED = 1  # an allocation of it waits: it loses nothing
    IDLE = 2
    PREEMPTED = 3  # its quantum is over


class Room:
    """The memory of each card, as of the last `refresh`.

    Attributes:
        movable: by device and container without a turn, bytes that may leave and were not told to.
        total: the sums of these.
        sizes: by elastic container and device, what may leave of it, whether or not it has its turn.
        running: by device, the elastic containers that run and have their turn, which may be taken: of each the number
            of the last refresh, which is another one whenever anything of the container has changed.
        refreshed: by device, the number of the last refresh of those, or of one that does not run there any more.
        beyond: by device, bytes that processes say are elsewhere beyond what is leased to them: no card has more room
            for that.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._ledger = state.ledger
        self._residency = state.residency
        self.movable: dict[str, Sizes] = {device: {} for device in state.residency.devices}
        self.total: Sizes = dict.fromkeys(state.residency.devices, 0)
        self.sizes: dict[str, Sizes] = {}
        self.running: dict[str, dict[str, int]] = {device: {} for device in state.residency.devices}
        self.refreshed: dict[str, int] = dict.fromkeys(state.residency.devices, 0)
        self._refreshes = 0
        self.beyond: Sizes = dict.fromkeys(state.residency.devices, 0)
        self._beyond_of: dict[str, Sizes] = {}

    # -- a device ----------------------------------------------------------------------------------------

    def card(self, device: str) -> int:
        """Return the bytes of the card that containers can have at all."""
        return self._ledger.usable[device] - self._ledger.pool[device]

    def free(self, device: str) -> int:
        """Return the bytes of the card that nobody uses; negative while facts have taken more than there is."""
        residency, leased = self._residency, self._ledger.leased[device]
        elsewhere = residency.out[device] + residency.saved[device] + residency.deferred[device]
        return self.card(device) - leased + elsewhere - residency.restoring[device] - self.beyond[device]

    def could_be_free(self, device: str) -> int:
        """Return the bytes that would be free if all that may leave had."""
        return self.free(device) + self._residency.evicting[device] + self.total[device]

    def may_leave(self, device: str, besides: str) -> bool:
        """Say whether memory of another container than `besides` could leave a device, now or later."""
        return any(sizes.get(device) for name, sizes in self.sizes.items() if name != besides)

    # -- a container -------------------------------------------------------------------------------------

    def movable_of(self, container: str) -> Sizes:
        """Return what may leave of a container by device, whether or not it has its turn."""
        residence = self._residency.containers.get(container)
        if residence is None:
            return {}
        deferred = self._deferred_of(container)
        found = [self._movable_of_session(container, residence, *able, deferred) for able in residence.able]
        return found[0] if len(found) == 1 else _add_up(found)

    def movable_by_session(self, container: str, device: str) -> dict[int, int]:
        """Return what may leave a device, by process of a container."""
        residence = self._residency.containers[container]
        deferred = self._deferred_of(container)
        return {
            number: self._movable_of_session(container, residence, number, memory, deferred).get(device, 0)
            for number, memory in residence.able
        }

    def _movable_of_session(
        self,
        container: str,
        residence: Residence,
        number: int,
        memory: SessionMemory,
        deferred: Mapping[tuple[int, str], int],
    ) -> Sizes:
        sizes: Sizes = {}
        if not memory.is_known or (residence.phase is Phase.STOPPED and not memory.is_stopped):
            return sizes
        for device, account in self._ledger.accounts[container].items():
            lease = account.leases.get(number, 0)
            if lease:
                fixed = self._fixed(residence, memory, device)
                fixed += memory.stuck.get(device, 0)
                away = memory.out.get(device, 0) + memory.evicting.get(device, 0) + memory.saved.get(device, 0)
                sizes[device] = max(lease - fixed - away - deferred.get((number, device), 0), 0)
        return sizes

    def runs_on(self, container: str) -> bool:
        """Say whether a process of an elastic container has memory on a card and has not said that it can be stopped.

        It never does if its hook is older than that. What waits for room is not on the card: who has no more runs
        nothing.
        """
        unable = [n for n, memory in self._residency.containers[container].sessions.items() if memory.mover is None]
        if not unable:
            return False
        deferred = self._deferred_of(container)
        return any(
            account.leases.get(number, 0) > deferred.get((number, device), 0)
            for device, account in self._ledger.accounts[container].items()
            for number in unable
        )

    @staticmethod
    def _fixed(residence: Residence, memory: SessionMemory, device: str) -> int:
        if memory.fixed is not None:
            return memory.fixed.get(device, 0)
        return residence.fixed.get(device, 0) // len(residence.sessions)

    def _deferred_of(self, container: str) -> dict[tuple[int, str], int]:
        sizes: dict[tuple[int, str], int] = {}
        for pending in self._state.containers[container].deferred.values():
            slot = (pending.event.session, pending.device)
            sizes[slot] = sizes.get(slot, 0) + pending.size
        return sizes

    def need(self, container: str) -> Sizes:
        """Return what a container needs on the card before it can run, and has not there or will not have."""
        need: Sizes = {}
        for pending in self._state.containers[container].deferred.values():
            need[pending.device] = need.get(pending.device, 0) + pending.size
        residence = self._residency.containers.get(container)
        for memory in residence.sessions.values() if residence else ():
            for sizes, sign in ((memory.out, 1), (memory.evicting, 1), (memory.saved, 1), (memory.restoring, -1)):
                for device, size in sizes.items():
                    need[device] = need.get(device, 0) + sign * size
        return need

    # -- stances -----------------------------------------------------------------------------------------

    def victim_class(self, container: str) -> VictimClass | None:
        """Return why a container may leave its devices, None if it may not."""
        residence = self._residency.containers[container]
        turn = self._residency.turns.get(container)
        if turn is not None and turn.is_admitted:
            return None
        if residence.phase is Phase.RUNNING and self._state.now < residence.busy_until:
            return None
        if residence.is_suspended or self._is_paused(container, residence):
            return VictimClass.PAUSED
        if residence.is_preempted:
            return VictimClass.PREEMPTED
        is_away = residence.phase is not Phase.RUNNING
        return VictimClass.IDLE if is_away or self._state.now >= residence.leaves_at else None

    def _leaves_at(self, residence: Residence, sizes: Sizes) -> float:
        """Return when an idle container has lost as much by staying as it would by leaving and coming back.

        So it never loses more than twice of what who knows the future would: it is the time to buy instead of to rent.
        """
        if residence.idle_since is None:
            return inf
        rates = self._residency.rates
        seconds = [switch_seconds(size, size, rates[device]) for device, size in sizes.items()]
        return residence.idle_since + max(seconds, default=0.0)

    def _is_paused(self, name: str, residence: Residence) -> bool:
        container = self._state.containers[name]
        return bool(container.deferred or container.pending) and not residence.works

    def victim(self, name: str, size: int) -> Victim:
        """Return a container as policies see it."""
        residence, container = self._residency.containers[name], self._state.containers[name]
        waiting = min((p.view.since for p in (*container.deferred.values(), *container.pending.values())), default=None)
        since = residence.idle_since if residence.idle_since is not None else waiting
        return Victim(name, container.order, size, residence.since if since is None else since, container.priority)

    # -- upkeep ------------------------------------------------------------------------------------------

    def refresh_container(self, name: str) -> None:
        """Compute anew what depends on one container."""
        self._drop(name)
        self.sizes.pop(name, None)
        residence = self._residency.containers.get(name)
        self._count_beyond(name, residence)
        if residence is not None:
            sizes = self.sizes[name] = self.movable_of(name)
            residence.leaves_at = self._leaves_at(residence, sizes)
            self._index(name, residence, sizes)

    def refresh_stance(self, name: str) -> None:
        """Compute anew what depends on turn and phase of one container, with what may leave of it as it was known."""
        self._drop(name)
        residence = self._residency.containers.get(name)
        if residence is not None:
            self._index(name, residence, self.sizes[name])

    def _drop(self, name: str) -> None:
        residency = self._residency
        self._refreshes += 1
        for device in self.sizes.get(name, ()):
            self.total[device] -= self.movable[device].pop(name, 0)
            if self.running[device].pop(name, None):
                self.refreshed[device] = self._refreshes
        for index in (residency.stopping, residency.suspended, residency.busy, residency.resting):
            index.pop(name, None)

    def _count_beyond(self, name: str, residence: Residence | None) -> None:
        """Count what processes say is elsewhere beyond what is leased to them.

        For a moment that is also what is freed while it is out, until the porter has said so.
        """
        for device, size in self._beyond_of.pop(name, {}).items():
            self.beyond[device] -= size
        memories = residence.sessions.items() if residence is not None else ()
        beyond = self._beyond_of[name] = {}
        for number, memory in memories:
            if any(memory.out.values()) or any(memory.saved.values()):
                self._add_beyond(name, number, memory, beyond)
        if not beyond:
            del self._beyond_of[name]
        for device, size in beyond.items():
            self.beyond[device] += size

    def _add_beyond(self, name: str, number: int, memory: SessionMemory, beyond: Sizes) -> None:
        deferred = self._deferred_of(name)
        for device, account in self._ledger.accounts[name].items():
            away = memory.out.get(device, 0) + memory.saved.get(device, 0) + deferred.get((number, device), 0)
            excess = away - account.leases.get(number, 0)
            if excess > 0:
                beyond[device] = beyond.get(device, 0) + excess

    def _index(self, name: str, residence: Residence, sizes: Sizes) -> None:
        residency = self._residency
        if residence.phase is Phase.STOPPING:
            residency.stopping[name] = None
        if residence.is_suspended:
            residency.suspended[name] = None
        if self._state.now < residence.busy_until:
            residency.busy[name] = None
        if residence.idle_since is not None and self._state.now < residence.leaves_at:
            residency.resting[name] = None
        if self.victim_class(name) is not None:
            for device, size in sizes.items():
                if size:
                    self.movable[device][name] = size
                    self.total[device] += size
        elif residence.phase is Phase.RUNNING and name not in residency.turns and name not in residency.busy:
            for device in sizes:
                self.running[device][name] = self.refreshed[device] = self._refreshes


def _add_up(found: Iterable[Sizes]) -> Sizes:
    sums: Sizes = {}
    for sizes in found:
        for device, size in sizes.items():
            sums[device] = sums.get(device, 0) + size
    return sums
