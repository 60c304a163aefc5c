"""The pool's files are not taken from a porter that still runs: what it copies last would be nowhere."""

import asyncio
import errno
import fcntl
import os
from pathlib import Path

import pytest

from convgpu.daemon.residency import porter as module
from convgpu.daemon.residency.pool_files import _FULL, _INDEX_OFFSET, _UNIT, UNIT_SIZE, PoolFiles, PoolState
from convgpu.daemon.residency.porter import Porter, PorterFiles, pool_path
from convgpu.daemon.system import procfs


@pytest.fixture
def files(tmp_path: Path) -> PoolFiles:
    found = PoolFiles(tmp_path / "pool/pool")
    found.path.parent.mkdir()
    found.path.touch()
    found.index.touch()
    return found


def test_a_pool_is_in_use_while_a_porter_holds_its_lock(files: PoolFiles) -> None:
    with files.path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert files.give_back() is PoolState.IN_USE
        assert files.index.exists()
    assert files.give_back() is PoolState.GONE
    assert not files.path.parent.exists()
    assert files.give_back() is PoolState.GONE


def test_a_pool_without_its_data_is_removed(files: PoolFiles) -> None:
    files.path.unlink()
    assert files.give_back() is PoolState.GONE
    assert not files.path.parent.exists()


@pytest.mark.parametrize(
    ("pid", "state"), [(os.getpid(), PoolState.HAS_COPIES), (1 << 22, PoolState.GONE)], ids=["lives", "ended"]
)
def test_copies_stay_though_nobody_tells_when_their_process_started(
    files: PoolFiles, monkeypatch: pytest.MonkeyPatch, pid: int, state: PoolState
) -> None:
    """On a slow machine, after a restart: they were removed, and the memory of a process that waited was lost."""
    monkeypatch.setattr(procfs, "_starts", {})
    monkeypatch.setattr(procfs._looks, "ask", lambda _pid, _look: None)
    with files.path.open("wb") as file:
        file.truncate(UNIT_SIZE)
    entry = _UNIT.pack(_FULL, pid, 5, 0, bytes(16), 0, 1)
    files.index.write_bytes(bytes(_INDEX_OFFSET) + entry)
    assert (files.give_back(), files.path.exists()) == (state, state is PoolState.HAS_COPIES)


@pytest.mark.parametrize("unreadable", ["path", "index"])
def test_a_pool_of_which_nobody_can_tell_stays(
    files: PoolFiles, monkeypatch: pytest.MonkeyPatch, unreadable: str
) -> None:
    files.path.write_bytes(bytes(1))
    opened = Path.open

    def refuse(path: Path, mode: str = "r") -> object:
        if path == getattr(files, unreadable):
            raise OSError(errno.EMFILE, "Too many open files")
        return opened(path, mode)

    monkeypatch.setattr(Path, "open", refuse)
    assert files.give_back() is PoolState.IN_USE
    assert files.path.exists()
    assert files.index.exists()


def test_the_porter_of_a_killed_scheduler_keeps_its_pool_until_it_ends(
    files: PoolFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.0)

    async def adopt() -> None:
        nothing = PorterFiles(Path("/nonexistent"), "", files)
        porter = Porter(asyncio.get_running_loop(), nothing, print, print)
        with files.path.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            porter.adopt()
            await asyncio.sleep(0)
            assert files.path.exists()
        while files.path.exists():
            await asyncio.sleep(0)
        porter.stop()

    asyncio.run(asyncio.wait_for(adopt(), 20))


def test_the_pool_is_of_the_folder_and_not_of_its_path(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    pool = pool_path(first)
    first.rename(second)
    first.mkdir()
    assert pool_path(first) != pool
    assert pool_path(first) == pool_path(first)
