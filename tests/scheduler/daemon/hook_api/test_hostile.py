"""What a container, a disk or a neighbour does to the scheduler's files and descriptors."""

import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest
from daemon import GIB, Daemon, Process, running_daemon, wait_until

from convgpu.client.scheduler import SchedulerRefused
from convgpu.protocol import messages as m
from convgpu.protocol.messages import pack


@pytest.fixture
def mounted(daemon: Daemon) -> tuple[Daemon, Path]:
    return daemon, daemon.container("a", memory="2g")


def restart(daemon: Daemon) -> None:
    daemon.kill()
    daemon.start()


@pytest.mark.parametrize("name", ["ld.so.preload", "libconvgpu.so", "scheduler.sock", "driver"])
@pytest.mark.parametrize("trap", ["link", "pipe", "folder"])
def test_nothing_that_a_container_puts_in_its_folder_is_followed_or_read(
    mounted: tuple[Daemon, Path], tmp_path: Path, name: str, trap: str
) -> None:
    daemon, folder = mounted
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").write_text("precious")
    daemon.kill()
    target = folder / name
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    match trap:
        case "link":
            target.symlink_to(victim if name == "driver" else victim / "precious")
        case "pipe":
            os.mkfifo(target)
        case "folder":
            target.mkdir()
            (target / "stuff").write_text("x")
    daemon.start()
    assert [entry.name for entry in victim.iterdir()] == ["precious"]
    assert (victim / "precious").read_text() == "precious"
    process = Process(folder)
    assert process.hello().devices[0].limit == 2 * GIB
    assert not target.is_symlink()
    assert (folder / "driver/state").samefile(daemon.directory / "driver/state")


def test_a_volume_that_does_not_fit_today_is_there_tomorrow(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        daemon.admin.request("create", name="a", options={"memory": "10g"})
        daemon.options.append("--reserve=8g")
        restart(daemon)
        with pytest.raises(
            SchedulerRefused, match=r"volume a cannot be used now: memory=GPU-\S+:10240m: GPU-\S+ has 8GiB to hand out"
        ):
            daemon.admin.request("mount", name="a", id="1")
        daemon.options.pop()
        restart(daemon)
        assert daemon.state("a")["devices"][0]["limit"] == 10 * GIB


@pytest.mark.parametrize("option", ["--reserve=8g", "--devices=simulated:8GiB"])
def test_a_setting_counts_after_a_restart_whatever_is_mounted(mounted: tuple[Daemon, Path], option: str) -> None:
    daemon, _ = mounted
    daemon.options.append(option)
    restart(daemon)
    assert daemon.admin.request("devices")["devices"][0]["capacity"] == 8 * GIB


def test_a_second_scheduler_in_the_same_directory_is_refused(mounted: tuple[Daemon, Path]) -> None:
    daemon, folder = mounted
    second = subprocess.run(daemon.command, capture_output=True, text=True, timeout=120, check=False)
    assert second.returncode == 1
    assert "another convgpud is at work" in second.stdout
    assert Process(folder).hello().devices


def test_a_device_that_is_all_reserved_is_shown_and_the_others_work(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB,8GiB", "--reserve=8g") as daemon:
        devices = daemon.admin.request("devices")["devices"]
        assert [(one["total"], one["capacity"]) for one in devices] == [(16 * GIB, 8 * GIB), (8 * GIB, 0)]
        daemon.container("a", memory="2g")
        assert len(daemon.state("a")["devices"]) == 1


@pytest.mark.parametrize("op", ["create", "mount", "unmount"])
def test_a_change_that_cannot_be_saved_is_refused_and_changes_nothing(daemon: Daemon, op: str) -> None:
    if op != "create":
        daemon.admin.request("create", name="a", options={"memory": "2g"})
    if op == "unmount":
        daemon.admin.request("mount", name="a", id="1")
    if op != "create":
        wait_until(lambda: daemon.state("a")["devices"][0]["seen"] is not None, "the audit has looked")
    before = daemon.admin.request("containers")
    fields = {"options": {"memory": "2g"}} if op == "create" else {"id": "1"}
    other = sqlite3.connect(daemon.directory / "state.db")
    other.execute("BEGIN IMMEDIATE")  # stands for a full disk
    with pytest.raises(SchedulerRefused, match="could not do it"):
        daemon.admin.request(op, name="a", **fields)
    other.close()
    assert daemon.admin.request("containers") == before
    daemon.admin.request(op, name="a", **fields)
    assert daemon.admin.request("containers") != before


def test_what_a_client_sends_cannot_forge_lines_of_the_log(daemon: Daemon) -> None:
    process = Process(daemon.container("a"))
    process.socket.sendall(pack(m.Hello(1, "x", "1\nlevel=ERROR forged"), 1))
    process.received()
    wait_until(lambda: "forged" in daemon.log.read_text(), "it is logged")
    assert "\nlevel=ERROR" not in daemon.log.read_text()


def test_too_long_a_request_is_refused_and_not_taken_for_a_dead_scheduler(daemon: Daemon) -> None:
    with pytest.raises(SchedulerRefused, match="at most 4096 characters"):
        daemon.admin.request("create", name="a", options={"memory": "9" * 70_000})
