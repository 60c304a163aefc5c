"""The file of a recording: whole lines, a bound, and disks that take nothing."""

import logging
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from convgpu.core import events as e
from convgpu.core.recording.format import Header, encode, entry_of
from convgpu.core.step import Step
from convgpu.daemon.storage.recorder import Recorder

HEADER = Header("0.1.0", {"gpu": 16}, "fifo", 1, 60.0, recovering=False)
EVENT, STEP = e.ContainerStarted("a"), Step(())
LINE = encode(entry_of(1.0, EVENT, STEP))


class Clock:
    """Keeps what is to be called later; `pass_time` calls it."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_later(self, _delay: float, call: Callable[[], None]) -> None:
        self.due.append(call)

    def pass_time(self) -> None:
        due, self.due = self.due, []
        for call in due:
            call()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_lines_are_written_at_intervals_and_at_the_end(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "recording"
    recorder = Recorder(path, clock.call_later)
    recorder.begin(HEADER)
    recorder.record(1.0, EVENT, STEP)
    assert path.read_bytes() == b""
    assert len(clock.due) == 1
    clock.pass_time()
    assert path.read_bytes() == encode(HEADER) + LINE
    assert clock.due == []
    recorder.record(1.0, EVENT, STEP)
    recorder.close()
    assert path.read_bytes() == encode(HEADER) + LINE + LINE
    assert path.stat().st_mode & 0o777 == 0o600
    recorder.record(1.0, EVENT, STEP)
    clock.pass_time()
    assert path.read_bytes() == encode(HEADER) + LINE + LINE


def test_an_event_that_could_not_be_handled_is_written_at_once(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "recording", clock.call_later)
    recorder.record(1.0, EVENT, KeyError("a"))
    assert (tmp_path / "recording").read_bytes() == encode(entry_of(1.0, EVENT, KeyError("a")))
    recorder.close()


@pytest.mark.parametrize(("there", "expected"), [(b"x\n", b"x\n"), (b"half a li", b"half a li\n"), (b"", b"")])
def test_a_file_is_continued_on_a_line_of_its_own(tmp_path: Path, clock: Clock, there: bytes, expected: bytes) -> None:
    (tmp_path / "recording").write_bytes(there)
    recorder = Recorder(tmp_path / "recording", clock.call_later)
    recorder.begin(HEADER)
    recorder.close()
    assert (tmp_path / "recording").read_bytes() == expected + encode(HEADER)


def test_a_file_at_its_bound_ends_the_recording_with_one_line_in_the_log(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path / "recording", clock.call_later, limit=2 * len(LINE) + 5)
    for _ in range(5):
        recorder.record(1.0, EVENT, STEP)
    recorder.close()
    assert (tmp_path / "recording").read_bytes() == 2 * LINE
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "no events are recorded any more" in caplog.text


@pytest.mark.parametrize("path", ["/dev/full", "/nowhere/recording", "/dev"])
def test_a_file_that_cannot_be_written_ends_the_recording_with_one_line_in_the_log(
    path: str, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(Path(path), clock.call_later)
    for _ in range(3):
        recorder.record(1.0, EVENT, STEP)
        clock.pass_time()
    recorder.close()
    [record] = caplog.records
    assert record.getMessage().startswith(f"no events are recorded any more: {path} cannot be written: ")


def test_a_disk_that_takes_a_part_leaves_whole_lines(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parts = [len(LINE) + 7]

    def write(file: int, data: bytearray) -> int:
        if not parts:
            raise OSError(28, "No space left on device")
        return real_write(file, bytes(data[: parts.pop()]))

    real_write = os.write
    recorder = Recorder(tmp_path / "recording", clock.call_later)
    for _ in range(3):
        recorder.record(1.0, EVENT, STEP)
    monkeypatch.setattr(os, "write", write)
    clock.pass_time()
    monkeypatch.undo()
    assert (tmp_path / "recording").read_bytes() == LINE
    assert "No space left" in caplog.text
    recorder.close()


def test_a_program_without_descriptors_does_without_a_recording(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        Recorder(tmp_path / "recording", clock.call_later).record(1.0, EVENT, STEP)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "Too many open files" in caplog.text
