"""A recording in a fresh machine: equal steps, the first difference, and recordings that cannot be replayed."""

import msgspec
import pytest

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.recording.format import Entry, Header, RecordingError, decode, encode, entry_of
from convgpu.core.recording.replay import Replay

HEADER = Header("0.1.0", {"gpu": 16}, "fifo", 1, 60.0, recovering=False)
EVENTS = [
    e.ContainerCreated("a", {"gpu": 12}),
    e.ContainerCreated("b", {"gpu": 12}),
    e.SessionStarted(1, "a", {}),
    e.SessionStarted(2, "b", {}),
    e.AllocationRequested(1, 3, "gpu", 10),
    e.AllocationRequested(2, 4, "gpu", 10),
    e.SessionEnded(1, {"gpu": 2}),
]


def record(machine: Machine, events: list[e.Event]) -> list[bytes]:
    """Return the entries of events at the seconds 5, 6, and so on; headrooms are always empty."""
    lines = []
    for now, event in enumerate(events, start=5):
        step = machine.handle(event, float(now))
        lines.append(encode(entry_of(float(now), event, step)))
        while step.needs is not None:
            answer = e.HeadroomTaken(tuple((slot, 0) for slot in step.needs.slots))
            step = machine.handle(answer, float(now))
            lines.append(encode(entry_of(float(now), answer, step)))
    return lines


LINES = [encode(HEADER), *record(HEADER.make_machine(), EVENTS)]
ENTRIES = [entry for entry in map(decode, LINES) if isinstance(entry, Entry)]


def find_entry(text: bytes) -> tuple[int, Entry]:
    """Return the first entry with this text, and its index."""
    number = next(number for number, line in enumerate(LINES) if text in line)
    entry = decode(LINES[number])
    assert isinstance(entry, Entry)
    return number, entry


def test_a_recording_is_replayed_without_a_difference() -> None:
    summary = Replay().play(LINES)
    assert summary.difference is None
    assert (summary.lines, summary.machines, summary.containers, summary.seconds) == (len(LINES), 1, 2, 6.0)
    assert summary.events == len(ENTRIES) > len(EVENTS)
    assert summary.effects == sum(len(entry.effects) for entry in ENTRIES)


def test_each_header_begins_a_fresh_machine() -> None:
    summary = Replay().play(LINES + LINES)
    assert summary.difference is None
    assert (summary.machines, summary.containers, summary.seconds) == (2, 4, 12.0)


def test_the_first_difference_ends_the_replay() -> None:
    number, entry = find_entry(b'"Accept"')
    changed = msgspec.structs.replace(entry, effects=entry.effects[:-1])
    difference = Replay().play([*LINES[:number], encode(changed), b"garbage is not reached\n"]).difference
    assert difference is not None
    assert (difference.line, difference.expected, difference.actual) == (number + 1, changed, entry)


def test_another_question_is_a_difference() -> None:
    number, entry = find_entry(b'"needs"')
    difference = Replay().play([*LINES[:number], encode(msgspec.structs.replace(entry, needs=None))]).difference
    assert difference is not None
    assert difference.actual.needs == entry.needs


def test_an_event_that_the_recorded_machine_could_not_handle_fails_again_in_the_same_way() -> None:
    event = e.ContainerRemoved("nobody")
    with pytest.raises(KeyError) as caught:
        HEADER.make_machine().handle(event, 1.0)
    lines = [encode(HEADER), encode(entry_of(1.0, event, caught.value))]
    assert Replay().play(lines).difference is None
    difference = Replay().play([encode(HEADER), encode(Entry(1.0, event))]).difference
    assert difference is not None
    assert "nobody" in (difference.actual.error or "")


def test_a_broken_invariant_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(_machine: Machine, now: float) -> None:
        if now >= 7.0:
            raise ValueError("broken")

    monkeypatch.setattr(Machine, "check_invariants", check)
    difference = Replay().play(LINES).difference
    assert difference is not None
    assert (difference.line, difference.actual.error) == (4, "ValueError: broken")
    assert Replay(checks=False).play(LINES).difference is None


@pytest.mark.parametrize(
    ("lines", "text", "played"),
    [
        ([], "the file is empty", 0),
        (LINES[1:], "before the first header", 0),
        ([*LINES[:3], LINES[3][:-9]], "the line is cut off", 3),
        ([*LINES[:3], b"garbage\n"], "no line of a recording", 3),
    ],
)
def test_a_recording_that_cannot_be_replayed_says_how_far_it_came(lines: list[bytes], text: str, played: int) -> None:
    replay = Replay()
    with pytest.raises(RecordingError, match=text):
        replay.play(lines)
    assert replay.summary.lines == played
    assert replay.summary.difference is None
