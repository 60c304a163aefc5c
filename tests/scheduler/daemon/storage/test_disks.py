"""Disks that are full, out of inodes, read-only or gone while the scheduler works: what is lost, and what is not."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from daemon import GIB, Daemon, Process, running_daemon, wait_until

from convgpu.client.scheduler import SchedulerRefused
from convgpu.protocol import messages as m
from convgpu.protocol.folder_names import folder_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a disk needs root")
MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of 6 MiB and 400 files for the scheduler in `d`; its log lies elsewhere."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,nr_inodes=400", "none", str(place)], check=True)
    (place / "d").mkdir()
    (place / "d/log").symlink_to(tmp_path / "log")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Callable[[], None]:
    """Not a byte is left."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        while True:
            try:
                filler.write(bytes(4096))
            except OSError:
                break
    return (disk / "filler").unlink


def use_up_inodes(disk: Path) -> Callable[[], None]:
    folder = disk / "files"
    folder.mkdir()
    try:
        for number in range(1000):
            (folder / str(number)).touch()
    except OSError:
        pass
    return lambda: shutil.rmtree(folder)


def make_read_only(disk: Path) -> Callable[[], None]:
    """As a file system does that found an error: whoever has files open cannot write them any more."""
    database = disk / "d/state.db"
    other = sqlite3.connect(database)
    other.execute("BEGIN IMMEDIATE")  # tmpfs refuses to become read-only while files are open for writing
    return other.close


def sessions(daemon: Daemon) -> set[int]:
    with closing(sqlite3.connect(daemon.directory / "state.db")) as database:
        return {pid for (pid,) in database.execute("SELECT pid FROM sessions")}


def database(daemon: Daemon) -> str:
    return str(daemon.admin.request("devices")["database"])


def load(process: Process, times: int) -> None:
    """Allocations that each need a decision, and so an event of the history."""
    for _ in range(times):
        assert isinstance(process.ask(m.Allocate(0, 5 * GIB, "x" * 30)), m.Rejected)


@pytest.mark.parametrize("trouble", [fill, make_read_only])
def test_a_disk_that_takes_nothing_stops_nobody_and_costs_history_only(
    disk: Path, trouble: Callable[[Path], Callable[[], None]]
) -> None:
    with running_daemon(disk / "d", "simulated:16GiB", "--log=warning") as daemon:
        folder = daemon.container("a", memory="4g")
        early = Process(folder)
        [row] = early.hello().devices
        over = trouble(disk)
        load(early, 3000)
        late = Process(folder)
        late.hello()
        assert late.ask(m.Allocate(0, GIB, "cuMemAlloc")) == m.Accepted(GIB, 0)
        late.hold(GIB)
        early.end()
        wait_until(lambda: "cannot be written" in database(daemon), "it is shown")
        with pytest.raises(SchedulerRefused, match=r"state\.db cannot be written|No space left"):
            daemon.container("b", memory="2g")
        assert late.ask(m.Query(0)) == m.Usage(4 * GIB, GIB, 0)
        over()
        wait_until(lambda: database(daemon) == "ok", "it is over")
        wait_until(lambda: sessions(daemon) == {late.pid}, "who is connected stands in the book")
        daemon.container("b", memory="2g")
        log = daemon.log.read_text()
        assert (log.count("cannot be written, which is tried again"), "Traceback" in log) == (1, False)
        daemon.kill()
        daemon.start()
        late.reconnect(((row.uuid, GIB),))
        assert late.ask(m.Query(0)) == m.Usage(4 * GIB, GIB, 0)


@pytest.mark.parametrize("trouble", [fill, use_up_inodes])
def test_a_scheduler_killed_on_a_full_disk_comes_up_again_without_room_and_grants_nothing_twice(
    disk: Path, trouble: Callable[[Path], Callable[[], None]]
) -> None:
    with running_daemon(disk / "d", "simulated:16GiB", "--log=warning") as daemon:
        holder = Process(daemon.container("a", memory="10g"))
        [row] = holder.hello().devices
        holder.ask(m.Allocate(0, 9 * GIB, "cuMemAlloc"))
        holder.hold(9 * GIB)
        daemon.container("b", memory="10g")
        over = trouble(disk)
        daemon.kill()
        daemon.start()
        other = Process(daemon.directory / f"containers/{folder_of('b')}")
        other.hello()
        request = other.allocate(8 * GIB)
        holder.reconnect(((row.uuid, 9 * GIB),))
        assert holder.ask(m.Query(0)) == m.Usage(10 * GIB, 9 * GIB, 0)
        wait_until(lambda: daemon.state("b")["state"] == "waiting", "b waits")
        if trouble is fill:
            assert "cannot be written" in database(daemon)
        over()
        wait_until(lambda: database(daemon) == "ok", "it is over")
        wait_until(lambda: sessions(daemon) == {holder.pid, other.pid}, "who is connected stands in the book")
        holder.end()
        assert isinstance(other.answer(request), m.Accepted)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_scheduler_whose_directory_is_gone_ends(tmp_path: Path, how: str) -> None:
    """Another one may begin there: two would grant the same memory."""
    with running_daemon(tmp_path / "d") as daemon:
        assert daemon.process is not None
        (daemon.directory).rename(tmp_path / "gone")
        if how == "replaced":
            shutil.copytree(tmp_path / "gone", tmp_path / "d", ignore=shutil.ignore_patterns("*.sock"))
        assert daemon.process.wait(timeout=120) == 1
        assert "was removed or replaced while this scheduler worked there" in (tmp_path / "gone/log").read_text()
