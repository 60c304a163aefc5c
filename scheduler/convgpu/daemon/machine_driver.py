"""The driver of the machine: queues events, lets the machine handle them one at a time, and keeps its timer.

What effects mean for processes is the performer's business (sessions/effects.py); the driver only keeps the order.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from convgpu.core import events as e
from convgpu.core.allocation.wait_reasons import Wait
from convgpu.core.events import SlotKey
from convgpu.core.machine import Machine
from convgpu.core.step import Step

log = logging.getLogger(__name__)


class Performer(Protocol):
    """Carries effects out."""

    def perform(self, effect: e.Effect) -> None:
        """Carry out one effect. It may dispatch events, which wait until the current one is handled."""

    def take_headroom(self, slots: Sequence[SlotKey]) -> tuple[tuple[SlotKey, int], ...]:
        """Take the headroom out of these slots, and return each with what it held, in bytes."""


Record = Callable[[float, e.Event, Step | Exception], None]  # at the time of the event, with its outcome


def record_nothing(now: float, event: e.Event, outcome: Step | Exception) -> None:
    """Record no events."""


class MachineDriver:
    """The only caller of `Machine.handle`.

    When an event or one of its effects fails, effects are lost and the ledger may be wrong: nothing is handled any
    more, and `on_failure` is called. The next scheduler learns the truth from the processes.

    Args:
        machine: to drive; nobody else may change it.
        performer: carries its effects out.
        on_failure: called once, when an event could not be handled.
        record: called with each event before its effects are carried out.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        machine: Machine,
        performer: Performer,
        on_failure: Callable[[], None],
        record: Record = record_nothing,
    ) -> None:
        self.machine = machine
        self._loop = loop
        self._performer = performer
        self._on_failure = on_failure
        self._record = record
        self._queue: deque[Callable[[], e.Event]] = deque()
        self._busy = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._last_number = 0

    def next_number(self) -> int:
        """Return a number for a session or a request that was never given before."""
        self._last_number += 1
        return self._last_number

    def dispatch(self, event: e.Event) -> None:
        """Let the machine handle an event, after those that are queued."""
        self.dispatch_deferred(lambda: event)

    def dispatch_deferred(self, make_event: Callable[[], e.Event]) -> None:
        """As `dispatch`, but the event is made only when its turn comes.

        An effect can end a connection, which is an event of its own: it is queued until the current one is handled.
        """
        if self._stopped:
            return
        self._queue.append(make_event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue:
                self._handle(self._queue.popleft()())
        except Exception:
            log.critical("the ledger is not to be trusted any more", exc_info=True)
            self.stop()
            self._on_failure()
        finally:
            self._busy = False
        self._set_timer()

    def _handle(self, event: e.Event) -> None:
        """Handle an event, and at once the answer to what the machine then needs to know: nothing may come between."""
        due: e.Event | None = event
        while due is not None:
            step = self._decide(due, self._loop.time())
            for effect in step.effects:
                self._performer.perform(effect)
            due = None if step.needs is None else e.HeadroomTaken(self._performer.take_headroom(step.needs.slots))

    def _decide(self, event: e.Event, now: float) -> Step:
        try:
            step = self.machine.handle(event, now)
        except Exception as error:
            self._record(now, event, error)
            raise
        self._record(now, event, step)
        return step

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.machine.next_deadline()
        if deadline is not None:
            delay = max(deadline - self._loop.time(), 0.0)
            self._timer = self._loop.call_later(delay, self.dispatch, e.TimePassed())

    def explain(self, *, behind: bool = True) -> dict[int, Wait]:
        """Return why each waiting allocation waits, by the number of its request; `behind`: and for whom."""
        return self.machine.explain(self._loop.time(), behind=behind)

    def explain_one(self, container: str, request: int) -> Wait | None:
        """Return why one allocation of a container waits; None if it does not."""
        return self.machine.explain_one(container, request, self._loop.time())

    def stop(self) -> None:
        """Handle no further event: connections that close from now on belong to processes that live on."""
        self._stopped = True
