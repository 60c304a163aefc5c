import logging
import logging.config
import re

import pytest

from convgpu.plugin import journal


@pytest.fixture
def record():
    def make(text, exc_info=None):
        return logging.LogRecord("convgpu.x", logging.WARNING, __file__, 1, text, None, exc_info)

    return make


@pytest.fixture
def line(record):
    formatter = journal.OneLine("level=%(levelname)s cause=%(cause)s %(name)s: %(message)s")
    return lambda *args: formatter.format(record(*args))


def test_a_record_is_one_line_with_level_and_cause(line):
    journal.begin("/VolumeDriver.Mount")
    assert re.fullmatch(r"level=WARNING cause=Mount-\d+ convgpu\.x: a \| level=ERROR", line("a\nlevel=ERROR"))


def test_a_traceback_stays_in_its_line(line):
    error = ValueError("why")
    text = line("failed", (ValueError, error, None))
    assert text.endswith("convgpu.x: failed | ValueError: why")


def test_the_configuration_is_accepted():
    root = logging.getLogger()
    before = (root.level, root.handlers[:])
    try:
        logging.config.dictConfig(journal.configuration("debug"))
        assert root.level == logging.DEBUG
    finally:
        root.level, root.handlers[:] = before
