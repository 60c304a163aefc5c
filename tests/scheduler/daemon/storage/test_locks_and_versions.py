"""The database while another process holds its lock, at the moment of a kill, and after one of another version."""

import sqlite3
import statistics
import time
from itertools import pairwise
from pathlib import Path

import pytest
from daemon import running_daemon
from opened_store import FULL, Later, fill, laid_out, opened

from convgpu.daemon.storage.database import checkpoint
from convgpu.daemon.storage.rows import PreviousSession, Volume


def test_a_lock_does_not_hold_up_processes_that_start_and_end(tmp_path: Path) -> None:
    """Each waited for 200 ms; a busy machine holds up some of them, and never half."""
    later, waits = Later(), []
    processes = [PreviousSession(100 + number, 7, "volume-1", "python") for number in range(50)]
    with opened(tmp_path, later) as store:
        fill(store)
        other = sqlite3.connect(store.database.path)
        other.execute("BEGIN IMMEDIATE")
        for process in processes:
            start = time.monotonic()
            store.sessions.drop(process)
            store.sessions.add(process)
            waits.append(time.monotonic() - start)
        assert statistics.median(waits) < 0.1
        other.close()
        later.pass_time()
        assert set(processes) <= set(store.sessions.all())
        assert store.trouble == ""


def test_a_lock_of_a_moment_is_no_trouble(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    later = Later()
    with opened(tmp_path, later) as store:
        fill(store)
        other = sqlite3.connect(store.database.path)
        other.execute("BEGIN IMMEDIATE")
        store.sessions.drop(PreviousSession(100, 7, "volume-0", "python"))
        for pid in range(200, 250):  # at 440 a second a checkpoint's lock was said to be trouble
            store.sessions.add(PreviousSession(pid, 7, "volume-0", "python"))
        other.close()
        later.pass_time(0.05)
        assert len(store.sessions.all()) == 61
        assert (store.trouble, caplog.text.count("cannot be written")) == ("", 0)


def test_a_lock_that_lasts_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    later = Later()
    with opened(tmp_path, later) as store:
        fill(store)
        other = sqlite3.connect(store.database.path)
        other.execute("BEGIN IMMEDIATE")
        store.sessions.drop(PreviousSession(100, 7, "volume-0", "python"))
        later.pass_time(0.05)
        later.try_again()
        assert caplog.text.count("cannot be written") == 1
        assert "locked" in store.trouble
        other.close()
        later.try_again()
        assert store.trouble == ""


def test_that_a_process_is_missing_is_known_after_a_kill_at_once(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.sessions.mark_complete()
        store.sessions.mark_incomplete()
        killed = {suffix: Path(f"{store.database.path}{suffix}").read_bytes() for suffix in ("", "-wal")}
    with opened(laid_out(tmp_path / "next", killed)) as store:
        assert not store.sessions.complete


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE containers ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE containers DROP COLUMN engine",
        "ALTER TABLE history RENAME TO events",
    ],
)
def test_what_another_version_wrote_is_kept_as_far_as_it_is_known(tmp_path: Path, change: str) -> None:
    with opened(tmp_path) as store:
        fill(store)
    connection = sqlite3.connect(tmp_path / "state.db")
    connection.executescript(f"{change}; PRAGMA user_version = 9;")
    connection.close()
    with opened(tmp_path) as store:
        assert [(one.name, one.options, one.mounts, one.limits) for one in store.volumes.all()] == [
            (one.name, one.options, one.mounts, one.limits) for one in FULL
        ]
        assert len(store.sessions.all()) == len(FULL)
        assert store.settings.get("policy") == "fifo"
        assert not store.sessions.complete


def test_a_checkpoint_leaves_no_long_log(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        wal = Path(f"{store.database.path}-wal")
        for number in range(800):
            volume = Volume(f"v{number}", {"memory": "x" * 4000}, 1.0, limits={"gpu": 1 << 30})
            store.volumes.add(volume)
            store.volumes.remove(volume.name)
        assert wal.stat().st_size > 8 << 20
        checkpoint(store.database.path)
        assert wal.stat().st_size < 4 << 20
        store.volumes.add(Volume("v", {}, 2.0))
        assert [volume.name for volume in store.volumes.all()] == ["v"]


def test_volumes_that_come_and_go_leave_no_long_log(tmp_path: Path) -> None:
    """By the administration's socket, as fast as one asker can: 17 KiB of log each, and all of it would be 27 MiB."""
    with running_daemon(tmp_path / "d") as daemon:
        wal = daemon.directory / "state.db-wal"
        sizes = [wal.stat().st_size]
        for number in range(1600):
            daemon.admin.request("create", name=f"v{number}", options={"gpus": "all", "memory": "1g"})
            daemon.admin.request("remove", name=f"v{number}")
            sizes.append(wal.stat().st_size)
            assert sizes[-1] < 20 << 20, f"after {number + 1} volumes"
            if sum(later < earlier for earlier, later in pairwise(sizes)) == 2:
                break  # cut twice under load: it will be again
