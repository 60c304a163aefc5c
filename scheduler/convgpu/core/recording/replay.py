"""Feeds a recording into a fresh machine and compares each of its steps with the recorded one."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.recording.format import Entry, Header, RecordingError, decode, entry_of


@dataclass(frozen=True)
class Difference:
    """The first entry whose step differs.

    Attributes:
        line: its number in the file, from 1.
        expected: the entry as it was recorded.
        actual: the entry as this machine makes it.
    """

    line: int
    expected: Entry
    actual: Entry


@dataclass
class Summary:
    """A replay so far.

    Attributes:
        lines: of the file.
        machines: headers; a scheduler that starts again goes on in the same file.
        seconds: that the recorded machines ran.
        difference: where the replay ended, None if nothing differs.
    """

    lines: int = 0
    machines: int = 0
    events: int = 0
    effects: int = 0
    containers: int = 0
    seconds: float = 0.0
    difference: Difference | None = None


@dataclass
class Replay:
    """A recording on its way through fresh machines. `checks`: whether the invariants are checked after each event."""

    checks: bool = True
    summary: Summary = field(default_factory=Summary)
    _machine: Machine | None = None
    _last: float | None = None  # when the machine's last event was, None before the first

    def play(self, lines: Iterable[bytes]) -> Summary:
        """Replay lines up to the first difference, or to their end.

        Raises:
            RecordingError: a line cannot be read or replayed; `summary` says how far the replay came.
        """
        for line in lines:
            self._play_line(decode(line))
            if self.summary.difference is not None:
                break
        if not self.summary.lines:
            raise RecordingError("the file is empty")
        return self.summary

    def _play_line(self, line: Header | Entry) -> None:
        if isinstance(line, Header):
            self._machine, self._last = line.make_machine(), None
            self.summary.machines += 1
        else:
            self._play_entry(line)
        self.summary.lines += 1

    def _play_entry(self, entry: Entry) -> None:
        if self._machine is None:
            raise RecordingError("an event stands before the first header")
        self.summary.seconds += entry.now - (entry.now if self._last is None else self._last)
        self._last = entry.now
        self.summary.events += 1
        self.summary.effects += len(entry.effects)
        self.summary.containers += isinstance(entry.event, e.ContainerCreated)
        actual = _handle(self._machine, entry, checks=self.checks)
        if actual != entry:
            self.summary.difference = Difference(self.summary.lines + 1, entry, actual)


def _handle(machine: Machine, entry: Entry, *, checks: bool) -> Entry:
    """Return the entry as this machine makes it. A broken invariant is its error, as in the daemon."""
    try:
        step = machine.handle(entry.event, entry.now)
        if checks and step.needs is None:
            machine.check_invariants(entry.now)
    except Exception as error:
        return entry_of(entry.now, entry.event, error)
    return entry_of(entry.now, entry.event, step)
