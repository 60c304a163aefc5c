"""A scheduler that looks at NVML often: what the driver counts is asked for after each step."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import DRIVER, Daemon, running_daemon


@pytest.fixture
def daemon(tmp_path: Path, hook: Path, simulated_driver: Path) -> Iterator[Daemon]:
    """A real scheduler, with two simulated devices of 16 GiB, from the built hook and driver."""
    assert simulated_driver == DRIVER
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB", f"--libraries={hook}", "--audit=100ms") as running:
        yield running
