"""One device on which elastic containers take turns: events go in, and the effects that matter come out."""

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.residency import events as r
from convgpu.core.turns.views import ResidenceState
from convgpu.policies.memory import Fifo


class Card:
    """One device of 10 with as much host memory; containers `a`, `b` ... with one process each, and its number."""

    def __init__(self, pool: int = 10, switch_cost: float = 0.05, piece: int = 1) -> None:
        self.now = 0.0
        self.machine = Machine({"gpu": 10}, Fifo(), switch_cost=switch_cost)
        self.sessions = 0
        self.requests = 0
        self.headroom: dict[int, int] = {}
        self.watched: dict[int, bool] = {}
        self.send(r.PoolChanged("gpu", pool + 1, 1, piece))

    def send(self, event: e.Event) -> list[e.Effect]:
        """Return the effects but those on history, pages and watches, also of the answers that follow."""
        step = self.machine.handle(event, self.now)
        for effect in step.effects:
            if isinstance(effect, r.Watch):
                self.watched[effect.session] = effect.on
            if isinstance(effect, e.Lease):
                self.headroom[effect.session] = self.headroom.get(effect.session, 0) + effect.size
        effects = [x for x in step.effects if not isinstance(x, e.HistoryEntry | e.NotifyOnFree | e.Lease | r.Watch)]
        if step.needs is not None:
            taken = tuple((slot, self.headroom.pop(slot[0], 0)) for slot in step.needs.slots)
            return effects + self.send(e.HeadroomTaken(taken))
        self.machine.check_invariants(self.now)
        return effects

    def start(self, name: str, limit: int, *, elastic: bool = True, priority: int = 0) -> int:
        self.send(e.ContainerCreated(name, {"gpu": limit}, priority=priority))
        if elastic:
            self.send(r.ElasticSet(name, {"gpu": 0}))
        self.sessions += 1
        self.send(e.SessionStarted(self.sessions, name, {}))
        if elastic:
            self.send(r.SessionAble(self.sessions, r.Mover.VMM))
        return self.sessions

    def allocate(self, session: int, size: int) -> list[e.Effect]:
        self.requests += 1
        return self.send(e.AllocationRequested(session, self.requests, "gpu", size))

    def drain(self, session: int, epoch: int, waiting: int = 0) -> list[e.Effect]:
        return self.send(r.SessionStopped(session, epoch, r.StopOutcome.DRAINED, waiting))

    def due(self, name: str) -> float | None:
        view = self.machine.residence(name)
        assert view is not None
        return view.due

    def state(self, name: str) -> ResidenceState:
        view = self.machine.residence(name)
        assert view is not None
        return view.state
