"""The database: what is kept, what a damaged one costs, what a full disk changes."""

import asyncio
import random
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opened_store import BOUNDS, ENGINE, FULL, Later, fill, laid_out, opened
from rounds import rounds

from convgpu.core.liveness import Mount
from convgpu.core.placement import Choice, Placement
from convgpu.daemon.storage.database import DatabaseError, checkpoint
from convgpu.daemon.storage.history import History
from convgpu.daemon.storage.rows import Holding, PreviousSession, Volume
from convgpu.daemon.storage.transactions import SLICE
from convgpu.daemon.storage.write_queue import MAX_QUEUED_EVENTS


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a scheduler that was killed: suffix to content."""
    directory, later = tmp_path_factory.mktemp("full"), Later()
    with opened(directory, later) as store:
        fill(store)
        history = History(lambda: 5.0, store, BOUNDS)
        for _ in range(100):
            history.add("accepted", "volume-1", "s1.r1", uuid="gpu", size=5)
        later.pass_time()
        return {suffix: Path(f"{store.database.path}{suffix}").read_bytes() for suffix in ("", "-wal")}


def test_everything_is_there_again_after_a_kill(tmp_path: Path, full: dict[str, bytes]) -> None:
    with opened(laid_out(tmp_path / "d", full)) as store:
        assert store.volumes.all() == FULL
        assert store.sessions.all() == [PreviousSession(100 + n, 7, f"volume-{n}", "python") for n in range(12)]
        assert (store.devices.drained(), store.devices.memory()["gpu"].own, store.settings.get("policy")) == (
            {"gpu"},
            1,
            "fifo",
        )
        assert len(History(lambda: 5.0, store, BOUNDS).since(1)["events"]) == 100


def test_mounts_and_sessions_end_with_the_machine(tmp_path: Path, full: dict[str, bytes]) -> None:
    with opened(laid_out(tmp_path / "d", full), boot="another") as store:
        assert [(one.state, one.mounts, one.limits) for one in store.volumes.all()] == [
            ("ended", {}, {"gpu": 2 << 30})
        ] * 12
        assert store.sessions.all() == []


def check_sound(directory: Path, boot: str = "boot") -> list[Volume]:
    """Whatever lies there, a store opens, says only what was true, and keeps what it is given."""
    with opened(directory, boot=boot) as store:
        found = store.volumes.all()
        store.volumes.add(Volume("new", {}, 99.0))
        assert [one.name for one in store.volumes.all()] == [*(one.name for one in found), "new"]
    return found


@pytest.mark.parametrize("torn", ["", "-wal"])
def test_a_file_truncated_anywhere_costs_at_most_what_stood_behind(
    tmp_path: Path, full: dict[str, bytes], torn: str, caplog: pytest.LogCaptureFixture
) -> None:
    size = len(full[torn])
    directory = tmp_path / "d"
    for cut in sorted({*range(0, size, max(size // 120, 1)), *range(0, 130, 7), size - 1}):
        caplog.clear()
        files = full | {torn: full[torn][:cut]}
        if not torn:  # as after a power loss between a checkpoint and the next write
            files["-wal"] = b""
        for volume in check_sound(laid_out(directory, files)):
            assert (volume.name, volume.options) in [(one.name, one.options) for one in FULL]
        aside = directory / "state.damaged.db"
        assert aside.exists() == any("is moved to" in record.message for record in caplog.records)


@given(st.data())
@settings(max_examples=rounds(120, few=40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_anywhere_are_never_fatal(tmp_path: Path, full: dict[str, bytes], data: st.DataObject) -> None:
    files = dict(full)
    for suffix in sorted(data.draw(st.sets(st.sampled_from(["", "-wal"]), min_size=1))):
        content = bytearray(files[suffix])
        for _ in range(data.draw(st.integers(1, 8))):
            start = data.draw(st.integers(0, len(content) - 1))
            dirt = data.draw(st.binary(min_size=1, max_size=64))
            content[start : start + len(dirt)] = dirt
        files[suffix] = bytes(content)
    check_sound(laid_out(tmp_path / "d", files))


def snapshots(directory: Path) -> list[dict[str, bytes]]:
    """Both files again and again while volumes come and go and the log is moved into the file."""
    directory.mkdir()
    later, seen = Later(), []
    with opened(directory, later) as store:
        for number in range(60):
            store.volumes.add(Volume(f"volume-{number}", {"memory": "2g"}, float(number), limits={"gpu": number + 1}))
            store.volumes.set_mounts(f"volume-{number}", {"id": Mount(1, 3.0)}, "running", 3.0)
            store.sessions.add(PreviousSession(100 + number, 7, f"volume-{number}", "python"))
            if number >= 20:
                store.volumes.remove(f"volume-{number - 20}")
            if number % 7 == 3:
                checkpoint(store.database.path)
            seen.append({suffix: Path(f"{store.database.path}{suffix}").read_bytes() for suffix in ("", "-wal")})
    return seen


def test_what_a_power_loss_may_leave_is_never_fatal_and_never_false(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """File and log of different moments, blocks of zeros, pages of before; all at once, as with a disk that lies."""
    seen = snapshots(tmp_path / "whole")
    draw = random.Random(6)  # noqa: S311 - the same losses again
    for _ in range(rounds(150, few=50)):
        early, late = sorted(draw.choices(range(len(seen)), k=2))
        base = bytearray(seen[draw.choice((early, late))][""])
        log = bytearray(seen[draw.choice((early, late))]["-wal"])
        for content, before in ((base, seen[early][""]), (log, seen[early]["-wal"])):
            for _ in range(draw.choice((0, 0, 1, 3))):
                start = draw.randrange(max(len(content) // 4096, 1)) * 4096
                old = before[start : start + 4096] if draw.random() < 0.5 else b""
                content[start : start + 4096] = old.ljust(min(4096, len(content) - start), b"\0")
        caplog.clear()
        for volume in check_sound(laid_out(tmp_path / "d", {"": bytes(base), "-wal": bytes(log)}), boot="another"):
            number = int(volume.name.removeprefix("volume-"))
            assert (volume.options, volume.mounts, volume.state != "running") == ({"memory": "2g"}, {}, True)
            assert volume.limits in ({"gpu": number + 1}, {})
        aside = tmp_path / "d/state.damaged.db"
        assert aside.exists() == any("is moved to" in record.message for record in caplog.records)


def test_what_can_be_read_of_a_damaged_file_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(tmp_path) as store:
        fill(store)
        [(page,)] = store.database.rows("SELECT rootpage FROM sqlite_schema WHERE name = 'history'")
    content = bytearray((tmp_path / "state.db").read_bytes())
    start = (int(str(page)) - 1) * 4096
    content[start : start + 4096] = b"\xff" * 4096
    (tmp_path / "state.db").write_bytes(content)
    with opened(tmp_path) as store:
        assert [(one.name, one.mounts, one.limits) for one in store.volumes.all()] == [
            (one.name, one.mounts, one.limits) for one in FULL
        ]
        assert not store.sessions.complete
    assert "is moved to" in caplog.text
    assert "rows were saved" in caplog.text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("PRAGMA user_version = 9", "schema version 9, this scheduler writes 4"),
        ("DROP TABLE mounts", "it has 8 tables"),
    ],
)
def test_another_version_is_moved_aside(
    tmp_path: Path, change: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as store:
        fill(store)
    connection = sqlite3.connect(tmp_path / "state.db")
    connection.execute(change)
    connection.close()
    check_sound(tmp_path)
    assert text in caplog.text
    assert (tmp_path / "state.damaged.db").exists()


def test_a_database_of_the_version_before_gets_what_is_new(tmp_path: Path) -> None:
    """Its volumes were made when a limit without `gpus` was for all devices, and stay what they were."""
    with opened(tmp_path) as store:
        fill(store)
    with opened(tmp_path) as store:
        before = store.volumes.all()
    connection = sqlite3.connect(tmp_path / "state.db")
    connection.executescript(
        "DROP TABLE placements; ALTER TABLE holdings DROP COLUMN out; ALTER TABLE holdings DROP COLUMN fixed;"
        "ALTER TABLE containers DROP COLUMN changed; PRAGMA user_version = 1;"
    )
    connection.close()
    with opened(tmp_path) as store:
        assert store.volumes.all() == before
        assert all(volume.choice is None for volume in before)
        store.volumes.add(Volume("new", {}, 1.0, choice=Choice(2)))
        store.volumes.set_placement("new", Placement(("g0", "g1"), "spread"))
    with opened(tmp_path) as store:
        [new] = [volume for volume in store.volumes.all() if volume.name == "new"]
        assert (new.choice, new.placed) == (Choice(2), Placement(("g0", "g1"), "spread"))
        store.volumes.change("new", {}, {"wait": None, "priority": "3"})
        assert [v.changed for v in store.volumes.all() if v.name == "new"] == [{"wait": None, "priority": "3"}]
        store.volumes.set_placement("new", None)
        assert [volume.placed for volume in store.volumes.all() if volume.name == "new"] == [None]
    assert not (tmp_path / "state.damaged.db").exists()


@pytest.mark.parametrize("what", ["folder", "empty", "text", "other"])
def test_what_is_no_database_of_ours_is_replaced(tmp_path: Path, what: str) -> None:
    path = tmp_path / "state.db"
    match what:
        case "folder":
            path.mkdir()
        case "empty":
            path.touch()
        case "text":
            path.write_text("SQLite format 3" * 1000)
        case "other":
            connection = sqlite3.connect(path)
            connection.executescript("CREATE TABLE t (a); PRAGMA user_version = 1;")
            connection.close()
    assert check_sound(tmp_path) == []


def test_a_full_disk_changes_nothing_and_is_told_once_for_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    later = Later()
    with opened(tmp_path, later) as store:
        fill(store)
        later.pass_time()
        history = History(lambda: 5.0, store, BOUNDS)
        [(pages,)] = store.database.rows("PRAGMA page_count")
        store.database.rows(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(DatabaseError, match=r"state\.db cannot be written: database or disk is full"):
            store.volumes.add(Volume("large", {"memory": "x" * 100_000}, 1.0))
        for _ in range(3):
            for _ in range(SLICE):
                history.add("accepted", "volume-1", "x" * 1000)
            later.pass_time()
        assert store.volumes.all() == FULL
        assert caplog.text.count("cannot be written, which is tried again") == 1
        store.database.rows("PRAGMA max_page_count = 100000")
        history.add("ended", "volume-1", "here again")
        later.try_again()
        assert "can be written again; 0 events of the history are lost" in caplog.text
        assert store.database.rows("SELECT cause FROM history WHERE kind = 'ended'") == [("here again",)]
        assert store.database.rows("SELECT count(*) FROM history WHERE kind = 'accepted'") == [(3 * SLICE,)]
        # Nothing piles up for a disk that never comes back.
        for _ in range(MAX_QUEUED_EVENTS + 5):
            store.database.later("SELECT ?", (1,))
        assert len(store.database._queue) == MAX_QUEUED_EVENTS


def test_a_row_that_can_never_be_written_costs_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    later = Later()
    with opened(tmp_path, later) as store:
        history = History(lambda: 5.0, store, BOUNDS)
        for number in range(SLICE):
            history.add("accepted", "a", f"r{number}")
            if number == SLICE // 2:
                store.database.later("INSERT INTO holdings VALUES (?, ?, 0, 0, 0, 0, 0)", ("nobody", "gpu"))
                store.database.later("INSERT INTO nothing VALUES (?)", (1,))
                store.database.later("SELECT ?", ["\ud800"])
        later.pass_time()
        assert store.database.rows("SELECT count(*) FROM history") == [(SLICE,)]
        assert (store.trouble, caplog.text.count("a row is left out of the database")) == ("", 3)


def test_what_the_ledger_needs_is_written_as_soon_as_it_can_be(tmp_path: Path) -> None:
    """However much history comes meanwhile, and in the order in which it became true."""
    later = Later()
    one, two, three = (PreviousSession(100 + number, 7, "volume-1", "python") for number in range(3))
    with opened(tmp_path, later) as store:
        fill(store)
        store.sessions.add(one)
        later.pass_time()
        history = History(lambda: 5.0, store, BOUNDS)
        other = sqlite3.connect(store.database.path)
        other.execute("BEGIN IMMEDIATE")
        store.sessions.drop(one)
        store.sessions.add(two)
        store.sessions.add(three)
        store.sessions.drop(three)
        store.volumes.set_limit_in_force("volume-1", "gpu", 5, None)
        store.volumes.set_limit_in_force("volume-1", "gpu", 6, None)
        for _ in range(MAX_QUEUED_EVENTS + 10):
            history.add("accepted", "volume-1", "x")
        later.try_again()
        assert "database is locked" in store.trouble
        other.close()
        store.sessions.add(one)  # it is back
        later.try_again()
        assert {one, two} <= set(store.sessions.all())
        assert three not in store.sessions.all()
        assert store.database.rows("SELECT most FROM holdings WHERE container = 'volume-1'") == [(6,)]
        assert store.database.rows("SELECT max(sequence) FROM history") == [(MAX_QUEUED_EVENTS + 10,)]
        assert store.trouble == ""


def test_queued_facts_of_a_removed_volume_are_not_written_to_the_next_of_its_name(tmp_path: Path) -> None:
    later, again = Later(), Volume("v", {}, 2.0, since=2.0, limits={"gpu": 2 << 30})
    with opened(tmp_path, later) as store:
        for name in ("v", "w"):
            store.volumes.add(Volume(name, {}, 1.0, since=1.0, limits={"gpu": 1 << 30}))
            store.volumes.set_limit_in_force(name, "gpu", 8 << 30, 4 << 30)
            store.volumes.set_holding(name, "gpu", Holding(5, 4, 2, 1))
            store.volumes.set_engine(name, ENGINE)
        store.volumes.remove("v")
        store.volumes.add(again)
        later.pass_time()
        kept = Volume("w", {}, 1.0, since=1.0, limits={"gpu": 8 << 30}, engine=ENGINE)
        assert store.volumes.all() == [kept, again]
        assert store.volumes.targets() == {"w": {"gpu": 4 << 30}}
        figures = "SELECT container, granted, used FROM holdings ORDER BY container"
        assert store.database.rows(figures) == [("v", 0, 0), ("w", 5, 4)]


def test_queued_facts_of_a_volume_that_could_not_be_removed_are_written(tmp_path: Path) -> None:
    later = Later()
    with opened(tmp_path, later) as store:
        store.volumes.add(Volume("v", {}, 1.0, since=1.0, limits={"gpu": 1 << 30}))
        store.volumes.set_limit_in_force("v", "gpu", 8 << 30, None)
        other = sqlite3.connect(store.database.path)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match="database is locked"):
            store.volumes.remove("v")
        other.close()
        later.try_again()
        assert [volume.limits for volume in store.volumes.all()] == [{"gpu": 8 << 30}]


def test_somebody_who_locks_the_file_is_named_in_the_refusal(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        other = sqlite3.connect(store.database.path)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match="database is locked"):
            store.volumes.add(Volume("a", {}, 1.0))
        other.close()
        store.volumes.add(Volume("a", {}, 1.0))


def test_no_value_stops_what_comes_behind_it(tmp_path: Path) -> None:
    later = Later()
    with opened(tmp_path, later) as store:
        history = History(lambda: 5.0, store, BOUNDS)
        history.add("rejected", "a", "x", size=(1 << 64) - 1)
        later.pass_time()
        store.database.later("SELECT ?", ["\ud800"])
        later.pass_time()
        history.add("ended", "a", "x")
        later.pass_time()
        store.volumes.add(Volume("b", {}, 1.0))
        kinds = [("rejected", (1 << 63) - 1), ("ended", None)]
        assert store.database.rows("SELECT kind, size FROM history ORDER BY sequence") == kinds


def test_durable_means_synced_and_says_when_it_cannot_be(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.volumes.add(Volume("a", {}, 1.0))
        asyncio.run(store.durable())
        store.database.path.with_name("state.db-wal").unlink()
        with pytest.raises(OSError, match=r"state\.db-wal"):
            asyncio.run(store.durable())


def test_what_is_due_when_it_is_closed_happens_no_more(tmp_path: Path) -> None:
    """The scheduler's loop goes on for a moment: a traceback stood in the log of a plugin that was disabled."""
    later = Later()
    with opened(tmp_path, later) as store:
        fill(store)
        store.database.later("INSERT OR REPLACE INTO settings VALUES ('late', '1')", ())
    assert len(later.due) == 2  # what is to be written, and a checkpoint
    later.pass_time(longest=3600)
    with opened(tmp_path) as again:
        assert again.settings.get("late") == "1"
