import logging

from convgpu.daemon.system.log_rate_limit import BURST, EVENT_BURST, NOTE_BURST, SPAN, LogRateLimit


def record(created: float, line: int = 1, level: int = logging.WARNING) -> logging.LogRecord:
    made = logging.LogRecord("x", level, "file.py", line, "pid %d did it again", (7,), None)
    made.created = created
    return made


def test_a_flood_of_one_line_is_cut_and_counted() -> None:
    quiet = LogRateLimit()
    assert sum(quiet.filter(record(100.0 + n / 1000)) for n in range(1000)) == BURST
    assert quiet.filter(record(101.0, line=2))
    later = record(100.0 + SPAN)
    assert quiet.filter(later)
    assert later.getMessage() == f"pid 7 did it again ({1000 - BURST} more like this one in the last seconds)"


def test_notes_have_more_room_and_a_clock_that_is_set_back_cuts_nothing_for_long() -> None:
    quiet = LogRateLimit()
    assert sum(quiet.filter(record(100.0, level=logging.INFO, line=3)) for _ in range(1000)) == NOTE_BURST
    assert sum(quiet.filter(record(100.0)) for _ in range(50)) == BURST
    assert quiet.filter(record(1.0))


def test_events_that_one_container_provokes_without_end_are_counted() -> None:
    def event(container: str, at: float) -> logging.LogRecord:
        entry = logging.LogRecord("history", logging.INFO, "history.py", 1, "rejected %s", (container,), None)
        entry.created, entry.event = at, {"kind": "rejected", "container": container}
        return entry

    limit = LogRateLimit()
    assert sum(limit.filter(event("flood", 100.0 + n / 1000)) for n in range(5000)) == EVENT_BURST
    assert limit.filter(event("honest", 105.0))
    later = event("flood", 100.0 + SPAN)
    assert limit.filter(later)
    assert later.getMessage() == f"rejected flood ({5000 - EVENT_BURST} more like this one in the last seconds)"
