"""A scheduler that starts again: who is waited for, who is not, and what a stopped process holds."""

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from daemon import DRIVER, GIB, Daemon, Holder, Process, running_daemon, wait_until

from convgpu.protocol import messages as m


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--audit=100ms") as daemon:
        yield daemon


def usage(daemon: Daemon, name: str) -> int:
    return int(str(daemon.state(name)["devices"][0]["usage"]))


def wait_for_holding(daemon: Daemon, name: str, size: int) -> None:
    """Wait until the driver has given what was charged before the call: it alone tells the next scheduler of it."""

    def holds() -> bool:
        share = daemon.state(name)["devices"][0]
        return share["usage"] > size and (share["seen"] or 0) >= share["usage"]

    wait_until(holds, "it holds")


def restart(daemon: Daemon) -> float:
    daemon.kill()
    daemon.start()
    return time.monotonic()


def test_memory_of_a_stopped_process_is_not_granted_again(daemon: Daemon) -> None:
    """`docker pause` over an upgrade of the plugin."""
    with Holder(daemon.container("a", memory="10g"), "9g") as stopped:
        wait_for_holding(daemon, "a", 9 * GIB)
        held = usage(daemon, "a")
        stopped.send_signal(signal.SIGSTOP)
        restart(daemon)
        waiter = Process(daemon.container("b", memory="10g"))
        waiter.hello()
        request = waiter.allocate(8 * GIB)
        wait_until(lambda: "does not reconnect" in daemon.log.read_text(), "its time is over")
        assert usage(daemon, "a") == held
        assert (daemon.state("b")["state"], daemon.events("overused")) == ("waiting", [])
        stopped.send_signal(signal.SIGCONT)
        wait_until(lambda: daemon.state("a")["sessions"] != [] and usage(daemon, "a") == held, "it is back")
        assert request not in waiter.answers
        stopped.communicate()
        assert stopped.returncode == 0
        assert isinstance(waiter.answer(request), m.Accepted)


def test_what_an_admitted_container_does_not_use_stays_reserved(daemon: Daemon) -> None:
    """`admit=whole`: it never waits again."""
    with Holder(daemon.container("a", memory="10g", admit="whole"), "2g") as whole:
        wait_for_holding(daemon, "a", 2 * GIB)
        restart(daemon)
        waiter = Process(daemon.container("b", memory="10g"))
        waiter.hello()
        request = waiter.allocate(8 * GIB)
        wait_until(lambda: daemon.state("a")["devices"][0]["grant"] == 10 * GIB, "it is reserved again")
        assert (daemon.state("b")["state"], request in waiter.answers) == ("waiting", False)
        whole.communicate()
        assert isinstance(waiter.answer(request), m.Accepted)


def test_a_process_is_waited_for_though_its_container_has_no_mount(daemon: Daemon) -> None:
    """`docker cp` unmounts a running container; the Engine's next list mends that, if the scheduler lives so long."""
    with Holder(daemon.container("a", memory="10g"), "9g") as stopped:
        wait_for_holding(daemon, "a", 9 * GIB)
        held = usage(daemon, "a")
        daemon.admin.request("unmount", name="a", id="1")
        stopped.send_signal(signal.SIGSTOP)
        restart(daemon)
        waiter = Process(daemon.container("b", memory="10g"))
        waiter.hello()
        request = waiter.allocate(8 * GIB)
        wait_until(lambda: [one["container"] for one in daemon.events("accepted", "paused")][-1:] == ["b"], "decided")
        state = daemon.state("b")["state"]
        stopped.send_signal(signal.SIGCONT)
        assert state == "waiting"
        wait_until(lambda: usage(daemon, "a") == held, "it is back")
        stopped.communicate()
        assert isinstance(waiter.answer(request), m.Accepted)


def test_memory_of_a_process_that_is_in_no_book_is_not_granted_again(daemon: Daemon, cgroup: Path) -> None:
    """Its row was lost with a damaged database, or never written on a full disk, and it does not come back in time."""
    folder = daemon.container("a", memory="10g")
    container = {"id": cgroup.name[-64:], "name": "a", "image": "cuda", "state": "running", "volumes": ["a"]}
    daemon.admin.request("listed", asked=time.time(), containers=[container], volumes=["a"])
    with Holder(folder, "9g") as stopped:
        (cgroup / "cgroup.procs").write_text(str(stopped.pid))
        wait_until(lambda: (daemon.state("a")["devices"][0]["seen"] or 0) > 9 * GIB, "the driver counts it")
        wait_until(lambda: engine_id(daemon) == cgroup.name[-64:], "its name is written")
        held = usage(daemon, "a")
        stopped.send_signal(signal.SIGSTOP)
        daemon.kill()
        with closing(sqlite3.connect(daemon.directory / "state.db")) as database, database:
            database.execute("DELETE FROM sessions")
        daemon.start()
        waiter = Process(daemon.container("b", memory="10g"))
        waiter.hello()
        request = waiter.allocate(8 * GIB)
        wait_until(lambda: daemon.log.read_text().count("grants are given") == 1, "its time is over")
        seen = daemon.state("b")["state"], usage(daemon, "a")
        stopped.send_signal(signal.SIGCONT)
        assert seen == ("waiting", held)
        wait_until(lambda: daemon.state("a")["sessions"] != [] and usage(daemon, "a") == held, "it is back")
        assert request not in waiter.answers
        stopped.communicate()
        assert stopped.returncode == 0
        assert isinstance(waiter.answer(request), m.Accepted)


def engine_id(daemon: Daemon) -> str:
    with closing(sqlite3.connect(daemon.directory / "state.db")) as database:
        [(text,)] = database.execute("SELECT engine FROM containers WHERE name = 'a'")
    return json.loads(text or "{}").get("id", "")


def test_grants_are_given_as_soon_as_everybody_is_back(daemon: Daemon) -> None:
    with Holder(daemon.container("a", memory="4g"), "3g") as holder:
        wait_until(lambda: usage(daemon, "a") > 3 * GIB, "it holds")
        waits = []
        for _ in range(3):  # on a busy machine one of them may take longer than the time for everybody, which is 3 s
            begun = restart(daemon)
            process = Process(daemon.container("b", memory="8g"))
            process.hello()
            assert process.ask(m.Allocate(0, 8 * GIB, "cuMemAlloc")) == m.Accepted(8 * GIB, 0)
            waits.append(time.monotonic() - begun)
            process.end()
            wait_until(lambda: usage(daemon, "b") == 0, "its memory is back")
        assert min(waits) < 2.5
        assert usage(daemon, "a") > 3 * GIB
        holder.communicate()


def test_what_ended_while_no_scheduler_looked_is_not_waited_for_but_for_its_memory(tmp_path: Path) -> None:
    # The driver needs 0.9 s to free 9 GiB: a grant before that would be refused by it.
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--simulated-settle=100000") as daemon:
        with Holder(daemon.container("a", memory="10g"), "9g") as holder:
            wait_until(lambda: usage(daemon, "a") > 9 * GIB, "it holds")
            daemon.kill()
            holder.kill()
        daemon.start()
        with Holder(daemon.container("b", memory="16g"), "14g") as waiter:
            wait_until(lambda: usage(daemon, "b") > 14 * GIB, "it was served")
            waiter.communicate()
            assert waiter.returncode == 0
        assert daemon.state("a")["sessions"] == []


def test_capacity_is_right_after_a_restart_whoever_holds_memory(daemon: Daemon) -> None:
    folder = daemon.container("a", memory="4g")
    foreign = os.environ | {"LD_LIBRARY_PATH": f"{folder}/driver"}
    command = [str(DRIVER / "gpu-hold"), "--wait-for-stdin", "2g"]
    with (
        Holder(folder, "3g") as holder,
        subprocess.Popen(command, env=foreign, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as outside,
    ):
        wait_until(lambda: usage(daemon, "a") > 3 * GIB and figures(daemon)[1] > 2 * GIB, "both hold")
        before = figures(daemon)
        restart(daemon)
        assert figures(daemon) == before
        outside.communicate()
        holder.communicate()
        wait_until(lambda: figures(daemon) == (16 * GIB, 0), "all is given back")


def figures(daemon: Daemon) -> tuple[int, int]:
    [device] = daemon.admin.request("devices")["devices"]
    return device["capacity"], device["external"]


def test_containers_that_run_can_connect_before_other_volumes_are_opened(daemon: Daemon) -> None:
    for number in range(60):
        daemon.admin.request("create", name=f"v{number}", options={"gpus": "all", "memory": "1g"})
    running = daemon.container("a", memory="1g") / "scheduler.sock"
    restart(daemon)
    others = [path.stat().st_mtime_ns for path in daemon.directory.glob("containers/*/scheduler.sock")]
    assert len(others) == 61
    assert running.stat().st_mtime_ns == min(others) < max(others)
