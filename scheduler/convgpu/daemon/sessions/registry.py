"""Processes that are connected, and the one place where events enter the machine and its effects leave."""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from convgpu.core import events as e
from convgpu.core.allocation.wait_reasons import Wait
from convgpu.core.machine import Machine
from convgpu.core.step import Step
from convgpu.daemon.storage.history import History
from convgpu.daemon.transport.connection import Absent, Connection
from convgpu.daemon.transport.shared_page import Page
from convgpu.protocol.messages import Accepted, Rejected
from convgpu.protocol.wire import Reason

log = logging.getLogger(__name__)

_REASON: Final = {
    e.RejectReason.LIMIT: Reason.LIMIT,
    e.RejectReason.DEADLINE: Reason.DEADLINE,
    e.RejectReason.DEVICE: Reason.DEVICE,
}


@dataclass(slots=True, eq=False)
class Session:
    """One process. `rows`: device UUIDs in the order of its WELCOME; `since`: Unix seconds.

    `process`: a pidfd, or None when the pid is not visible here; `own_pid`: as the process sees itself. See `host` for
    `started`, `ids` (of containers), `namespace` (of pids) and `pids` (in namespaces).
    """

    number: int
    container: str
    connection: Connection | Absent
    page: Page
    rows: Sequence[str]
    program: str
    since: float
    process: int | None = None
    started: int = 0
    ids: Sequence[str] = ()
    namespace: int | None = None
    pids: Sequence[int] = ()
    own_pid: int = 0
    open_requests: int = 0

    @property
    def pid(self) -> int:
        """As we see it; 0 when it is not visible here."""
        return self.connection.pid

    def take_headroom(self) -> dict[str, int]:
        """Take all the words hold, and return how much it was, per device.

        Taken and not only read: a process that lives on cannot use what counts as free from now on.
        """
        return {uuid: self.page.take_all(row) for row, uuid in enumerate(self.rows)}


@dataclass(frozen=True, slots=True)
class Asked:
    """An allocation whose answer is due: where it goes, and for people which call it was."""

    session: Session
    frame: int
    device: str
    call: str
    since: float


def _used(session: Session, device: str, lease: int) -> int:
    return max(lease - session.page.read(session.rows.index(device)), 0)


def _nobody_watches(_number: int, process: int | None, _used: Mapping[str, int]) -> None:
    if process is not None:
        os.close(process)


class Sessions:
    """Feeds the machine and carries out what it wants done.

    `on_limit` gets container, device, limit and pending target (or None) when one of them changed.
    `on_ended` gets each session that ended for good.
    `on_left_behind` gets number, pidfd (to close) and bytes per device of a session that ended using memory.
    `on_broken` is called when an event could not be handled; nothing is handled any more.

    Args:
        clock: monotonic seconds.
        wall_clock: Unix seconds.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        machine: Machine,
        history: History,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self.machine = machine
        self.history = history
        self.sessions: dict[int, Session] = {}
        self.asked: dict[int, Asked] = {}
        self.on_broken: Callable[[], None] = lambda: None
        self.on_ended: Callable[[Session], None] = lambda _: None
        self.on_limit: Callable[[str, str, int, int | None], None] = lambda *_: None
        self.on_left_behind: Callable[[int, int | None, Mapping[str, int]], None] = _nobody_watches
        self._loop = loop
        self._clock = clock
        self._wall_clock = wall_clock
        self._queue: deque[Callable[[], e.Event]] = deque()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._numbers = 0
        self._ending: Session | None = None  # the last one that ended, for its records
        self._freed: set[tuple[int, str]] = set()
        self._stopped = False

    def number(self) -> int:
        """Return a number for a session or request that was never given before."""
        self._numbers += 1
        return self._numbers

    # -- events in ---------------------------------------------------------------------------------------

    def dispatch(self, event: e.Event) -> None:
        """Let the machine handle an event, after those that are being handled."""
        self.dispatch_deferred(lambda: event)

    def dispatch_deferred(self, event: Callable[[], e.Event]) -> None:
        """As `dispatch`; the event is made when its turn comes.

        Carrying out an effect can end a connection, which is an event of its own: it waits here, because nothing
        may come between TakeHeadroom and its answer.
        """
        if self._stopped:
            return
        self._queue.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue:
                self._carry_out(self.machine.handle(self._queue.popleft()(), self._clock()))
        except Exception:
            # Effects are lost and the ledger may be wrong: the next scheduler learns the truth from the processes.
            log.critical("the ledger is not to be trusted any more", exc_info=True)
            self.stop()
            self.on_broken()
        finally:
            self._busy = False
        self._set_timer()

    def stop(self) -> None:
        """Handle nothing more: the connections that are closed now belong to processes that go on."""
        self._stopped = True

    def find(self, container: str, pid: int, started: int) -> Session | None:
        """Return the session of a process that is seen by its pid, and that no other has taken over since."""
        same = (one for one in self.of(container) if pid and (one.pid, one.started) == (pid, started))
        return next(same, None)

    def resume(self, session: Session, former: Session, held: dict[str, int]) -> None:
        """Let a process whose connection was lost go on; `held`: what it uses, per device."""
        self.sessions[session.number] = session
        self._forget(former)
        if former.process is not None:
            os.close(former.process)
        self.tell(session.container)
        late = isinstance(former.connection, Absent)
        self.dispatch(e.SessionReconnected(session.number, former.number, held, late))

    def open(self, session: Session, held: Mapping[str, int]) -> None:
        """Add a session that was welcomed; `held`: what it uses already, per device."""
        self.sessions[session.number] = session
        self.history.add("started", session.container, self._cause(session), pid=session.pid, program=session.program)
        self.tell(session.container)
        self.dispatch(e.SessionStarted(session.number, session.container, held))

    def tell(self, container: str) -> None:
        """Put into the pages of a container's processes its limits, and whether there is only one of them.

        Before another process is welcomed: one that is alone answers questions about memory by itself.
        """
        sessions = self.of(container)
        accounts = self.machine.ledger.accounts[container]
        for session in sessions:
            for row, uuid in enumerate(session.rows):
                session.page.publish_limit(row, accounts[uuid].limit, alone=len(sessions) == 1)

    def ask(self, session: Session, frame: int, row: int, size: int, call: str) -> None:
        """Pass an ALLOCATE on; its answer goes out under the frame's id."""
        request = self.number()
        session.open_requests += 1
        device = session.rows[row] if row < len(session.rows) else ""
        self.asked[request] = Asked(session, frame, device, call, self._wall_clock())
        self.dispatch(e.AllocationRequested(session.number, request, device, size))

    def refuse(self, session: Session, frame: int, device: str, size: int, call: str) -> None:
        """Refuse what the driver refused: waiting would not help. The machine has not heard of it."""
        account = self.machine.ledger.accounts[session.container][device]
        used = self.used(session.container, device)
        session.connection.send(Rejected(Reason.DRIVER, account.limit, used), frame)
        fields = {"uuid": device, "size": size, "pid": session.pid, "program": session.program, "call": call}
        self.history.add("rejected", session.container, self._cause(session), reason="driver", **fields)

    def freed(self, session: Session, device: str) -> None:
        """Pass FREED on, once for all that come in one go."""
        if not self._freed:
            self._loop.call_soon(self._pass_freed)
        self._freed.add((session.number, device))

    def _pass_freed(self) -> None:
        freed, self._freed = self._freed, set()
        for number, device in freed:
            if number in self.sessions:
                self.dispatch(e.MemoryFreed(number, device))

    def end(self, session: Session) -> None:
        """The process of a session is gone."""
        if session.number in self.sessions:
            self.dispatch_deferred(lambda: self._ended(session))

    def _forget(self, session: Session) -> None:
        del self.sessions[session.number]
        for request in [number for number, asked in self.asked.items() if asked.session is session]:
            del self.asked[request]

    def _ended(self, session: Session) -> e.SessionEnded:
        self._forget(session)
        self.tell(session.container)
        self.on_ended(session)
        self._ending = session
        headroom = session.take_headroom()
        leases = {uuid: self._lease(session, uuid) for uuid in session.rows}
        used = {uuid: lease - headroom[uuid] for uuid, lease in leases.items() if lease > headroom[uuid]}
        if used:
            self.on_left_behind(session.number, session.process, used)
        elif session.process is not None:
            os.close(session.process)
        return e.SessionEnded(session.number, headroom)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.machine.next_deadline()
        if deadline is not None:
            delay = max(deadline - self._clock(), 0.0)
            self._timer = self._loop.call_later(delay, self.dispatch, e.TimePassed())

    # -- effects out -------------------------------------------------------------------------------------

    def _carry_out(self, step: Step) -> None:
        for effect in step.effects:
            self._perform(effect)
        if step.needs is not None:
            taken = tuple((slot, self._take(*slot)) for slot in step.needs.slots)
            self._queue.appendleft(lambda: e.HeadroomTaken(taken))

    def _perform(self, effect: e.Effect) -> None:
        match effect:
            case e.Accept(_, request, size, settling):
                asked = self.asked[request]
                asked.session.connection.send(Accepted(size, settling), asked.frame)
            case e.Reject(_, request, refusal):
                self._reject(self.asked[request], refusal)
            case e.Lease(number, device, size):
                session = self.sessions[number]
                session.page.lease(session.rows.index(device), size)
            case e.NotifyOnFree(number, device, armed):
                session = self.sessions[number]
                session.page.arm(session.rows.index(device), armed=armed)
            case e.LimitInForce(container, device, limit, target):
                self.tell(container)
                self.on_limit(container, device, limit, target)
            case e.HistoryEntry():
                self._record(effect)

    def _reject(self, asked: Asked, refusal: e.RejectReason) -> None:
        container = asked.session.container
        account = self.machine.ledger.accounts[container].get(asked.device)
        limit, used = (account.limit, self.used(container, asked.device)) if account else (0, 0)
        asked.session.connection.send(Rejected(_REASON[refusal], limit, used), asked.frame)

    def _take(self, number: int, device: str) -> int:
        session = self.sessions[number]
        return session.page.take_all(session.rows.index(device))

    def _record(self, happened: e.HistoryEntry) -> None:
        """Write the history; an answered request is forgotten here, at its last record."""
        asked = self.asked.get(happened.request)
        session = asked.session if asked else self._ending
        waited = None if happened.waited is None else round(happened.waited, 3)
        cause = f"s{happened.session}.r{happened.request}" if happened.request else f"s{happened.session}"
        fields = {
            "uuid": happened.device,
            "size": happened.size,
            "pid": session.pid if session else None,
            "program": session.program if session else None,
            "call": asked.call if asked else None,
            "reason": happened.reason,
            "waited": waited,
        }
        self.history.add(happened.kind, happened.container, cause, **fields)
        if asked and happened.kind is not e.HistoryKind.PAUSED:
            asked.session.open_requests -= 1
            del self.asked[happened.request]

    @staticmethod
    def _cause(session: Session) -> str:
        return f"s{session.number}"

    # -- views -------------------------------------------------------------------------------------------

    def explain(self) -> dict[int, Wait]:
        """Return why each waiting allocation waits, by the number of its request."""
        return self.machine.explain(self._clock())

    def used(self, container: str, device: str) -> int:
        """Return what the container's processes use on a device: leases less headrooms, in bytes."""
        account = self.machine.ledger.accounts.get(container, {}).get(device)
        if account is None or not account.leases:
            return 0
        return sum([_used(self.sessions[number], device, lease) for number, lease in account.leases.items()])

    def used_on(self, device: str) -> int:
        """Return what all containers use on a device, in bytes."""
        return sum(self.used(container, device) for container in self.machine.ledger.accounts)

    def used_by(self, session: Session, device: str) -> int:
        """Return what one process uses on a device, in bytes. A word that says more than was leased says nothing."""
        return _used(session, device, self._lease(session, device))

    def _lease(self, session: Session, device: str) -> int:
        return self.machine.ledger.accounts[session.container][device].leases.get(session.number, 0)

    def of(self, container: str) -> list[Session]:
        """Return the container's sessions, oldest first."""
        return [session for session in self.sessions.values() if session.container == container]

    def by_container(self) -> dict[str, list[Session]]:
        """Return all sessions, oldest first, by their container."""
        grouped: dict[str, list[Session]] = {}
        for session in self.sessions.values():
            grouped.setdefault(session.container, []).append(session)
        return grouped
