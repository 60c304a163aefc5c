"""What the controller remembers, over its end."""

from pathlib import Path

import pytest

from convgpu.cli.cluster.controller_store import Store
from convgpu.cli.terminal.errors import Refused, Unavailable
from convgpu.cluster.controller.record import JobRecord, KindRecord

JOB = JobRecord(1, "alice", "k", 2, requeues=True, asked=8, shards=4, seconds=12.5, factor=400_000)
KIND = KindRecord("alice", "k", 2, [12.5], [3 << 30])


def test_what_is_saved_is_there_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep/state")
    store.save([JOB, JobRecord(2, "bob", "k", 1, requeues=True, asked=None, shards=None)], [], [KIND])
    store.save([], [2], [])
    store.close()
    again = Store(tmp_path / "deep/state")
    assert (again.jobs(), again.kinds()) == ([JOB], [KIND])
    again.close()


def test_a_full_disk_takes_all_of_it_or_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    store.save([JOB], [], [])
    store._connection.execute("PRAGMA max_page_count = 1")  # it stays as large as it is
    larger = KindRecord("bob", "k" * 100_000, 1)
    with pytest.raises(Unavailable, match=r"state: database or disk is full; .* is not saved\.\nSee: df /"):
        store.save([], [JOB.job], [larger])
    assert (store.jobs(), store.kinds()) == ([JOB], [])
    store._connection.execute("PRAGMA max_page_count = 1000")
    store.save([], [JOB.job], [larger])
    assert (store.jobs(), store.kinds()) == ([], [larger])
    store.close()


def test_one_controller_at_a_time(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    with pytest.raises(Refused, match="another controller runs with this file"):
        Store(tmp_path / "state")
    store.close()
    Store(tmp_path / "state").close()


def test_a_damaged_file_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"no database" * 100)
    store = Store(tmp_path / "state")
    assert store.jobs() == []
    assert (tmp_path / "state.damaged").exists()
    store.close()


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="Name another file: --state FILE"):
        Store(tmp_path / "file/state")
