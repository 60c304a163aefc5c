"""What single allocations processes hold: asked of them when somebody wants to know (decision 40)."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final

from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import Session
from convgpu.logs.printable import printable
from convgpu.protocol.inspection import records
from convgpu.protocol.inspection.messages import UNKNOWN, List, Listed, ListedRow
from convgpu.protocol.wire import PageAble

TIMEOUT: Final = 2.0  # seconds for all processes together
_LEAST: Final = 16  # rows of each process, however many there are


@dataclass(slots=True)
class _Question:
    """A question to one process.

    Attributes:
        most: rows that were asked for; no more are kept.
        done: whether the last part came.
    """

    most: int
    rows: list[ListedRow] = field(default_factory=list)
    count: int = 0
    size: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)


class AllocationLister:
    """Asks processes for their live allocations.

    A process can neither hold up the answer nor make it long: it has a time, and a number of rows.
    """

    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry
        self._next = random.SystemRandom().randrange(1, 1 << 32)
        self._open: dict[tuple[int, int], _Question] = {}  # by session and id

    async def ask(self, container: str, most: int) -> records.Allocations:
        """Return what the processes of a container say; those that do not answer in time are `silent`."""
        sessions = self._registry.of(container)
        share = max(most // max(len(sessions), 1), _LEAST)
        questions = [(session, self._put(session, share)) for session in sessions]
        waits = [asyncio.ensure_future(question.done.wait()) for _, (_, question) in questions if question is not None]
        if waits:
            await asyncio.wait(waits, timeout=TIMEOUT)
        for wait in waits:
            wait.cancel()
        for session, (number, _) in questions:
            self._open.pop((session.number, number), None)
        return records.Allocations(tuple(self._describe(session, question) for session, (_, question) in questions))

    def _put(self, session: Session, most: int) -> tuple[int, _Question | None]:
        """Send a question, unless the process's library is too old for it."""
        self._next += 1
        if not session.page.is_able(PageAble.LIST):
            return self._next, None
        question = _Question(most)
        self._open[session.number, self._next] = question
        session.connection.send(List(most), self._next)
        return self._next, question

    def receive(self, session: Session, request: int, part: Listed) -> None:
        """Take a part of an answer. One that nobody waits for any more is dropped."""
        question = self._open.get((session.number, request))
        if question is None or question.done.is_set():
            return
        question.rows += part.rows[: question.most - len(question.rows)]
        question.count, question.size = part.count, part.size
        if not part.more:
            question.done.set()

    def _describe(self, session: Session, question: _Question | None) -> records.ProcessAllocations:
        listed = question is not None and question.done.is_set()
        rows = question.rows if question is not None and listed else []
        return records.ProcessAllocations(
            pid=session.pid,
            program=session.program,
            answer="unable" if question is None else "listed" if listed else "silent",
            count=question.count if question is not None and listed else 0,
            size=question.size if question is not None and listed else 0,
            usage=sum(self._registry.used_by(session, uuid) for uuid in session.rows)
            if session.number in self._registry.by_number
            else 0,
            allocations=tuple(_allocation(session, row) for row in rows),
        )


def _allocation(session: Session, row: ListedRow) -> records.Allocation:
    """Return a row as it is shown; whatever a process wrote there is only text and numbers."""
    return records.Allocation(
        call=printable(row.call),
        uuid=session.rows[row.device] if row.device < len(session.rows) else "",
        address=row.address,
        size=row.size,
        age=None if row.age == UNKNOWN else row.age,
    )
