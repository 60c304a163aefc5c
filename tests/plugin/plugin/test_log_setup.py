import json
import logging
import logging.config
import os
import re
import subprocess
import sys

import pytest

from convgpu.logs.cause import bound_cause, current_cause, set_cause
from convgpu.logs.formatter import FORMATS, TextFormatter, create_formatter
from convgpu.plugin import log_setup
from convgpu.plugin.unread_pipe import PipeHandler

FORGED = "a\nlevel=ERROR\r\x85\u2028\x1b[2J\x00\udcff"


@pytest.fixture(autouse=True)
def nothing_begun():
    yield
    set_cause("")


@pytest.fixture
def record():
    def make(text, exc_info=None, **extra):
        made = logging.LogRecord("convgpu.x", logging.WARNING, __file__, 1, text, None, exc_info)
        made.__dict__.update(extra)
        return made

    return make


@pytest.fixture
def line(record):
    formatter = TextFormatter("level=%(levelname)s cause=%(cause)s %(name)s: %(message)s")
    return lambda *args, **extra: formatter.format(record(*args, **extra))


@pytest.fixture
def data(record):
    def parse(*args, **extra):
        text = create_formatter("json").format(record(*args, **extra))
        assert text.isascii()
        assert text.isprintable()
        return json.loads(text)

    return parse


def test_a_record_is_one_line_with_level_and_cause(line):
    log_setup.begin_request("/VolumeDriver.Mount")
    assert re.fullmatch(
        r"level=WARNING cause=Mount-[0-9a-f]{6}-\d+ convgpu\.x: a \| level=ERROR", line("a\nlevel=ERROR")
    )


def test_what_cannot_be_printed_is_escaped(line):
    text = line(FORGED)
    assert text == r"level=WARNING cause=- convgpu.x: a | level=ERROR |  |  | \x1b[2J\x00\udcff"
    text.encode()


def test_a_traceback_stays_in_its_line(line):
    error = ValueError("why")
    text = line("failed", (ValueError, error, None))
    assert text.endswith("convgpu.x: failed | ValueError: why")


def test_json_says_the_same(data):
    with bound_cause("Mount-1"):
        said = data(FORGED, event={"kind": "mounted"})
    assert isinstance(said.pop("time"), float)
    assert said == {
        "level": "WARNING",
        "cause": "Mount-1",
        "logger": "convgpu.x",
        "message": FORGED,
        "event": {"kind": "mounted"},
    }
    failed = data("failed", (ValueError, ValueError("why"), None))
    assert (failed["cause"], failed["error"]) == ("-", "ValueError: why")


def test_a_record_may_bring_its_own_cause(line, data):
    log_setup.begin_request("/VolumeDriver.Mount")
    assert "cause=s1.r2 " in line("x", cause="s1.r2")
    assert data("x", cause="s1.r2")["cause"] == "s1.r2"


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/VolumeDriver.Mount", "Mount"),
        ("/v1/containers/level=ERROR x", "containers"),
        ("/v1/" + "x" * 100, "http"),
        ("/ cause=forged", "http"),
        ("", "http"),
    ],
)
def test_a_cause_holds_nothing_that_a_client_chose(path, word):
    log_setup.begin_request(path)
    assert re.fullmatch(rf"{word}-[0-9a-f]{{6}}-\d+", current_cause())


def test_a_thread_that_has_answered_works_for_nobody():
    log_setup.begin_request("/VolumeDriver.Mount")
    log_setup.end_request()
    assert current_cause() == ""


@pytest.mark.parametrize("form", FORMATS)
def test_the_configuration_is_accepted(form):
    root = logging.getLogger()
    before = (root.level, root.handlers[:])
    try:
        logging.config.dictConfig(log_setup.configuration("debug", form))
        assert root.level == logging.DEBUG
    finally:
        root.level, root.handlers[:] = before


def test_a_pipe_that_nobody_reads_holds_nobody_up(record):
    """A killed dockerd left the plugin's first process in a write: it started no scheduler, and no signal ended it."""
    reader, writer = os.pipe()
    handler = PipeHandler(writer)
    for number in range(100):
        handler.handle(record(f"{number} {'x' * 9_000}"))
    os.set_blocking(reader, False)
    assert os.get_blocking(writer)  # that of the others who have it
    assert 0 < len(os.read(reader, 1 << 20)) <= 1 << 16
    handler.handle(record("again"))
    handler.handle(record("and again"))
    cut, first, second = os.read(reader, 1 << 16).decode().splitlines()
    assert cut == ""  # the end of a line of which the rest was lost
    assert re.fullmatch(r"again \(\d+ lines before this one are lost: nobody read the log\)", first)
    assert second == "and again"
    os.close(reader)
    handler.handle(record("to nobody"))
    handler.close()
    os.close(writer)


def test_a_form_that_is_not_known_is_one_line():
    command = [sys.executable, "-m", "convgpu.plugin", "--log-format", "xml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "convgpu.plugin: CONVGPU_LOG_FORMAT=xml: must be one of text, json\n"
