"""A process that takes part, brought to the point where it has a context and a carrier."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elastic_process import Elastic
from hooked_program import Program
from scripted_porter import READY, Frame, ScriptedPorter
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, open_session

from convgpu.protocol.wire import PageFlag

Start = Callable[..., Program]


@pytest.fixture
def porter(
    devices: Path, simulated_driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ScriptedPorter]:
    monkeypatch.setenv("SIMULATED_GPU_DIRECTORY", str(devices))
    running = ScriptedPorter(simulated_driver, tmp_path)
    yield running
    running.close()


@pytest.fixture
def preload() -> tuple[str, ...]:
    """Libraries of tests/hook/programs/libraries that the program has beside the hook."""
    return ()


@pytest.fixture
def elastic(
    start: Start, scheduler: ScriptedScheduler, porter: ScriptedPorter, programs: Path, preload: tuple[str, ...]
) -> Elastic:
    """A program with a context and 4 GiB of headroom, and a carrier."""
    program = start(preload=tuple(programs / library for library in preload))
    session = open_session(program, scheduler, headroom=4 * GIB, flags=PageFlag.ELASTIC)
    process = Elastic(session.program, session.peer, session.page, session.context, porter)
    process.carrier()
    assert porter.receive() == Frame(READY)
    return process
