"""Elastic processes: what they and the porter say, as events; what the machine wants of them, as frames."""

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from convgpu.core.residency import events as r
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.residency.host_pool import HostPool
from convgpu.daemon.residency.orders import ORDER_ID, Order, message_of
from convgpu.daemon.residency.porter import Porter
from convgpu.daemon.residency.rates import TransferRates
from convgpu.daemon.residency.transfers import Transfers
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.system.procfs import has_ended
from convgpu.protocol.residency import messages as m
from convgpu.protocol.residency import porter as p
from convgpu.protocol.uuids import uuid_text
from convgpu.protocol.wire import AbleFlag, Mover, Outcome

log = logging.getLogger(__name__)

MOST_EPOCH: Final = 1 << 63
"""No scheduler's stops have such numbers; beyond, the next one would fit no frame."""

_OUTCOMES: Final = {
    Outcome.DRAINED: r.StopOutcome.DRAINED,
    Outcome.BUSY: r.StopOutcome.BUSY,
    Outcome.CAPTURING: r.StopOutcome.CAPTURING,
}


@dataclass(slots=True)
class Elastic:
    """What is known of one elastic process beside the machine.

    Attributes:
        session: of the process.
        out, inwards: what is on its way.
        fixed: by device, what cannot leave, as it said last.
        checkpoint: what the porter was told to have the driver do, and has not answered.
        most: bytes that it may have on the host, as the porter knows it.
        stopping: epoch of a Stop or Step without an answer, 0 without one; `asked_at`: when the last one was sent.
        is_new: it has said nothing but ABLE.
        can_watch: it answers WATCH.
        idle_since: when it worked last, on the clock of the events; None while it works, or is not asked.
    """

    session: Session
    out: Transfers = field(default_factory=Transfers)
    inwards: Transfers = field(default_factory=Transfers)
    fixed: Mapping[str, int] = field(default_factory=dict)
    stopping: int = 0
    asked_at: float = 0.0
    is_new: bool = True
    can_watch: bool = False
    idle_since: float | None = None
    checkpoint: r.Checkpoint | r.RestoreCheckpoint | None = None
    most: int = 0


class ElasticSessions:
    """All elastic processes by the number of their session.

    Args:
        driver: handles the events.
        sessions: all that are connected.
        pool: the plan for the host's memory.
        clock: of the events.
    """

    def __init__(
        self, driver: MachineDriver, sessions: SessionRegistry, pool: HostPool, clock: Callable[[], float]
    ) -> None:
        self._clock = clock
        self._rates = TransferRates()
        self._driver = driver
        self._sessions = sessions
        self._pool = pool
        self._known: dict[int, Elastic] = {}
        self._porter: Porter | None = None
        self._asked: int | None = None  # bytes of host memory, of this porter
        self.host_memory = p.Pooled(0, 0)

    def use(self, porter: Porter) -> None:
        """Move memory by this porter from now on."""
        self._porter = porter

    def host_pool(self, device: str) -> tuple[int, int]:
        """Return the host memory that is there for what leaves a device, and what of it may be granted, in bytes."""
        share, slack = self._pool.share(device, self.host_memory.size)
        return share, share - slack

    def planned(self, device: str) -> int:
        """Return the host memory that there may be for a device, in bytes, whether or not it is taken."""
        return self._pool.share(device, self._pool.size)[0]

    def copies_of(self, pid: int, started: int) -> Mapping[str, int] | None:
        """Return the bytes of complete copies of a process on the host, by device; None if nobody can tell."""
        try:
            return {} if self._porter is None else self._porter.copies_of(pid, started)
        except OSError as error:
            log.error("the index of the host's copies cannot be read: %s", error)
            return None

    # -- what processes say ----------------------------------------------------------------------------------

    def receive(self, session: Session, message: m.ResidencyMessage) -> bool:
        """Handle what a process says; False if it may not say that here."""
        if isinstance(message, m.Able):
            return self._enable(session, message)
        known = self._known.get(session.number)
        if known is None:
            return False
        is_first, known.is_new = known.is_new, False
        match message:
            case m.Run():
                self._driver.dispatch(r.RunWanted(session.container))
            case m.State(epoch=epoch) if epoch < MOST_EPOCH:
                self._note_state(known, message, is_first=is_first)
            case m.Idle():
                self._note_idle(known, message)
            case m.Stopped(epoch=epoch, outcome=outcome) if outcome in _OUTCOMES:
                known.stopping = 0 if known.stopping == epoch else known.stopping
                seconds = min(message.nanoseconds / 1e9, self._clock() - known.asked_at)
                kind = _OUTCOMES[Outcome(outcome)]
                event = r.SessionStopped(session.number, epoch, kind, message.waiting, seconds, known.fixed)
                self._driver.dispatch(event)
            case m.Evicted() | m.Restored() if message.device < len(session.rows):
                self._note_moved(known, session.rows[message.device], message)
            case _:
                return False
        return True

    def _enable(self, session: Session, message: m.Able) -> bool:
        if not session.is_elastic or message.mover != Mover.VMM:
            return False
        self._prune()
        can_watch = bool(message.flags & AbleFlag.IDLE)
        known = self._known[session.number] = Elastic(session, can_watch=can_watch)
        self._driver.dispatch(r.SessionAble(session.number, r.Mover.VMM))
        if self._porter is None:
            return True
        if not self._porter.runs:
            self._porter.start()  # brings all that are known
            return True
        self._fit()
        self._bring(self._porter, known)
        return True

    def _note_state(self, known: Elastic, message: m.State, *, is_first: bool) -> None:
        """Note where memory is. Only a state that was not asked for by a Stop is news to the machine.

        The first one was said before the process had its carrier: what has been copied since is not in it, and the
        porter may have been heard before.
        """
        rows = {uuid_text(row.device): row for row in message.rows if uuid_text(row.device) in known.session.rows}
        known.fixed = {uuid: row.fixed for uuid, row in rows.items()}
        if known.stopping == message.epoch and message.epoch:
            return
        out = self._bound_out(known, {uuid: row.out for uuid, row in rows.items()}, is_first=is_first)
        if not is_first:
            known.out.forget()
            known.inwards.forget()
        event = r.SessionState(known.session.number, message.epoch, open=bool(message.open), out=out, fixed=known.fixed)
        self._driver.dispatch(event)
        self._allow(known)

    def _bound_out(self, known: Elastic, claim: Mapping[str, int], *, is_first: bool) -> Mapping[str, int]:
        """Return what a process says is out, as far as the porter has copies of it (decision 160).

        When it connects the porter's index says what there is of it; later our books do. What the porter reports
        meanwhile is read after the index, so that a copy that moves just then counts once at least.
        """
        if self._porter is None or not any(claim.values()):
            return claim
        session = known.session
        copies = self.copies_of(session.pid, session.started) if is_first else self._booked(session)
        if copies is None:  # for want of descriptors, say: what is out has to come back
            return claim
        self._porter.read()
        believed = {}
        for uuid, size in claim.items():
            booked = copies.get(uuid, 0)
            believed[uuid] = min(size, booked + known.out.copied[uuid] + known.inwards.copied[uuid])
            if believed[uuid] < size:
                log.warning(
                    "pid %d says that %d bytes are on the host; the porter has %d", session.pid, size, believed[uuid]
                )
        return believed

    def _booked(self, session: Session) -> Mapping[str, int]:
        return {uuid: self._driver.machine.on_host(session.number, uuid)[0] for uuid in session.rows}

    def _note_idle(self, known: Elastic, message: m.Idle) -> None:
        """A container is idle while all its processes are."""
        known.idle_since = self._clock() - message.nanoseconds / 1e9 if message.idle else None
        name = known.session.container
        times = [other.idle_since for other in self._known.values() if other.session.container == name]
        since = [time for time in times if time is not None]
        is_idle = len(since) == len(times)
        self._driver.dispatch(r.Idle(name, max(since)) if is_idle else r.Busy(name))

    def _note_moved(self, known: Elastic, device: str, message: m.Evicted | m.Restored) -> None:
        if self._porter is not None:
            self._porter.read()
        number = known.session.number
        if isinstance(message, m.Evicted):
            moved, missing = known.out.answer(device, message.size, ended=bool(message.ended), epoch=message.epoch)
            self._driver.dispatch(r.Evicted(number, device, moved, missing))
            self._allow(known)
            self._note_rate(known.out, device, inwards=False)
        else:
            moved, _ = known.inwards.answer(device, message.size, ended=False)
            known.inwards.end_moved(device)
            missing = known.inwards.end_all(device) if message.refused else 0
            self._driver.dispatch(r.Restored(number, device, moved, missing))
            self._note_rate(known.inwards, device, inwards=True)

    def _note_rate(self, way: Transfers, device: str, *, inwards: bool) -> None:
        """Say at the end of an order how fast memory moved."""
        rate = self._rates.take(device, inwards=inwards) if way.is_idle(device) else 0.0
        if rate:
            self._driver.dispatch(r.SwitchMeasured(device, 0.0 if inwards else rate, rate if inwards else 0.0))

    # -- what the machine wants ------------------------------------------------------------------------------

    def perform(self, order: Order | r.Checkpoint | r.RestoreCheckpoint) -> None:
        """Tell a process what to do."""
        known = self._known.get(order.session)
        if known is None:
            return
        if isinstance(order, r.Checkpoint | r.RestoreCheckpoint):
            known.checkpoint = order
            self._order_checkpoint(known)
            return
        if isinstance(order, r.Watch) and not known.can_watch:
            return
        if isinstance(order, r.Stop | r.Watch):
            known.idle_since = None
        if isinstance(order, r.Stop | r.Step):
            known.stopping = order.epoch
            known.asked_at = self._clock()
            if isinstance(order, r.Stop) and not self._pool.is_promised:
                self._fit()  # its limit may have been raised since
        elif isinstance(order, r.Evict):
            known.out.ask(order.device, order.size, order.epoch)
            self._allow(known)  # before it hears of the order
        elif isinstance(order, r.Restore):
            known.inwards.ask(order.device, order.size, order.epoch)
        known.session.connection.send(message_of(order, known.session), ORDER_ID)

    def _order_checkpoint(self, known: Elastic) -> None:
        """Pass an order on that has no answer; without a porter the next one gets it."""
        if self._porter is not None and known.checkpoint is not None:
            is_restore = isinstance(known.checkpoint, r.RestoreCheckpoint)
            self._porter.checkpoint(known.session.number, restore=is_restore)

    # -- what the porter says --------------------------------------------------------------------------------

    def greet(self) -> None:
        """Bring a new porter all processes that it needs to know."""
        self._prune()
        self._asked = None
        if self._porter is None:
            return
        self._porter.rest(self._is_used)
        if not self._known:  # what an earlier scheduler left stays for those that have not come yet
            return
        self._fit()
        for known in self._known.values():
            self._bring(self._porter, known)
            self._order_checkpoint(known)

    def report(self, report: p.PorterReport) -> None:
        """Handle what the porter says."""
        match report:
            case p.Pooled():
                self._resize(report)
            case p.Moved(session=number) | p.Dropped(session=number) | p.Checkpointed(session=number):
                if (known := self._known.get(number)) is not None:
                    self._note_of_process(known, report)
            case p.Broken(session=number):
                log.warning("a process spoke nonsense to the porter, or did not listen: session %d", number)
                if self._porter is not None and (known := self._known.get(number)) is not None:
                    self._bring(self._porter, known)
            case p.Gone():
                if not self._is_used() and self._porter is not None:
                    self._porter.rest(self._is_used)

    def _note_of_process(self, known: Elastic, report: p.Moved | p.Dropped | p.Checkpointed) -> None:
        match report:
            case p.Moved(device=row):
                self._count_copy(known, known.session.rows[row], report)
            case p.Dropped(session=number, device=row, size=size):
                self._driver.dispatch(r.Discarded(number, known.session.rows[row], size))
            case p.Checkpointed():
                self._note_checkpoint(known, report)

    def _count_copy(self, known: Elastic, device: str, report: p.Moved) -> None:
        way = known.inwards if report.inwards else known.out
        way.copied[device] += report.size
        self._rates.add(device, report.size, report.nanoseconds, inwards=report.inwards)

    def _note_checkpoint(self, known: Elastic, report: p.Checkpointed) -> None:
        number, failed = known.session.number, bool(report.error)
        if failed:
            log.error(
                "the driver's checkpoint of %s (pid %d) failed with error %d: what could not move stays as it is",
                known.session.container,
                known.session.pid,
                report.error,
            )
        known.checkpoint = None
        event = r.CheckpointRestored if report.restored else r.CheckpointTaken
        self._driver.dispatch(event(number, failed))

    def _resize(self, report: p.Pooled) -> None:
        if report.error and report.error != self.host_memory.error:
            reason = os.strerror(report.error)
            log.error("the host gives %d of %d MiB: %s", report.size >> 20, self._pool.size >> 20, reason)
        changed = report.size != self.host_memory.size
        self.host_memory = report
        for device in self._pool.capacity if changed else ():
            share, slack = self._pool.share(device, report.size)
            self._driver.dispatch(r.PoolChanged(device, share, slack, p.PIECE_SIZE))

    def _bring(self, porter: Porter, known: Elastic) -> None:
        """Give a process a carrier to this porter.

        It asks again for what had no answer. What had one it may tell us later, so what was copied before counts.
        """
        known.most = self._most(known)
        carrier = porter.bring(known.session, known.most)
        if carrier is not None:
            with carrier:
                known.session.connection.send(m.Carrier(p.VERSION), ORDER_ID, descriptor=carrier.fileno())

    def _allow(self, known: Elastic) -> None:
        """Have the porter take no more of a process than it was told to put out."""
        most = self._most(known)
        if self._porter is not None and most != known.most:
            known.most = most
            self._porter.allow(known.session.number, most)

    def _most(self, known: Elastic) -> int:
        """Return the bytes that a process may have on the host: nothing more without an order.

        An order is of so many bytes at least: less than a piece may come beyond.
        """
        orders, left = known.out.ordered()
        return sum(self._booked(known.session).values()) + left + orders * p.PIECE_SIZE if orders else 0

    def _fit(self) -> None:
        """Ask for as much host memory as those that are there may need."""
        size = self._pool.size if self._pool.is_promised else self._pool.needed(self._limits())
        size = size if self._known else 0
        if self._porter is not None and size != self._asked:
            self._asked = size
            self._porter.resize(size)

    def _limits(self) -> Mapping[str, int]:
        limits: Counter[str] = Counter()
        for container in {known.session.container for known in self._known.values()}:
            limits.update({uuid: row.limit for uuid, row in self._driver.machine.accounts(container).items()})
        return limits

    def _is_used(self) -> bool:
        """Say whether a process is there for which the porter has to be, and take no more host memory than that."""
        self._prune()
        self._fit()
        return bool(self._known)

    def _prune(self) -> None:
        """Forget processes that have ended or have another session.

        The porter may say that the last one has ended before its session has: nobody would give the host's memory back.
        """
        self._known = {number: known for number, known in self._known.items() if self._lives(known.session)}

    def _lives(self, session: Session) -> bool:
        ended = session.process is not None and has_ended(session.process)
        return session.number in self._sessions.by_number and not ended


OrderSink = Callable[[Order | r.Checkpoint | r.RestoreCheckpoint], None]
