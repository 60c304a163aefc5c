import pytest

from convgpu.cli.show import event_text
from convgpu.cli.terminal.output import LAST, Column, echo, layout
from convgpu.protocol.records import Event

COLUMNS = (
    Column("NAME", shrinks=True),
    Column("IMAGE", shrinks=True, optional=True),
    Column("SIZE", right=True),
)
ROWS = [("a-very-long-name", "image:1", "2GiB"), ("b", "image:22", "512MiB")]


def test_a_table_is_as_wide_as_it_needs() -> None:
    assert layout(COLUMNS, ROWS, None) == [
        "NAME              IMAGE       SIZE",
        "a-very-long-name  image:1     2GiB",
        "b                 image:22  512MiB",
    ]


def test_the_name_of_a_program_neither_moves_the_cursor_nor_begins_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    program = "\x1b]0;x\x07\n12:00 other\u202e\x9b2Jé"
    shown = r"\x1b]0;x\x07\n12:00 other\u202e\x9b2Jé"
    assert layout(COLUMNS, [(program, "i", "1")], None)[1].split("  ")[0] == shown
    event = Event(sequence=1, time=0.0, kind="started", container="v", pid=7, program=program)
    echo(event_text.describe(event, {}), "red")
    assert capsys.readouterr().out == f"{shown} (pid 7) connected\n"


def test_on_a_narrow_terminal_the_optional_goes_first_then_names_are_cut_but_never_a_size() -> None:
    assert layout(COLUMNS, ROWS, 30) == [
        "NAME                SIZE",
        "a-very-long-name    2GiB",
        "b                 512MiB",
    ]
    assert layout(COLUMNS, ROWS, 18) == ["NAME          SIZE", "a-very-lo…    2GiB", "b           512MiB"]
    assert layout(COLUMNS, ROWS, 4)[2] == "b         512MiB"


def test_what_goes_last_is_cut_short_first() -> None:
    columns = (Column("GPU"), Column("NAME", shrinks=True, optional=LAST), Column("USED", right=True, optional=1))
    rows = [("0", "A GPU of a long name", "2GiB")]
    assert layout(columns, rows, 29) == ["GPU  NAME", "0    A GPU of a long name"]
    assert layout(columns, rows, 20) == ["GPU  NAME", "0    A GPU of a lon…"]
    assert layout(columns, rows, 12) == ["GPU", "0"]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"kind": "created", "limits": {"GPU-a": 2 << 30}}, "created, limit 2GiB on GPU 0"),
        ({"kind": "created"}, "created"),
        ({"kind": "started", "pid": 7, "program": "train"}, "train (pid 7) connected"),
        (
            {"kind": "paused", "size": 1 << 30, "uuid": "GPU-a", "call": "cuMemAlloc"},
            "PAUSED, waits for 1GiB on GPU 0 (cuMemAlloc)",
        ),
        ({"kind": "granted", "size": 1 << 30, "waited": 1.26}, "goes on after 1.3s with its 1GiB"),
        (
            {"kind": "rejected", "size": 3 << 30, "uuid": "GPU-b", "reason": "limit"},
            "REJECTED, wanted 3GiB on GPU GPU-b: limit",
        ),
        ({"kind": "overused", "size": 3 << 30, "uuid": "GPU-a"}, "holds 3GiB on GPU 0, more than its limit"),
        ({"kind": "stopped", "reason": "overuse"}, "was stopped: overuse"),
        ({"kind": "of a later version", "reason": "why"}, "of a later version: why"),
    ],
)
def test_an_event_is_told_in_words(event: dict[str, object], text: str) -> None:
    assert event_text.describe(Event(sequence=1, time=0.0, container="v", **event), {"GPU-a": 0}) == text


def test_the_line_of_an_event_has_time_and_name() -> None:
    event = Event(sequence=1, time=2.5, kind="ended", container="v")
    assert event_text.format_line(event, {"v": "train"}, {}, str) == "2.5  train             ended"
    assert event_text.as_data(event, {"v": "train"}) == {
        "sequence": 1,
        "time": 2.5,
        "kind": "ended",
        "container": "v",
        "name": "train",
    }
