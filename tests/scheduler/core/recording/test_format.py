"""The lines of a recording: each event and effect is read as it was written, and other lines have one clear error."""

import math
from typing import get_args

import pytest

from convgpu.core import events as e
from convgpu.core import placement as p
from convgpu.core.recording.format import Entry, Header, RecordingError, decode, encode, entry_of
from convgpu.core.residency import events as r
from convgpu.core.step import Step
from convgpu.protocol.event_kinds import EventKind, RejectReason

PLACEMENT = p.Placement(
    ("g0",), "spread", (p.Compared("g0", 1, 2, 2, 0, 0), p.Compared("g1", 3, 2, 2, 0, 0, p.Obstacle.CAPACITY))
)
EVENTS = [
    e.ContainerCreated("a", {"g0": 1, "g1": 2}, 1.5, -1),
    e.ContainerCreated("\u00fc\n\u2028", {}),
    e.LimitsSet("a", {"g0": 1 << 40}),
    e.LimitsChanged("a", {"g0": 0}),
    e.LimitsLearned("a", {"g0": 1 << 33}),
    e.TermsChanged("a", None, -3),
    e.ContainerStarted("a"),
    e.ContainerEnded("a"),
    e.ContainerRemoved("a"),
    e.SessionStarted(1, "a", {"g0": 5}),
    e.SessionReconnected(2, 1, {"g0": 5}, late=True, kept={"g0": 1}),
    e.SessionEnded(2, {"g0": 3, "g1": 0}),
    e.AllocationRequested(2, 3, "", 1 << 62),
    e.AllocationLookedAt(2, 3),
    e.AllocationWithdrawn(1, 2),
    e.AllocationReturned(1, "g0", 2),
    e.MemoryFreed(2, "g0"),
    e.HeadroomTaken((((2, "g0"), 7), ((3, "g1"), 0))),
    e.HeadroomTaken(()),
    e.SettlingEnded(2),
    e.MayBeKept("a", "g0", 8),
    e.UnleasedMemory("a", "g0", 8),
    e.CapacityChanged("g0", 9, 10),
    e.DeviceDrained("g0", drained=True),
    e.PolicyChosen("random", (1 << 64) - 1),
    e.RecoveryEnded(),
    e.TimePassed(),
    r.ElasticSet("a", {"g0": 1}),
    r.UnifiedSet("a"),
    r.SessionAble(2, r.Mover.VMM),
    r.SessionState(2, 7, open=False, out={"g0": 3}, fixed={}),
    r.SessionStopped(2, 7, r.StopOutcome.BUSY, 1, 0.5, {"g0": 1}),
    r.RunWanted("a"),
    r.Evicted(2, "g0", 3, missing=1),
    r.Restored(2, "g0", 2, refused=1),
    r.Discarded(2, "g0", 1),
    r.Idle("a", 0.25),
    r.Busy("a"),
    r.PoolChanged("g0", 64),
    r.SwitchMeasured("g0", 5e10, 4e10),
    r.SuspendAsked("a", deep=True),
    r.ResumeAsked("a"),
    r.CheckpointTaken(2),
    r.CheckpointRestored(2, failed=True),
    p.PlacementRequested("a", ("g0", "g1"), ("g1",)),
    p.PlacementPolicyChosen("spread"),
    p.ReuseBounded("g0", 5),
    e.ContainerCreated("a", {"g0": 5}, choice=p.Choice(2, is_default=True), placed=PLACEMENT),
]
EFFECTS = [
    e.Accept(2, 3, 4, 5),
    e.Reject(2, 3, RejectReason.DEADLINE),
    e.LookAt(2, 3),
    e.Lease(2, "g0", 4),
    e.NotifyOnFree(2, "g0", armed=True),
    e.LimitInForce("a", "g0", 4, None),
    e.HistoryEntry(EventKind.REJECTED, "a", "g0", 4, 2, 3, 0.1, RejectReason.LIMIT),
    e.HistoryEntry(EventKind.RETURNED, "a", "g0", 4, 2),
    r.Stop(2, 7, 2.0),
    r.Step(2, 7),
    r.Evict(2, 7, "g0", 3),
    r.Restore(2, 7, "g0", 3),
    r.Go(2, 7),
    r.Checkpoint(2),
    r.RestoreCheckpoint(2),
    r.Watch(2, on=True),
    p.Placed("a", PLACEMENT),
    p.Displaced("a", "g0", p.Obstacle.LOST),
    p.Placed("a", None),
]
HEADER = Header("0.1.0", {"g0": 16}, "best-fit", 1, 60.0, recovering=False)


def test_the_list_above_has_every_event_and_effect() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(e.Event))
    assert {type(effect) for effect in EFFECTS} == set(get_args(e.Effect))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_read_as_it_was_written(event: e.Event) -> None:
    entry = entry_of(0.1 + 0.2, event, Step(tuple(EFFECTS), e.TakeHeadroom(((2, "g0"),))))
    line = encode(entry)
    assert line.count(b"\n") == 1
    assert decode(line) == entry


def test_an_event_that_a_machine_could_not_handle_keeps_the_error() -> None:
    entry = entry_of(1.0, e.TimePassed(), KeyError("a"))
    assert decode(encode(entry)) == Entry(1.0, e.TimePassed(), error="KeyError: 'a'")


def test_a_header_makes_the_machine_that_was_recorded() -> None:
    header = Header("0.1.0", {"g0": 16, "g1": 8}, "random", 7, None, recovering=True)
    assert decode(encode(header)) == header
    machine = header.make_machine()
    assert machine.policy.name == "random"
    assert machine.starvation_timeout == math.inf
    assert machine.recovering
    assert machine.devices == {"g0", "g1"}


def test_a_policy_that_this_version_does_not_have_is_an_error() -> None:
    with pytest.raises(RecordingError, match="no policy 'worst'"):
        Header("9", {"g0": 1}, "worst", 1, 60.0, recovering=False).make_machine()


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (encode(HEADER)[:-1], "the line is cut off"),
        (encode(HEADER)[:20], "the line is cut off"),
        (b"\n", "no line of a recording"),
        (b"garbage\n", "no line of a recording"),
        (b"\xff\xfe\x00\n", "no line of a recording"),
        (b"[" * 100_000 + b"\n", "no line of a recording"),
        (b"{}\n", "no line of a recording"),
        (b"[1]\n", "no line of a recording"),
        (b'{"line":"other"}\n', "no line of a recording"),
        (encode(HEADER).replace(b'"format":1', b'"format":2'), "has format 2, and this version reads format 1"),
        (b'{"line":"header","format":3,"of":"another time"}\n', "has format 3, and this version reads format 1"),
        (encode(HEADER).replace(b'"seed":1', b'"seed":"x"'), "seed"),
        (b'{"line":"event","now":1,"event":{"type":"Surprise"}}\n', "Surprise"),
        (b'{"line":"event","now":1,"event":{"type":"TimePassed","size":1}}\n', "unknown field `size`"),
        (b'{"line":"event","now":1,"event":{"type":"MemoryFreed","session":1}}\n', "missing required field `device`"),
        (b'{"line":"event","now":1,"event":{"type":"TimePassed"},"cause":"x"}\n', "unknown field `cause`"),
    ],
)
def test_a_line_that_cannot_be_read_is_one_clear_error(line: bytes, text: str) -> None:
    with pytest.raises(RecordingError) as caught:
        decode(line)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
