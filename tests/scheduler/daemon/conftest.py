import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import Daemon, running_daemon, wait_until

CGROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "d") as daemon:
        yield daemon


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup that is named as the Engine names those of containers; empty at the end."""
    parent = next(
        (CGROUPS / name for name in ("pids", "cpuset", ".") if (CGROUPS / name / "cgroup.procs").exists()), None
    )
    if parent is None or os.geteuid() != 0 or not os.access(parent, os.W_OK):
        pytest.skip("cgroups cannot be made here")
    group = parent / "docker" / secrets.token_hex(32)
    try:
        group.mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"cgroups cannot be made here: {error}")
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text(), "it is empty")
    group.rmdir()
