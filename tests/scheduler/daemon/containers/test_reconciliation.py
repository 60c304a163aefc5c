"""The third signal: what the Engine lists, against a real scheduler."""

import hashlib
import shutil
import time
from pathlib import Path

import pytest
from daemon import GIB, Daemon, Process, running_daemon, wait_until

from convgpu.protocol import messages as m


def row(name: str, state: str = "running", number: int = 1) -> dict[str, object]:
    container = hashlib.sha256(f"{name} {number}".encode()).hexdigest()
    return {
        "id": container,
        "name": f"c-{name}",
        "image": "cuda",
        "state": state,
        "volumes": [name],
        "labels": {"convgpu.user": "ana"},
    }


def tell(daemon: Daemon, *rows: dict[str, object], volumes: tuple[str, ...] = ("a",), later: float = 0.0) -> None:
    """`later`: seconds from now at which the Engine was asked."""
    daemon.admin.request("listed", asked=time.time() + later, containers=rows, volumes=volumes)


def test_a_container_that_ended_while_nobody_looked_gives_its_memory_back(daemon: Daemon) -> None:
    holder = Process(daemon.container("a", memory="10g"))
    holder.hello()
    holder.ask(m.Allocate(0, 10 * GIB, "cuMemAlloc"))
    holder.give(10 * GIB)
    holder.end()
    wait_until(lambda: not daemon.state("a")["sessions"], "its process is gone")
    assert daemon.state("a")["devices"][0]["grant"] == 10 * GIB
    tell(daemon, row("a", "exited"), later=60)
    a = daemon.state("a")
    assert (a["state"], a["mounts"], a["devices"][0]["grant"]) == ("ended", 0, 0)
    assert daemon.events("ended")[0]["cause"] == "listed"
    daemon.admin.request("unmount", name="a", id="1")  # comes late, and is no error


def test_a_container_whose_files_cannot_be_seen_to_does_not_keep_others_from_being_compared(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = daemon.container("a", memory="1g")
    monkeypatch.chdir(folder)
    daemon.container("b", memory="1g")
    daemon.admin.request("unmount", name="a", id="1")
    Path("libconvgpu.so").unlink()
    for _level in range(230):  # deeper than what is removed
        Path("libconvgpu.so").mkdir()
        monkeypatch.chdir("libconvgpu.so")
    tell(daemon, row("a"), row("b", "exited"), volumes=("a", "b"), later=60)
    assert (daemon.state("a")["state"], daemon.state("b")["state"]) == ("running", "ended")
    tell(daemon, row("a"), volumes=("a", "b"), later=60)
    assert daemon.log.read_text().count("volume a is in use, and its files cannot be seen to") == 1
    monkeypatch.chdir("/")
    shutil.rmtree(folder / "libconvgpu.so")
    tell(daemon, row("a"), volumes=("a", "b"), later=60)  # it is tried again
    assert (folder / "libconvgpu.so").is_file()
    Process(folder).hello()


def test_a_listed_container_is_shown_with_its_name_over_a_restart(daemon: Daemon) -> None:
    daemon.container("a", memory="2g")
    assert daemon.state("a")["engine"] is None
    tell(daemon, row("a", "exited", number=2), row("a"), row("a", "exited", number=3))
    engine = {"id": row("a")["id"], "name": "c-a", "image": "cuda", "labels": {"convgpu.user": "ana"}}
    assert daemon.state("a")["engine"] == engine
    daemon.stop()
    daemon.start()
    assert daemon.state("a")["engine"] == engine
    daemon.admin.request("remove", name="a")
    assert [event["name"] for event in daemon.events("removed")] == ["c-a"]


def test_what_is_connected_or_mounted_since_is_left_alone(daemon: Daemon) -> None:
    process = Process(daemon.container("a", memory="2g"))
    process.hello()
    daemon.container("b", memory="2g")
    tell(daemon, volumes=("a", "b"), later=-1)
    assert [daemon.state(name)["state"] for name in "ab"] == ["running", "running"]
    tell(daemon, volumes=("a", "b"))
    assert [daemon.state(name)["state"] for name in "ab"] == ["running", "ended"]


def test_a_mount_that_is_lost_from_the_book_is_found_again(daemon: Daemon) -> None:
    """Docker 20.10 forgets a count over live-restore, and `docker cp` then unmounts a running container."""
    daemon.container("a", memory="2g")
    daemon.admin.request("unmount", name="a", id="1")
    tell(daemon, row("a"), later=-1)
    assert daemon.state("a")["state"] == "ended"
    tell(daemon, row("a"))
    assert daemon.state("a")["state"] == "running"
    daemon.admin.request("unmount", name="a", id="1")
    assert daemon.state("a")["state"] == "ended"


@pytest.mark.parametrize(("in_use", "later", "kept"), [(False, 300, False), (True, 300, True), (False, 30, True)])
def test_volumes_that_the_engine_forgot_are_collected_if_nobody_can_use_them(
    daemon: Daemon, in_use: bool, later: float, kept: bool
) -> None:
    folder = daemon.container("a", memory="2g")
    daemon.container("other", memory="2g")
    process = Process(folder)
    process.hello()
    if not in_use:
        process.end()
        daemon.admin.request("unmount", name="a", id="1")
        wait_until(lambda: not daemon.state("a")["sessions"], "its process is gone")
    tell(daemon, row("other"), volumes=("other",), later=later)
    assert folder.exists() == kept
    names = [container["name"] for container in daemon.admin.request("containers")["containers"]]
    assert names == (["a", "other"] if kept else ["other"])


def test_folders_of_no_volume_are_removed_but_not_those_that_the_engine_names(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        ours = daemon.container("a", memory="2g")
        forgotten = daemon.container("known to the Engine".replace(" ", "-"), memory="2g")
        stranger = ours.with_name("0123456789abcdef")
        stranger.mkdir()
        daemon.kill()
        (daemon.directory / "state.db").unlink()
        daemon.start()
        daemon.container("a", memory="2g")
        tell(daemon, row("a"), row("known-to-the-Engine"))
        assert (ours.exists(), forgotten.exists(), stranger.exists()) == (True, True, False)


def test_the_word_that_nobody_runs_ends_the_wait_for_processes(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        daemon.container("a", memory="10g")
        state = daemon.directory / "state.json"
        waits = []
        for _ in range(3):  # on a busy machine one of them may take longer than the time for everybody, which is 3 s
            daemon.kill()
            state.write_text('[{"name": "b", "options": {"memory": "2g"}, "created": 1, "mounts": {"x": 1}}]')
            daemon.start()
            tell(daemon, row("a", "exited"), volumes=("a", "b"), later=60)
            begun = time.monotonic()
            process = Process(daemon.container("c", memory="16g"))
            process.hello()
            assert process.ask(m.Allocate(0, 16 * GIB, "cuMemAlloc")) == m.Accepted(16 * GIB, 0)
            waits.append(time.monotonic() - begun)
            process.end()
            wait_until(lambda: daemon.admin.request("devices")["devices"][0]["used"] == 0, "its memory is back")
        assert min(waits) < 2.5
