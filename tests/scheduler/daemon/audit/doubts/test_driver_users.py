"""Who has the driver open: as far as there is time to look, and what is said of the others."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.doubts import driver_users
from convgpu.daemon.audit.doubts.driver_users import DriverUsers
from convgpu.daemon.system import open_files
from convgpu.daemon.system.open_files import FileIdentity, identify
from convgpu.daemon.system.processes.bounded_looks import BoundedLooks
from convgpu.daemon.system.procfs import start_time

# Opens what it is told to, and lives until its stdin ends.
PROGRAM = "import sys; files = [open(name) for name in sys.argv[1:]]; print(flush=True); sys.stdin.read()"


class Programs:
    """Programs that have the driver open, or have not."""

    def __init__(self, stack: ExitStack, control: Path) -> None:
        self._stack = stack
        self._control = str(control)

    def start(self, *, uses: bool) -> int:
        command = [sys.executable, "-c", PROGRAM, *([self._control] if uses else [])]
        pipe = subprocess.PIPE
        process = self._stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe))
        assert process.stdout is not None
        process.stdout.readline()
        return process.pid


@pytest.fixture(autouse=True)
def _time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the time for a look may pass."""
    monkeypatch.setattr(driver_users, "_BUDGET", 60.0)
    monkeypatch.setattr(driver_users, "_BUDGET_OF_CONTAINERS", 60.0)
    monkeypatch.setattr(open_files, "_looks", BoundedLooks(60.0))


@pytest.fixture
def control(tmp_path: Path) -> FileIdentity:
    (tmp_path / "nvidiactl").touch()
    found = identify(str(tmp_path / "nvidiactl"))
    assert found is not None
    return found


@pytest.fixture
def programs(tmp_path: Path, control: FileIdentity) -> Iterator[Programs]:
    assert control
    with ExitStack() as stack:
        yield Programs(stack, tmp_path / "nvidiactl")


def look(users: DriverUsers, *pids: int, **volumes: int) -> None:
    """Look at processes, and at all of volumes that have one each."""
    index = ProcessIndex({pid: name for name, pid in volumes.items()}, {}, {})
    asyncio.run(users.look({pid: start_time(pid) for pid in pids}, set(volumes), index))


def said(users: DriverUsers, pid: int) -> tuple[bool | None, bool]:
    start = start_time(pid)
    return users.uses(pid, start), users.surely_uses(pid, start)


def test_who_was_seen_to_have_it_open_is_known_and_who_has_not_is_for_one_look(
    control: FileIdentity, programs: Programs
) -> None:
    users, one, other = DriverUsers(control), programs.start(uses=True), programs.start(uses=False)
    assert [said(users, pid) for pid in (one, other)] == [(None, False)] * 2  # nobody looked yet
    look(users, one, other)
    assert [said(users, pid) for pid in (one, other)] == [(True, True), (False, False)]
    assert (users.uses(other, 1), users.surely_uses(one, 1)) == (None, False)  # another one that had the pid
    look(users, one)
    assert [said(users, pid) for pid in (one, other)] == [(True, True), (None, False)]
    look(users)
    assert said(users, one) == (None, False)


def test_without_a_control_node_all_that_are_listed_use_the_driver(programs: Programs) -> None:
    users, pid = DriverUsers(None), programs.start(uses=False)
    look(users, pid, a=pid)
    assert (said(users, pid), users.keeps("a")) == ((True, True), True)


def test_who_was_not_looked_at_for_longest_is_next(
    control: FileIdentity, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is time for one at a time: of the others it cannot be told."""
    monkeypatch.setattr(driver_users, "_BUDGET", -1.0)
    users, pids = DriverUsers(control), [programs.start(uses=False) for _ in range(3)]
    seen = []
    for _ in range(4):
        look(users, *pids)
        seen.append([said(users, pid)[0] for pid in pids].index(False))
    assert seen == [0, 1, 2, 0]


def test_a_container_keeps_memory_if_one_of_its_processes_has_the_driver_open(
    control: FileIdentity, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, one, other = DriverUsers(control), programs.start(uses=True), programs.start(uses=False)
    look(users, a=one, b=other)
    assert [users.keeps(name) for name in "abc"] == [True, False, True]
    monkeypatch.setattr(driver_users, "_BUDGET_OF_CONTAINERS", -1.0)
    look(users, a=one, b=other)
    assert users.keeps("b")
    monkeypatch.setattr(driver_users, "_BUDGET_OF_CONTAINERS", 60.0)
    monkeypatch.setattr(driver_users, "_MOST_PROCESSES", 1)
    look(users, a=one, b=other)
    assert users.keeps("b")
