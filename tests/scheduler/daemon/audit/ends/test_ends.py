"""Processes that got SIGKILL: what delays their end is taken away, and why they are still there is said."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from daemon import ended_with_test, wait_until

from convgpu.daemon.audit.ends import survivors
from convgpu.daemon.audit.ends.survivors import Ender, describe
from convgpu.daemon.audit.ends.terminate import Order
from convgpu.daemon.system.processes import cgroups
from convgpu.daemon.system.processes.fuse import Connection
from convgpu.daemon.system.processes.waits import Wait
from convgpu.daemon.system.procfs import containers_of

CGROUPS = Path("/sys/fs/cgroup")
ID = "e" * 64
NAME = f"docker-{ID}.scope"  # as the Engine names it with systemd
# It touches 200 MiB and then runs, so that its quota is used up.
HOG = """
import mmap
memory = mmap.mmap(-1, 200 << 20)
memory.write(b"x" * len(memory))
print(flush=True)
while True: pass
"""


@pytest.fixture
def controlled() -> Iterator[dict[str, Path]]:
    """Cgroups of one container, by what they control; below them one that it made itself."""
    if os.geteuid() != 0 or not os.access(CGROUPS / "cpu/cgroup.procs", os.W_OK):
        pytest.skip("no cgroups of version 1 can be made here")
    groups = {kind: CGROUPS / kind / NAME for kind in ("cpu", "cpuset", "freezer")}
    for kind, group in groups.items():
        (group / "own").mkdir(parents=True)
        if kind == "cpuset":
            for each in (group, group / "own"):
                (each / "cpuset.mems").write_text("0")
                (each / "cpuset.cpus").write_text("0")
    yield groups
    for group in groups.values():
        wait_until(lambda group=group: not (group / "own/cgroup.procs").read_text(), "it is empty")
        (group / "own").rmdir()
        group.rmdir()


def order(container: str = ID) -> Order:
    def container_of(pid: int) -> str | None:
        return next(iter(containers_of(pid)), None)

    return Order(lambda pid: container_of(pid) == container, container_of)


def start(groups: dict[str, Path], *command: str) -> "AbstractContextManager[subprocess.Popen[bytes]]":
    enter = "".join(f"echo $$ >{group}/own/cgroup.procs; " for group in groups.values())
    words = ["bash", "-c", f'{enter}exec "$@"', "-", *command]
    return ended_with_test(subprocess.Popen(words, stdout=subprocess.PIPE))


def test_who_is_ended_is_gone_at_once_whatever_its_container_has_of_cpus(controlled: dict[str, Path]) -> None:
    surviving: dict[str, str] = {}
    with start(controlled, "python3", "-c", HOG) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (controlled["cpu"] / "cpu.cfs_period_us").write_text("1000000")
        (controlled["cpu"] / "cpu.cfs_quota_us").write_text("1000")
        (controlled["cpu"] / "own/cpu.shares").write_text("2")
        wait_until(lambda: "nr_throttled 0" not in (controlled["cpu"] / "cpu.stat").read_text(), "it is throttled")
        time_of_order = time.monotonic()
        Ender(surviving).end("x", order())
        assert process.wait() == -9
        assert time.monotonic() - time_of_order < 10  # with the quota minutes, without it some 50 ms
    everywhere = (CGROUPS / "cpuset/cpuset.cpus").read_text()
    free = {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/own/cpu.shares": "262144\n"}
    free |= {"cpuset/cpuset.cpus": everywhere, "cpuset/own/cpuset.cpus": everywhere}

    def files() -> dict[str, str]:
        return {name: (controlled[name.partition("/")[0]] / name.partition("/")[2]).read_text() for name in free}

    # It is gone as soon as the first of them are written.
    wait_until(lambda: files() == free, "all is free")
    assert surviving == {}


def test_a_frozen_container_is_ended_and_no_other_is_thawed(controlled: dict[str, Path]) -> None:
    other = CGROUPS / "freezer" / ("f" * 64)
    other.mkdir()
    try:
        with start(controlled, "sleep", "600") as process, start({}, "sleep", "600") as neighbour:
            (other / "cgroup.procs").write_text(str(neighbour.pid))
            states = [group / "freezer.state" for group in (controlled["freezer"], other)]
            try:
                for state in states:
                    state.write_text("FROZEN")
                wait_until(lambda: states[0].read_text() == "FROZEN\n", "it is frozen")
                Ender({}).end("x", order())
                assert process.wait() == -9
                assert states[1].read_text() == "FROZEN\n"
            finally:
                for state in states:
                    state.write_text("THAWED")
    finally:
        wait_until(lambda: not (other / "cgroup.procs").read_text(), "it is empty")
        other.rmdir()


@pytest.fixture
def unified() -> Iterator[Path]:
    """A container's cgroup of version 2, with the controllers that version 1 leaves to it; below it one of its own."""
    parent = next((each for each in (CGROUPS / "unified", CGROUPS) if (each / "cgroup.controllers").exists()), None)
    if os.geteuid() != 0 or parent is None or not os.access(parent / "cgroup.procs", os.W_OK):
        pytest.skip("no cgroups of version 2 can be made here")
    group = parent / NAME
    (group / "own").mkdir(parents=True)
    for controller in (group / "cgroup.controllers").read_text().split():
        (group / "cgroup.subtree_control").write_text(f"+{controller}")
    yield group
    wait_until(lambda: not (group / "own/cgroup.procs").read_text(), "it is empty")
    (group / "own").rmdir()
    group.rmdir()


def test_with_version_2_a_frozen_container_is_ended_and_thawed(unified: Path) -> None:
    with start({"": unified}, "sleep", "600") as process:
        wait_until(lambda: containers_of(process.pid) == [ID], "it is in its cgroup")
        (unified / "cgroup.freeze").write_text("1")
        wait_until(lambda: cgroups.is_frozen(f"0::/{NAME}/own\n"), "it is frozen")
        Ender({}).end("x", order())
        assert process.wait() == -9
    wait_until(lambda: (unified / "cgroup.freeze").read_text() == "0\n", "it is thawed")
    assert not cgroups.is_frozen(f"0::/{NAME}/own\n")


def test_with_version_2_who_is_ended_is_gone_at_once_whatever_its_container_has_of_cpus(unified: Path) -> None:
    if not (unified / "own/cpu.max").exists() or not (unified / "own/cpuset.cpus").exists():
        pytest.skip("version 2 of cgroups limits no CPUs here")
    own = unified / "own"
    with start({"": unified}, "python3", "-c", HOG) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (unified / "cpuset.cpus").write_text("0")
        (own / "cpuset.cpus").write_text("0")
        (own / "cpu.idle").write_text("1")
        (unified / "cpu.max").write_text("1000 1000000")
        wait_until(lambda: "nr_throttled 0" not in (unified / "cpu.stat").read_text(), "it is throttled")
        time_of_order = time.monotonic()
        Ender({}).end("x", order())
        assert process.wait() == -9
        assert time.monotonic() - time_of_order < 10  # with the quota minutes
    everywhere = (unified.parent / "cpuset.cpus.effective").read_text()
    files = ("cpu.max", "own/cpu.idle", "own/cpu.weight", "cpuset.cpus", "own/cpuset.cpus")
    assert [(unified / file).read_text() for file in files] == ["max 1000000\n", "0\n", "10000\n", *[everywhere] * 2]


def test_with_version_2_speeds_of_disks_are_taken_away(unified: Path) -> None:
    if not (unified / "io.max").exists():
        pytest.skip("version 2 of cgroups limits no disks here")
    disk = next((each / "dev").read_text().strip() for each in sorted(Path("/sys/block").glob("[!lr]*")))
    for group in (unified, unified / "own"):
        (group / "io.max").write_text(f"{disk} rbps=1000 wiops=10")
    cgroups.free([f"0::/{NAME}/own\n"], ID)
    assert [(group / "io.max").read_text() for group in (unified, unified / "own")] == ["", ""]


def test_what_is_written_with_version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files in place of the kernel's: few machines have controllers of both versions."""
    monkeypatch.setattr(cgroups, "_hierarchies", lambda: (cgroups._Hierarchy(frozenset({""}), "", tmp_path),))
    limits = {
        "cpu.max": "1000 1000000",
        "cpu.idle": "1",
        "cpu.weight": "1",
        "cpuset.cpus": "0",
        "cgroup.freeze": "1",
        "io.max": "254:0 rbps=1000 wbps=max riops=max wiops=10",
    }
    parent = tmp_path / "system.slice"
    for folder in (parent, parent / NAME, parent / NAME / "own", parent / f"docker-{'f' * 64}.scope"):
        folder.mkdir(parents=True)
        (folder / "cpuset.cpus.effective").write_text("0-1")
        for name, text in limits.items():
            (folder / name).write_text(text)
    cgroups.free([f"9:name=systemd:/x\n0::/system.slice/{NAME}/own\n"], ID)
    freed = {
        "cpu.max": "max",
        "cpu.idle": "0",
        "cpu.weight": "10000",
        "cpuset.cpus": "0-1",
        "cgroup.freeze": "0",
        "io.max": "254:0 rbps=max wbps=max riops=max wiops=max",
    }
    told = {
        str(folder.relative_to(parent)): {name: (folder / name).read_text() for name in limits}
        for folder in (parent, *(each for each in parent.rglob("*") if each.is_dir()))
    }
    assert told == {".": limits, NAME: freed, f"{NAME}/own": freed, f"docker-{'f' * 64}.scope": limits}


def test_speeds_of_disks_are_taken_away() -> None:
    """A read that waits for its turn of a disk hears no signal."""
    group = CGROUPS / "blkio" / NAME
    if os.geteuid() != 0 or not os.access(group.parent / "cgroup.procs", os.W_OK):
        pytest.skip("no cgroups of version 1 can be made here")
    disk = next((each / "dev").read_text().strip() for each in sorted(Path("/sys/block").iterdir()))
    group.mkdir()
    try:
        files = [
            group / f"blkio.throttle.{name}_device" for name in ("read_bps", "write_bps", "read_iops", "write_iops")
        ]
        for file in files:
            file.write_text(f"{disk} 1000")
        cgroups.free([f"7:blkio:/{NAME}\n"], ID)
        assert [file.read_text() for file in files] == [""] * 4
    finally:
        group.rmdir()


_ODD_MOUNT = """
import os, subprocess, sys
from convgpu.daemon.system.mounts import mounts_of
from convgpu.daemon.system.processes import cgroups
point = os.fsencode(sys.argv[1]) + b"/\\xff\\x85\\r x"
os.mkdir(point)
subprocess.run(["mount", "-t", "tmpfs", "none", point], check=True)
cgroups.free(["0::/a\\x0b/docker-%s.scope/\\udcff\\n" % sys.argv[2]], sys.argv[2])
assert [mount.point for mount in mounts_of("self")][-1] == point
assert not cgroups.is_frozen("7:freezer:/a\\x0b\\x85/b\\n0::/")
"""


def test_odd_bytes_in_names_of_mounts_and_cgroups_keep_nobody_from_being_ended(tmp_path: Path) -> None:
    """Users of the host choose both: where they mount what they serve (FUSE), and their own cgroups."""
    if os.geteuid() != 0:
        pytest.skip("a mount needs root")
    subprocess.run(["unshare", "--mount", sys.executable, "-c", _ODD_MOUNT, tmp_path, ID], check=True)


def test_a_fault_leaves_no_descriptor_behind(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_pid: int) -> str | None:
        if has_failed:
            raise ValueError("odd")
        has_failed.append(True)
        return None

    has_failed: list[bool] = []
    before = pidfds()
    with subprocess.Popen(["sleep", "600"]) as one, subprocess.Popen(["sleep", "600"]) as other:
        pids = [one.pid, other.pid]
        Ender({}).end("x", Order(pids.__contains__, fail, lambda: pids))
        wait_until(lambda: "x could not be ended" in caplog.text, "it is told")
        other.kill()
    wait_until(lambda: pidfds() <= before, "none is left")


def pidfds() -> set[Path]:
    return {each for each in Path("/proc/self/fd").iterdir() if each.is_symlink() and "pidfd" in str(each.readlink())}


def test_who_is_still_there_is_told_of_until_it_is_gone(
    controlled: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Frozen without the Ender's knowledge: by a cgroup that is not below the container's."""
    monkeypatch.setattr(survivors, "_PATIENCE", 0.2)
    groups = {kind: group for kind, group in controlled.items() if kind != "freezer"}
    outside = CGROUPS / "freezer/outside"
    outside.mkdir()
    surviving: dict[str, str] = {}
    try:
        with start(groups, "sleep", "600") as process:
            wait_until(lambda: containers_of(process.pid) == [ID], "it is in its cgroup")
            (outside / "cgroup.procs").write_text(str(process.pid))
            (outside / "freezer.state").write_text("FROZEN")
            wait_until(lambda: (outside / "freezer.state").read_text() == "FROZEN\n", "it is frozen")
            ender = Ender(surviving)
            ender.end("container x", order())
            wait_until(lambda: "is frozen: docker unpause" in surviving.get("container x", ""), "it is told of")
            assert f"pid {process.pid} (state" in surviving["container x"]
            ender.end("container x", order())  # the audit goes on to order it
            (outside / "freezer.state").write_text("THAWED")
            assert process.wait() == -9
            wait_until(lambda: not surviving, "nothing is told of it any more")
            wait_until(lambda: len(caplog.records) > 1, "its end is logged")
        told = [record.getMessage() for record in caplog.records]
        assert [line.partition(" s")[0].rpartition(" ")[0] for line in told] == [
            "container x was ended",
            "container x is gone,",
        ]
    finally:
        (outside / "freezer.state").write_text("THAWED")
        wait_until(lambda: not (outside / "cgroup.procs").read_text(), "it is empty")
        outside.rmdir()


SERVER = (
    "pid 7 (state D, in request_wait_answer) waits in the kernel, for a disk, a file server, or the closing of "
    "its own files; FUSE connections with "
    "open requests: 53 of user 1001. To abort one: echo 1 >/sys/fs/fuse/connections/NUMBER/abort"
)
FROZEN = "pid 7 (state D, in hrtimer_nanosleep) is frozen: docker unpause, or thaw its cgroup"


@pytest.mark.parametrize(
    ("wait", "text"),
    [
        (Wait(7, "R"), "pid 7 (state R, in ?) runs: it gives its memory back, or gets no CPU"),
        (Wait(7, "S", "do_wait"), "pid 7 (state S, in do_wait) waits"),
        (Wait(7, "D", "hrtimer_nanosleep", is_frozen=True), FROZEN),
        (Wait(7, "t", "ptrace_stop", 9), "pid 7 (state t, in ptrace_stop) may have stopped for its tracer: end pid 9"),
        (Wait(7, "D", "request_wait_answer"), SERVER),
    ],
)
def test_what_is_said(wait: Wait, text: str) -> None:
    assert describe([wait], [Connection(53, 1001)]) == text


def test_an_order_for_which_no_thread_could_be_started_is_carried_out_at_the_next(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody took all process IDs at that moment."""

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with subprocess.Popen(["sleep", "600"]) as process:
        found = Order(lambda pid: pid == process.pid, lambda _: None, lambda: [process.pid])
        ender, begin = Ender({}), threading.Thread.start
        monkeypatch.setattr(threading.Thread, "start", fail)
        ender.end("x", found)
        monkeypatch.setattr(threading.Thread, "start", begin)
        assert process.poll() is None
        ender.end("x", found)
        assert process.wait(60) == -signal.SIGKILL
    assert [record.getMessage() for record in caplog.records] == ["x cannot be ended now: can't start new thread"]
