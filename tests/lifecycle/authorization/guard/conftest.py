"""An Engine under the rules of guard, with `convgpu-runtime` as its default runtime, and a folder of a host's user."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from docker_engine import Engine
from raw_engine import RawEngine
from strict_run import ruled_engine

RULES = 'mode = "enforce"\n'


@pytest.fixture(scope="session")
def guard(
    start_engine: Callable[..., AbstractContextManager[Engine]], runtimes: dict[str, dict[str, str]]
) -> Iterator[Engine]:
    """The Engine; its plugin and its runtime read the same file of rules."""
    with ruled_engine(start_engine, RULES, runtimes) as engine:
        yield engine


@pytest.fixture(scope="session")
def raw(guard: Engine) -> RawEngine:
    return RawEngine(f"{guard.directory}/docker.sock")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder of a user of the host, in which root made a device node with the numbers of a GPU."""
    top = Path(tempfile.mkdtemp(prefix="convgpu-guard-", dir="/tmp"))
    os.mknod(top / "gpu", 0o666 | 0o020000, os.makedev(195, 0))
    os.mknod(top / "zero", 0o666 | 0o020000, os.makedev(1, 5))
    yield top
    shutil.rmtree(top)
