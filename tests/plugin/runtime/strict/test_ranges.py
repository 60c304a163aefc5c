"""While a container starts nobody else gets its user IDs."""

import os
import subprocess
import sys

import pytest

from convgpu.runtime.strict.ranges import reserve, share

# Reserves, and becomes another program, as this one becomes the real runtime.
STARTS = """
import os, sys
from pathlib import Path
from convgpu.runtime.strict import ranges
assert getattr(ranges, sys.argv[1])(7, Path(sys.argv[2])) is not None
os.execvp("sh", ["sh", "-c", "echo runs; read line"])
"""


@pytest.fixture
def starting(tmp_path):
    """Return a function that starts a process that holds a range until it gets a line."""
    running = []

    def start(kind):
        words = [sys.executable, "-c", STARTS, kind, str(tmp_path / "ids")]
        running.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert running[-1].stdout.readline() == b"runs\n"
        return running[-1]

    yield start
    for each in running:
        each.kill()
        each.communicate()


def take(kind, first, folder):
    """Tell whether a range can be taken now."""
    descriptor = kind(first, folder)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


def test_a_range_is_reserved_until_the_real_runtime_ends(tmp_path, starting):
    folder = tmp_path / "ids"
    one = starting("reserve")
    assert [take(reserve, 7, folder), take(share, 7, folder), take(reserve, 8, folder)] == [False, False, True]
    one.kill()
    one.wait()
    assert take(reserve, 7, folder) is True


def test_those_who_join_a_container_keep_others_from_its_range(tmp_path, starting):
    folder = tmp_path / "ids"
    starting("share")
    assert [take(reserve, 7, folder), take(share, 7, folder)] == [False, True]


def test_only_root_comes_to_what_is_reserved(tmp_path):
    os.close(reserve(7, tmp_path / "a/ids"))
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "a/ids", tmp_path / "a/ids/7")] == [0o700, 0o600]
