"""Threshold, granule and reuse count of a running scheduler, and what is refused with the figure that would do."""

import subprocess
from pathlib import Path

import pytest
from daemon import GIB, Daemon, Process, running_daemon

from convgpu.client.scheduler import SchedulerRefused
from convgpu.protocol import messages as m

SETTINGS = ("simulated:4GiB,4GiB", "--oversubscribe=1.25", "--granule=2g")


@pytest.fixture(autouse=True)
def _without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Daemon, "default_options", {})


def test_the_granule_is_the_limit_of_whoever_names_none_and_its_count_is_held_to(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", *SETTINGS) as daemon:
        first = daemon.admin.request("devices")["devices"][0]
        assert (first["granule"], first["reuse_count"], first["elastic"]) == (2 * GIB, 2, 0)
        named = daemon.container("named", gpus="0")
        [row] = Process(named).hello().devices
        assert row.limit == 2 * GIB
        for name in "abcd":
            Process(daemon.container(name, suspend="auto")).hello()
        where = [daemon.state(name)["devices"][0]["uuid"] for name in "abcd"]
        assert sorted(where.count(device["uuid"]) for device in daemon.admin.request("devices")["devices"]) == [2, 2]
        assert [device["elastic"] for device in daemon.admin.request("devices")["devices"]] == [2, 2]
        with pytest.raises(SchedulerRefused, match="GPU 0 has 2 containers whose memory may leave, and its reuse"):
            daemon.container("e", memory="1g", suspend="auto")
        daemon.container("rigid", memory="1g")
        with pytest.raises(SchedulerRefused, match="GPU 1 has 2 containers"):
            daemon.container("f", memory="1g", suspend="auto", gpus="1")
        daemon.admin.request("unmount", name="a", id="1")
        for process in [process for process in Process.opened if process.pid]:
            process.end()
        daemon.container("f", memory="1g", suspend="auto", gpus="1")


def test_it_is_held_to_at_the_start_as_well(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", *SETTINGS) as daemon:
        for name in "abc":
            daemon.admin.request("create", name=name, options={"memory": "1g", "suspend": "auto", "gpus": "1"})
        for name in "ab":
            daemon.admin.request("mount", name=name, id="1")
        with pytest.raises(SchedulerRefused, match=r"its reuse count is 2: wait until one ends, choose another GPU"):
            daemon.admin.request("mount", name="c", id="1")
        daemon.admin.request("unmount", name="a", id="1")
        daemon.admin.request("mount", name="c", id="1")
        daemon.admin.request("mount", name="c", id="2")  # it runs already


def test_without_a_granule_a_container_without_a_limit_is_refused(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        process = Process(daemon.container("a"))
        process.socket.sendall(m.pack(m.Hello(process.pid, "test", "", ()), 1))
        assert b"this container has no GPU memory limit" in process.received()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--granule=5g",), "granule '5g': a GPU has 4GiB to hand out; the largest granule that fits is 4096m"),
        (("--granule=many",), "granule 'many': "),
        (("--granule=1k",), "granule '1k': give at least 1m"),
        (("--oversubscribe=0.5",), "threshold '0.5': give a number from 1 to 16"),
        (("--oversubscribe=16", "--devices=simulated:99999GiB"), "the largest threshold that fits is 1"),
    ],
)
def test_a_setting_without_sense_ends_the_start_with_what_would_do(
    tmp_path: Path, options: tuple[str, ...], text: str
) -> None:
    with running_daemon(tmp_path / "d", "simulated:4GiB") as daemon:
        daemon.kill()
        done = subprocess.run([*daemon.command, *options], check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode in {1, 2}
        assert text in done.stdout + done.stderr
