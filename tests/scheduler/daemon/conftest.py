import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemon import Daemon, running_daemon, wait_until

CGROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "d") as daemon:
        yield daemon


@pytest.fixture
def make_cgroup() -> Iterator[Callable[[], Path]]:
    """A maker of cgroups that are named as the Engine names those of containers; empty at the end."""
    parent = next(
        (CGROUPS / name for name in ("pids", "cpuset", ".") if (CGROUPS / name / "cgroup.procs").exists()), None
    )
    if parent is None or os.geteuid() != 0 or not os.access(parent, os.W_OK):
        pytest.skip("cgroups cannot be made here")
    made: list[Path] = []

    def make() -> Path:
        group = parent / "docker" / secrets.token_hex(32)
        try:
            group.mkdir(parents=True)
        except OSError as error:
            pytest.skip(f"cgroups cannot be made here: {error}")
        made.append(group)
        return group

    yield make
    for group in made:
        wait_until(lambda group=group: not (group / "cgroup.procs").read_text(), "it is empty")
        group.rmdir()


@pytest.fixture
def cgroup(make_cgroup: Callable[[], Path]) -> Path:
    """A cgroup that is named as the Engine names that of a container."""
    return make_cgroup()
