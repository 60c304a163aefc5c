from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import Daemon, running_daemon


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "d") as daemon:
        yield daemon
