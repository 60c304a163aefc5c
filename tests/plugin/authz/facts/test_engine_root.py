"""The root folder of the Engine's process is found by its socket, also while the Engine takes no connection."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from convgpu.authz.facts.engine_root import EngineRoot

ROOT = Path(f"/proc/{os.getpid()}/root")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "engine.sock"))
        listening.listen(0)
        yield listening


def fill(stack: ExitStack, path: Path) -> None:
    """Connect until no connection more may wait."""
    with pytest.raises(BlockingIOError):  # noqa: PT012 - whichever of them it is
        for _ in range(8):
            one = stack.enter_context(socket.socket(socket.AF_UNIX))
            one.setblocking(False)
            one.connect(str(path))


@pytest.mark.usefixtures("engine")
def test_it_is_that_of_the_process_that_listens(tmp_path: Path) -> None:
    assert EngineRoot(tmp_path / "engine.sock")() == ROOT


def test_thousands_of_questions_are_one_connection(engine: socket.socket, tmp_path: Path) -> None:
    root = EngineRoot(tmp_path / "engine.sock", Clock())
    assert {root() for _ in range(5000)} == {ROOT}
    engine.setblocking(False)
    engine.accept()[0].close()
    with pytest.raises(BlockingIOError):
        engine.accept()


@pytest.mark.usefixtures("engine")
def test_an_engine_that_takes_no_connection_is_there_as_it_was(tmp_path: Path) -> None:
    clock = Clock()
    root, late = (EngineRoot(tmp_path / "engine.sock", clock) for _ in range(2))
    assert root() == ROOT
    with ExitStack() as stack:
        fill(stack, tmp_path / "engine.sock")
        clock.now += 5
        assert (root(), late()) == (ROOT, None)


def test_nothing_is_known_of_an_engine_that_is_gone(engine: socket.socket, tmp_path: Path) -> None:
    clock = Clock()
    root = EngineRoot(tmp_path / "engine.sock", clock)
    assert root() == ROOT
    engine.close()
    clock.now += 5
    assert root() is None
