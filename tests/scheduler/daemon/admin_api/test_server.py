"""What administrators ask on admin.sock, right and wrong."""

import asyncio
import contextlib
import json
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest
from daemon import GIB, Daemon, Process, running_daemon, wait_until

from convgpu.client.scheduler import SchedulerRefused
from convgpu.daemon.admin_api.server import AdminServer
from convgpu.protocol import messages as m


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"memory": "0"}, "memory=0: '0' is no memory at all: a size must be greater than zero"),
        ({"memory": "-1"}, "memory=-1: '-1' is not a size: write it as Docker does: 512m, 2g"),
        ({"memory": "20XB"}, "memory=20XB: '20XB' is not a size"),
        ({"memory": "17g"}, "has 16GiB to hand out; the largest limit that fits is memory=16384m"),
        ({"memory": "GPU-x:1g"}, "'GPU-x:1g' names no device of this container once; devices: GPU-"),
        (
            {"memory": "2g", "speed": "fast"},
            "unknown option 'speed': known are admit, backing, gang, fixed, gpus, memory, priority, suspend, wait",
        ),
        ({"memory": "2g", "priority": "high"}, "priority=high: give a whole number from -100 to 100; higher first"),
        ({"memory": "2g", "priority": "101"}, "priority=101: give a whole number from -100 to 100; higher first"),
        ({"memory": "2g", "wait": "soon"}, "wait=soon: 'soon' is not a duration: write it as 500ms, 30s, 5m, 2h or 1d"),
        ({"memory": "2g", "gpus": "7"}, "gpus=7: no device '7'; devices: any, any:N, all, 0, GPU-"),
    ],
)
def test_options_that_cannot_be(daemon: Daemon, options: dict[str, str], text: str) -> None:
    with pytest.raises(SchedulerRefused) as caught:
        daemon.admin.request("create", name="a", options=options)
    assert (caught.value.code, text in caught.value.text) == ("invalid", True), caught.value.text
    assert daemon.admin.request("containers") == {"containers": []}


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-a", "a" * 256, "é"])
def test_names_that_docker_would_not_give(daemon: Daemon, name: str) -> None:
    with pytest.raises(SchedulerRefused, match="name"):
        daemon.admin.request("create", name=name, options={})


def test_creating_the_same_volume_again_is_no_error_and_another_one_is(daemon: Daemon) -> None:
    daemon.admin.request("create", name="a", options={"memory": "2g"})
    daemon.admin.request("create", name="a", options={"memory": "2g"})
    with pytest.raises(SchedulerRefused, match="docker volume rm a"):
        daemon.admin.request("create", name="a", options={"memory": "3g"})
    assert len(daemon.events("created")) == 1


def test_a_repeated_mount_is_counted(daemon: Daemon) -> None:
    """`docker cp` mounts and unmounts a running container's volume with the container's own id."""
    daemon.container("a", memory="2g")
    daemon.admin.request("mount", name="a", id="1")
    daemon.admin.request("unmount", name="a", id="1")
    assert (daemon.state("a")["state"], daemon.state("a")["mounts"]) == ("running", 1)
    daemon.admin.request("unmount", name="a", id="1")
    daemon.admin.request("unmount", name="a", id="1")
    daemon.admin.request("unmount", name="a", id="never")
    assert daemon.state("a")["state"] == "ended"
    assert len(daemon.events("ended")) == 1


def test_a_volume_in_use_is_not_removed_and_an_unknown_one_is_no_error(daemon: Daemon) -> None:
    folder = daemon.container("a", memory="2g")
    process = Process(folder)
    process.hello()
    with pytest.raises(SchedulerRefused, match="stop its container first"):
        daemon.admin.request("remove", name="a")
    process.end()
    daemon.admin.request("unmount", name="a", id="1")
    daemon.admin.request("remove", name="a")
    daemon.admin.request("remove", name="a")
    assert not folder.exists()
    with pytest.raises(SchedulerRefused, match="no volume a"):
        daemon.admin.request("mount", name="a", id="1")


def test_the_folder_holds_what_a_container_needs(daemon: Daemon) -> None:
    folder = daemon.container("a", memory="2g")
    assert (folder / "ld.so.preload").read_text() == "/run/convgpu/libconvgpu.so\n"
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in folder.iterdir() if not path.is_dir()}
    assert modes == {"libconvgpu.so": "0o755", "scheduler.sock": "0o666", "ld.so.preload": "0o644"}
    assert (folder / "driver/state").samefile(daemon.directory / "driver/state")


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"[]", b'{"op": "dance"}', b'{"op": "mount", "name": "a"}', b"\xff", b"{" * 9999]
)
def test_administration_that_is_no_request_gets_one_clear_error(daemon: Daemon, body: bytes) -> None:
    process = Process(daemon.directory, "admin.sock")
    answer = process.ask(m.Admin(body))
    assert isinstance(answer, m.AdminReply)
    assert json.loads(answer.body)["error"]["code"] == "invalid"


def test_volumes_survive_a_restart_and_a_damaged_database_is_moved_aside(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--audit=1h") as daemon:
        daemon.container("a", memory="2g")
        daemon.admin.request("unmount", name="a", id="1")
        before = daemon.admin.request("containers")
        assert daemon.stop() == 0
        daemon.start()
        assert daemon.admin.request("containers") == before
        assert [event["kind"] for event in daemon.events()] == ["created", "mounted", "ended"]
        daemon.kill()
        (daemon.directory / "state.db").write_bytes(b"x" * 5000)
        daemon.start()
        assert daemon.admin.request("containers") == {"containers": []}
        assert (daemon.directory / "state.damaged.db").read_bytes().startswith(b"x" * 4096)
        wait_until(lambda: "is moved to" in daemon.log.read_text(), "the log says so")


def test_a_limit_that_the_container_told_survives_a_restart(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        Process(daemon.container("a")).hello("3g")
        daemon.kill()
        daemon.start()
        assert daemon.state("a")["devices"][0]["limit"] == 3 * GIB


def test_the_past_outlives_the_scheduler(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--history-rows=50") as daemon:
        for number in range(3):
            daemon.admin.request("create", name=f"v{number}", options={"memory": "2g"})
        assert daemon.stop() == 0
        daemon.start()
        daemon.admin.request("remove", name="v1")
        events = daemon.admin.request("history", container="v1")["events"]
        assert [(event["kind"], event["container"]) for event in events] == [("created", "v1"), ("removed", "v1")]


def test_two_devices_with_a_limit_each(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB,8GiB") as daemon:
        one, two = (device["uuid"] for device in daemon.admin.request("devices")["devices"])
        daemon.container("both", memory=f"{one}:3g,{two}:4g")
        daemon.container("second", memory="5g", gpus="1")
        limits = {
            name: {row["uuid"]: row["limit"] for row in daemon.state(name)["devices"]} for name in ("both", "second")
        }
        assert limits == {"both": {one: 3 * GIB, two: 4 * GIB}, "second": {two: 5 * GIB}}


def test_a_list_can_be_of_what_is_active_and_count_the_rest(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB") as daemon:
        first, second = (device["uuid"] for device in daemon.admin.request("devices")["devices"])
        process = Process(daemon.container("a", memory="16g", gpus="all"))
        process.hello()
        daemon.container("idle", memory="1g")
        listed = daemon.admin.request("active-containers")
        assert listed["containers"] == [{"name": "a", "state": "running", "processes": 1}]
        assert listed["others"] == [{"state": "running", "residency": None, "count": 1}]
        process.answer(process.allocate(GIB, row=1))
        waiting = Process(daemon.container("b", memory="16g", gpus="all"))
        waiting.hello()
        waiting.allocate(16 * GIB, row=1)
        wait_until(lambda: daemon.state("b")["waiting"], "the second one waits")
        listed = daemon.admin.request("active-containers")["containers"]
        assert [(row["state"], row.get("waiting", [{}])[0].get("behind")) for row in listed] == [
            ("running", None),
            ("waiting", []),
        ]
        assert [[share["uuid"] for share in row["devices"]] for row in listed] == [[second], [second]]
        listed = daemon.admin.request("containers")["containers"]
        assert [[share["uuid"] for share in row["devices"]] for row in listed if row["name"] != "idle"] == [
            [first, second]
        ] * 2


def test_who_asks_for_a_long_past_keeps_nobody_waiting(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        process = Process(daemon.container("a", memory="1g"))
        process.hello()
        with contextlib.closing(sqlite3.connect(daemon.directory / "state.db", timeout=120)) as database, database:
            row = (time.time(), "accepted", "a", "s1.r1", "GPU", 1, None, json.dumps({"program": "p" * 40, "pid": 1}))
            rows = ((number, *row) for number in range(10_000, 60_000))
            database.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        held_up: list[float] = []
        past: list[bytes] = []  # read afterwards: that would hold this thread up

        def ask() -> None:
            past.append(daemon.admin.request_json("history", limit=100_000))

        for _ in range(3):  # something else may hold up one of them
            asking = threading.Thread(target=ask)
            asking.start()
            waits = []
            while asking.is_alive():
                begun = time.monotonic()
                process.ask(m.Query(0))
                waits.append(time.monotonic() - begun)
            held_up.append(max(waits))
        answer = json.loads(past[0])
        assert len(answer["events"]) >= 50_000
        begun = time.monotonic()
        json.dumps(answer)  # if the event loop did that, everybody would wait for so long
        assert min(held_up) < time.monotonic() - begun


def test_a_creation_that_nobody_waits_for_any_more_makes_nothing(daemon: Daemon) -> None:
    with pytest.raises(SchedulerRefused, match="could not be made in time: try again"):
        daemon.admin.request("create", name="a", options={"memory": "2g"}, until=time.time() - 1)
    assert daemon.admin.request("containers") == {"containers": []}
    daemon.admin.request("create", name="a", options={"memory": "2g"}, until=time.time() + 60)
    with pytest.raises(SchedulerRefused, match="try again"):
        daemon.admin.request("create", name="a", options={"memory": "2g"}, until=time.time() - 1)
    assert daemon.state("a")["state"] == "created"


class _LateStore:
    """A disk that takes its time: the clock goes on meanwhile."""

    def __init__(self, error: OSError | None = None) -> None:
        self.now = 100.0
        self.error = error

    async def durable(self) -> None:
        self.now += 10.0
        if self.error is not None:
            raise self.error


class _Volumes:
    """What is made and removed."""

    def __init__(self, *names: str) -> None:
        self.made = list(names)

    def names(self) -> list[str]:
        return list(self.made)

    def create(self, name: str, _options: dict[str, str]) -> None:
        if name not in self.made:
            self.made.append(name)

    def remove(self, name: str) -> None:
        self.made.remove(name)


@pytest.mark.parametrize(
    ("store", "until", "before", "left"),
    [
        (_LateStore(), 105.0, [], []),
        (_LateStore(), 105.0, ["a"], ["a"]),
        (_LateStore(), 115.0, [], ["a"]),
        (_LateStore(), 0.0, [], ["a"]),
        (_LateStore(OSError("the disk fails")), 115.0, [], []),
    ],
    ids=["too late", "too late, and there before", "in time", "no matter when", "not on the disk"],
)
def test_a_creation_that_comes_too_late_is_undone(
    store: _LateStore, until: float, before: list[str], left: list[str]
) -> None:
    volumes, answers = _Volumes(*before), []

    async def create() -> None:
        parts = (cast("Any", part) for part in (volumes, None, None, None, store))
        server = AdminServer(*parts, cast("Any", None), wall_clock=lambda: store.now)
        done = asyncio.Event()
        server.answer(
            json.dumps({"op": "create", "name": "a", "until": until}).encode(),
            lambda answer: (answers.append(json.loads(answer)), done.set()),
        )
        await done.wait()

    asyncio.run(create())
    assert volumes.made == left
    assert ("ok" in answers[0]) == (until != 105.0 and store.error is None)
