"""Containers that leave their GPUs to the scheduler: where they are, for how long, and what is refused."""

import struct
from pathlib import Path

import pytest
from daemon import GIB, Daemon, Holder, Process, running_daemon, wait_until

from convgpu.client.scheduler import SchedulerRefused
from convgpu.protocol import messages as m
from convgpu.protocol.stream import MessageStream
from convgpu.protocol.uuids import uuid_bytes
from convgpu.protocol.wire import ObservedFlag, PageFlag, Reason

FOUR = "simulated:16GiB,16GiB,16GiB,8GiB"


@pytest.fixture(autouse=True)
def _without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a volume gets that names no GPUs is the matter here."""
    monkeypatch.setattr(Daemon, "default_options", {})


def uuids(daemon: Daemon) -> list[str]:
    return [device["uuid"] for device in daemon.admin.request("devices")["devices"]]


def where(daemon: Daemon, name: str) -> list[int]:
    return [uuids(daemon).index(share["uuid"]) for share in daemon.state(name)["devices"]]


def flags(process: Process) -> int:
    return struct.unpack_from("I", process._page, 12)[0]


def refusal(process: Process, *seen: bytes) -> str:
    process.socket.sendall(m.pack(m.Hello(process.pid, "test", "", tuple((uuid, 0) for uuid in seen)), 1))
    [(_, failed)] = MessageStream().receive(process.received())
    assert isinstance(failed, m.Failed)
    return failed.text


def test_two_containers_do_not_collide(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", FOUR) as daemon:
        folders = {name: daemon.container(name, memory="8g") for name in "ab"}
        assert daemon.state("a")["devices"] == []
        assert daemon.state("a")["placement"]["uuids"] == []
        processes = {name: Process(folder) for name, folder in folders.items()}
        [row] = processes["a"].hello().devices
        assert (row.limit, flags(processes["a"])) == (8 * GIB, PageFlag.CHOSEN | PageFlag.WITHDRAW | PageFlag.EXPORTS)
        processes["b"].hello()
        assert (where(daemon, "a"), where(daemon, "b")) == ([0], [1])
        placement = daemon.state("b")["placement"]
        assert (placement["policy"], placement["uuids"]) == ("least-promised", [uuids(daemon)[1]])
        assert [row["promised"] for row in placement["compared"]] == [8 * GIB, 0, 0, 0]
        placed = daemon.events("placed")
        assert [(e["container"], e["reason"]) for e in placed] == [("a", "least-promised"), ("b", "least-promised")]
        assert placed[1]["limits"] == {uuids(daemon)[1]: 8 * GIB}


@pytest.mark.parametrize(
    ("options", "seen", "expected"),
    [
        ({}, [0, 1, 2, 3], [0]),
        ({}, [2, 1], [1, 2]),  # the container was given certain GPUs
        ({"gpus": "any"}, [2, 1], [1]),
        ({"gpus": "any:2"}, [], [0, 1]),
        ({"gpus": "any:3"}, [], [0, 1, 2]),
        ({"gpus": "all"}, [], [0, 1, 2, 3]),
        ({"gpus": "2"}, [], [2]),
        ({"gpus": "any:4"}, [], [0, 1, 2, 3]),
    ],
)
def test_the_ways_to_ask(tmp_path: Path, options: dict[str, str], seen: list[int], expected: list[int]) -> None:
    with running_daemon(tmp_path / "d", FOUR) as daemon:
        process = Process(daemon.container("a", memory="2g", **options))
        rows = process.hello(held=tuple((uuid_bytes(uuids(daemon)[index]), 0) for index in seen)).devices
        assert sorted(row.uuid for row in rows) == sorted(uuid_bytes(uuids(daemon)[index]) for index in expected)
        assert sorted(where(daemon, "a")) == expected


def test_limits_that_name_their_gpus_leave_no_choice_unless_asked(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", FOUR) as daemon:
        names = uuids(daemon)
        daemon.container("a", memory=f"{names[0]}:2g,{names[1]}:4g")
        daemon.container("b", memory=f"{names[0]}:2g,{names[1]}:4g", gpus="any")
        assert (sorted(where(daemon, "a")), daemon.state("a")["placement"]) == ([0, 1], None)
        assert daemon.state("b")["placement"]["limits"] == {names[0]: 2 * GIB, names[1]: 4 * GIB}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"gpus": "any:9"}, "gpus=any:9: this host has 4 that can be had; ask for gpus=any:4 or fewer"),
        ({"gpus": "any:0"}, "say how many GPUs the scheduler chooses, as in gpus=any:2"),
        ({"gpus": "any:x"}, "say how many GPUs the scheduler chooses, as in gpus=any:2"),
        ({"gpus": "any:"}, "say how many GPUs the scheduler chooses, as in gpus=any:2"),
        ({"gpus": "some"}, "no device 'some'; devices: any, any:N, all, 0, "),
        ({"gpus": "any,0"}, "no device 'any'; devices: any, any:N, all, 0, "),
        ({"memory": "20g"}, "there is not a GPU that can hold it; the largest limit that fits is memory=16384m"),
        ({"memory": "x"}, "memory=x: "),
        ({"memory": "101%"}, "memory=101%: '101%' is not a share: write whole percents from 1% to 100%"),
        ({"memory": "100%"}, ""),
        ({"memory": "10g", "gpus": "any:4"}, "GPU-"),
        ({"memory": "10g", "gpus": "any:3"}, ""),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(tmp_path: Path, options: dict[str, str], text: str) -> None:
    with running_daemon(tmp_path / "d", FOUR) as daemon:
        if not text:
            daemon.container("a", **{"memory": "2g"} | options)
            return
        with pytest.raises(SchedulerRefused) as refused:
            daemon.container("a", **{"memory": "2g"} | options)
        assert text in str(refused.value)


def test_drained_gpus_are_not_chosen(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB") as daemon:
        folder = daemon.container("a", memory="2g")
        daemon.admin.request("drain", device="0", drained=True)
        Process(daemon.container("b", memory="2g")).hello()
        assert where(daemon, "b") == [1]
        daemon.admin.request("drain", device="1", drained=True)
        with pytest.raises(SchedulerRefused) as refused:
            daemon.container("c", memory="2g")
        assert "0, 1 are drained" in str(refused.value)
        assert "(convgpu drain 0 --undo)" in str(refused.value)
        assert refusal(Process(folder)) == (
            "too few GPUs can be had now (drained: 0, 1); see convgpu devices, and start the container again"
        )
        daemon.admin.request("drain", device="0", drained=False)
        Process(folder).hello()
        assert where(daemon, "a") == [0]


def test_a_gpu_that_is_lost_after_it_was_chosen_is_said_and_left(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB", "--audit=50ms") as daemon:
        lost, other = uuids(daemon)
        folder = daemon.container("a", memory="8g")
        first = Process(folder)
        [row] = first.hello(held=tuple((uuid_bytes(uuid), 0) for uuid in uuids(daemon))).devices
        assert (where(daemon, "a"), row.uuid) == ([0], uuid_bytes(lost))
        holder = Process(daemon.container("holder", memory="16g", gpus="0"))
        holder.hello()
        assert isinstance(holder.ask(m.Allocate(0, 14 * GIB, "cuMemAlloc")), m.Accepted)
        waits = first.allocate(4 * GIB)
        daemon.ail("0 error=15")
        assert first.answer(waits) == m.Rejected(Reason.DISPLACED, 0, 0)
        [said] = daemon.events("displaced")
        assert (said["container"], said["uuid"], said["reason"]) == ("a", lost, "lost")
        assert daemon.events("rejected")[-1]["reason"] == "displaced"
        assert (where(daemon, "a"), where(daemon, "holder")) == ([], [0])
        [row] = Process(folder).hello().devices
        assert (where(daemon, "a"), row.uuid) == ([1], uuid_bytes(other))
        assert first.ask(m.Allocate(0, GIB, "cuMemAlloc")) == m.Rejected(Reason.DISPLACED, 0, 0)
        first.end()
        daemon.ail()
        wait_until(lambda: daemon.admin.request("devices")["devices"][0]["health"] == "ok", "it answers again")
        assert where(daemon, "a") == [1]


def test_a_choice_of_all_gpus_is_refused_while_one_is_drained(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB") as daemon:
        daemon.container("before", memory="2g", gpus="any:2")
        daemon.admin.request("drain", device="1", drained=True)
        with pytest.raises(SchedulerRefused) as refused:
            daemon.container("a", memory="2g", gpus="any:2")
        assert str(refused.value) == (
            "gpus=any:2: of 2 GPUs that can be had, drained are 1: put one back into service "
            "(convgpu drain 1 --undo), ask for gpus=any:1 or fewer, or for gpus=0, or say gpus=all and wait"
        )
        daemon.container("all", memory="2g", gpus="all")
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB") as daemon:
        assert sorted(where(daemon, "before")) == sorted(where(daemon, "all")) == [0, 1]


def test_a_drained_gpu_that_is_named_is_refused_with_those_that_would_do(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB") as daemon:
        uuid = uuids(daemon)[1]
        daemon.container("before", memory="2g", gpus="1")
        daemon.container("unlimited", gpus="1")
        daemon.admin.request("drain", device="1", drained=True)
        for options in ({"memory": "2g", "gpus": "1"}, {"gpus": "0,1"}, {"memory": f"{uuid}:2g"}):
            with pytest.raises(SchedulerRefused) as refused:
                daemon.container("a", **options)
            name, text = list(options.items())[-1]
            assert str(refused.value) == (
                f"{name}={text}: of 2 GPUs that can be had, drained are 1: put one back into service "
                "(convgpu drain 1 --undo), ask for gpus=any:1 or fewer, or for gpus=0, or say gpus=all and wait"
            )
        daemon.container("other", memory="2g", gpus="0")
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB") as daemon:
        assert sorted(row["name"] for row in daemon.admin.request("containers")["containers"]) == [
            "before",
            "other",
            "unlimited",
        ]


def test_a_gpu_that_is_drained_after_it_was_chosen_is_said_and_left_by_the_next_process(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB") as daemon:
        folder = daemon.container("a", memory="8g")
        first = Process(folder)
        first.hello()
        daemon.admin.request("drain", device="0", drained=True)
        [said] = daemon.events("displaced")
        assert (said["uuid"], said["reason"]) == (uuids(daemon)[0], "drained")
        assert where(daemon, "a") == [0]
        Process(folder).hello()
        assert where(daemon, "a") == [1]
        assert first.ask(m.Allocate(0, GIB, "cuMemAlloc")) == m.Rejected(Reason.DISPLACED, 0, 0)
        assert daemon.state("a")["sessions"][0]["devices"] == [{"uuid": uuids(daemon)[0], "usage": 0}]


def test_a_gang_and_memory_that_may_leave_are_placed_like_everybody_else(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", FOUR) as daemon:
        for name in "ab":
            daemon.container(name, memory="4g", gang="train:2")
        for name in "cd":
            daemon.container(name, memory="4g", suspend="auto")
        for name in "abcd":
            Process(Path(str(daemon.admin.request("mount", name=name, id="2")["mountpoint"]))).hello()
        assert [where(daemon, name) for name in "abcd"] == [[0], [1], [2], [0]]
        assert daemon.state("d")["residency"] == "running"
        for name in "efg":
            daemon.container(name, memory="14g", gang="big:4")
        with pytest.raises(SchedulerRefused, match="the largest limit that fits is memory=8192m"):
            daemon.container("h", memory="9g", gang="big:4")


@pytest.mark.parametrize("named", [{}, {"gpus": "0"}])
def test_a_process_that_has_none_of_the_gpus_is_told(tmp_path: Path, named: dict[str, str]) -> None:
    with running_daemon(tmp_path / "d", FOUR) as daemon:
        folder = daemon.container("a", memory="2g", **named)
        seen = [uuid_bytes(uuid) for uuid in uuids(daemon)]
        Process(folder).hello()
        assert refusal(Process(folder), seen[1], seen[2]) == (
            "this container is on GPU 0 and this process sees GPU 1, 2 only; give the volume gpus=all, "
            "or the container all GPUs"
        )
        assert "not in this container: 0, 1, 2, 3" in refusal(Process(daemon.container("b", memory="2g")), b"x" * 16)


def test_a_place_ends_with_the_last_process_and_outlives_the_scheduler(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", FOUR) as daemon:
        folder = daemon.container("a", memory="8g")
        process = Process(folder)
        [row] = process.hello().devices
        process.ask(m.Allocate(0, GIB, "cuMemAlloc"))
        before = daemon.state("a")["placement"]
        daemon.kill()
        daemon.start()
        assert daemon.state("a")["placement"] == before
        other = Process(daemon.container("b", memory="8g"))
        other.hello()
        assert where(daemon, "b") == [1]
        [again] = process.reconnect(((row.uuid, GIB),)).devices
        assert (again.uuid, flags(process)) == (row.uuid, PageFlag.CHOSEN | PageFlag.WITHDRAW | PageFlag.EXPORTS)
        process.end()
        wait_until(lambda: where(daemon, "a") == [], "it is free to be placed anew")
        Process(daemon.container("c", memory="16g", gpus="0")).hello()
        Process(folder).hello()
        assert where(daemon, "a") == [2]


def test_nvidia_smi_is_shown_where_it_would_be_and_then_where_it_is(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB") as daemon:
        folder = daemon.container("a", memory="4g")
        seen = [uuid_bytes(uuid) for uuid in uuids(daemon)]
        smi = Process(folder)
        asked = [smi.ask(m.Observe(uuid, "")) for uuid in seen]
        assert asked == [m.Observed(4 * GIB, 0, (), ObservedFlag.CHOSEN), m.Observed(0, 0, (), ObservedFlag.CHOSEN)]
        assert where(daemon, "a") == []
        Process(daemon.container("b", memory="4g", gpus="0")).hello()
        Process(folder).hello()
        answers = [smi.ask(m.Observe(uuid, "")) for uuid in seen]
        assert [(answer.limit, answer.flags) for answer in answers] == [(0, 1), (4 * GIB, 1)]


def test_the_policy_is_chosen_live_and_kept(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB") as daemon:
        assert daemon.admin.request("placement")["policy"] == "least-promised"
        with pytest.raises(SchedulerRefused, match="no policy of placement 'nearest'; there are best-fit, least-"):
            daemon.admin.request("placement", policy="nearest")
        daemon.admin.request("placement", policy="best-fit")
        daemon.kill()
        daemon.start()
        assert daemon.admin.request("devices")["placement"] == "best-fit"
        for name in "ab":
            Process(daemon.container(name, memory="8g")).hello()
        assert (where(daemon, "a"), where(daemon, "b")) == ([0], [0])


def test_a_changed_limit(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", FOUR) as daemon:
        folder = daemon.container("a", memory="4g")
        changed = daemon.admin.request("set", name="a", memory="10g")["devices"]
        assert [row["limit"] for row in changed] == [10 * GIB] * 4
        with pytest.raises(SchedulerRefused, match="the largest limit that fits is memory=16384m"):
            daemon.admin.request("set", name="a", memory="17g")
        process = Process(folder)
        [row] = process.hello(held=((uuid_bytes(uuids(daemon)[1]), 0), (uuid_bytes(uuids(daemon)[3]), 0))).devices
        assert (where(daemon, "a"), row.limit) == ([1], 10 * GIB)  # 8 GiB of device 3 are too few for it
        daemon.kill()
        daemon.start()
        process.end()
        wait_until(lambda: where(daemon, "a") == [], "free")
        assert daemon.state("a")["placement"]["limits"][uuids(daemon)[0]] == 10 * GIB


def test_a_limit_by_the_containers_variable(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", FOUR) as daemon:
        folder = daemon.container("a")
        assert daemon.state("a")["placement"]["limits"] == {}
        [row] = Process(folder).hello(memory="12g").devices
        assert (where(daemon, "a"), row.limit) == ([0], 12 * GIB)
        assert len(daemon.state("a")["placement"]["limits"]) == 3


def test_who_begins_when_the_last_program_has_just_ended_is_placed_anew(tmp_path: Path) -> None:
    """Not where it was, as long as memory settles there: somebody else has that by now."""
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB") as daemon:
        folder = daemon.container("a", memory="12g", gpus="any")
        with Holder(folder, f"{10 * GIB}") as first:
            wait_until(
                lambda: sum(each["usage"] for each in daemon.state("a")["devices"]) > 10 * GIB, "it holds its memory"
            )
            assert where(daemon, "a") == [0]
            other = Process(daemon.container("b", memory="16g", gpus="0"))
            other.hello()
            waits = other.allocate(16 * GIB)
            first.communicate()
        with Holder(folder, f"{10 * GIB}") as second:
            wait_until(
                lambda: sum(each["usage"] for each in daemon.state("a")["devices"]) > 10 * GIB, "the next one does"
            )
            assert where(daemon, "a") == [1]
            assert isinstance(other.answer(waits), m.Accepted)
            second.communicate()
        wait_until(lambda: where(daemon, "a") == [], "it leaves its place long before an audit would", 5)
