"""Limits, drained devices and the policy, changed while containers run and kept over a restart."""

from pathlib import Path

import pytest
from daemon import GIB, Daemon, Process, running_daemon, wait_until

from convgpu.client.scheduler import SchedulerRefused
from convgpu.protocol import messages as m
from convgpu.protocol.wire import Reason


def limit(daemon: Daemon, name: str) -> tuple[object, object]:
    [share] = daemon.state(name)["devices"]
    return share["limit"], share["target"]


def terms(daemon: Daemon, name: str) -> tuple[object, object]:
    state = daemon.state(name)
    return state.get("wait"), state.get("priority", 0)


def restart(daemon: Daemon) -> None:
    daemon.kill()
    daemon.start()


def test_a_limit_is_raised_at_once_and_lowered_as_memory_is_freed(daemon: Daemon) -> None:
    process = Process(daemon.container("a", memory="4g"))
    process.hello()
    process.ask(m.Allocate(0, 3 * GIB, "cuMemAlloc"))
    [row] = daemon.admin.request("set", name="a", memory="8g")["devices"]
    assert (row["limit"], row["target"], row["usage"]) == (8 * GIB, 8 * GIB, 3 * GIB)
    [row] = daemon.admin.request("set", name="a", memory="2g")["devices"]
    assert (row["limit"], row["target"], row["usage"]) == (3 * GIB, 2 * GIB, 3 * GIB)
    assert limit(daemon, "a") == (3 * GIB, 2 * GIB)
    wait_until(process.notify_on_free, "its frees are to be reported")
    process.give(2 * GIB)
    wait_until(lambda: limit(daemon, "a") == (2 * GIB, None), "the limit is in force")
    assert [event["limits"] for event in daemon.events("limited")] == [{row["uuid"]: 8 * GIB}, {row["uuid"]: 2 * GIB}]


def test_limits_survive_a_restart_whether_in_force_or_not(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        process = Process(daemon.container("a", memory="4g"))
        [row] = process.hello().devices
        process.ask(m.Allocate(0, 3 * GIB, "cuMemAlloc"))
        process.hold(3 * GIB)
        daemon.container("b", memory="1g")
        daemon.admin.request("set", name="b", memory="5g")
        daemon.admin.request("set", name="a", memory="2g")
        wait_until(lambda: limit(daemon, "a") == (3 * GIB, 2 * GIB), "it is pending")
        restart(daemon)
        process.reconnect(((row.uuid, 3 * GIB),))
        assert limit(daemon, "b") == (5 * GIB, None)
        wait_until(lambda: limit(daemon, "a") == (3 * GIB, 2 * GIB), "it is pending again")
        process.end()
        wait_until(lambda: limit(daemon, "a") == (2 * GIB, None), "the limit is in force")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"op": "set", "name": "a", "memory": "17g"}, "the largest limit that fits"),
        ({"op": "set", "name": "a", "memory": "GPU-x:1g"}, "names no device"),
        ({"op": "set", "name": "nobody", "memory": "1g"}, "no volume nobody"),
        ({"op": "set", "name": "a"}, "give what is to change: memory, wait or priority"),
        ({"op": "set", "name": "a", "memory": "1g", "wait": "soon"}, "500ms, 30s, 5m, 2h or 1d, or wait=forever"),
        ({"op": "set", "name": "a", "memory": "1g", "priority": "101"}, "give a whole number from -100 to 100"),
        ({"op": "set", "name": "a", "wait": "5m", "memory": "17g"}, "the largest limit that fits"),
        ({"op": "drain", "device": "7", "drained": True}, r"no device '7'; devices: 0 \(GPU-"),
        ({"op": "policy", "policy": "worst"}, "no policy 'worst'; there are best-fit, fifo"),
    ],
)
def test_changes_that_cannot_be(daemon: Daemon, fields: dict[str, object], text: str) -> None:
    daemon.container("a", memory="2g")
    with pytest.raises(SchedulerRefused, match=text):
        daemon.admin.request(**fields)
    assert limit(daemon, "a") == (2 * GIB, None)
    assert terms(daemon, "a") == (None, 0)
    assert daemon.events("limited", "changed") == []


def test_pause_and_priority_change_for_what_waits_and_survive_a_restart(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        holder = Process(daemon.container("h", memory="16g"))
        [row] = holder.hello().devices
        holder.ask(m.Allocate(0, 16 * GIB, "cuMemAlloc"))
        holder.hold(16 * GIB)
        process = Process(daemon.container("a", memory="16g", wait="1h"))
        process.hello()
        process.allocate(16 * GIB)
        wait_until(lambda: daemon.state("a")["state"] == "waiting", "a waits")
        answer = daemon.admin.request("set", name="a", wait="forever", priority="7", by="alice")
        assert answer == {"devices": [], "wait": None, "priority": 7}
        assert daemon.state("a")["waiting"][0]["deadline"] is None
        assert [(event["reason"], event["by"]) for event in daemon.events("changed")] == [
            ("wait=forever, priority=7", "alice")
        ]
        restart(daemon)
        holder.reconnect(((row.uuid, 16 * GIB),))
        process.reconnect(())
        assert terms(daemon, "a") == (None, 7)
        assert (daemon.state("a")["own_priority"], daemon.state("h").get("own_priority")) == (0, None)
        daemon.admin.request("set", name="a", wait="1ms")
        assert process.ask(m.Allocate(0, 16 * GIB, "cuMemAlloc")).reason == Reason.DEADLINE
        # The one before the restart was on its way to the database when the scheduler was killed: it may be there.
        assert daemon.events("changed")[-1]["reason"] == "wait=1ms"


def test_a_drained_device_stays_drained_and_says_so(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        daemon.admin.request("drain", device="0", drained=True)
        restart(daemon)
        [device] = daemon.admin.request("devices")["devices"]
        assert device["drained"]
        process = Process(daemon.container("a", memory="2g"))
        process.hello()
        request = process.allocate(GIB)
        wait_until(lambda: daemon.state("a")["state"] == "waiting", "a waits")
        assert daemon.state("a")["waiting"][0]["reason"] == "drained"
        daemon.admin.request("drain", device=device["uuid"], drained=False)
        assert process.answer(request) == m.Accepted(GIB, 0)


def test_a_policy_chosen_live_holds_until_the_setting_is_another(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--policy=best-fit") as daemon:
        known = daemon.admin.request("policy")["known"]
        assert daemon.admin.request("policy", policy="fifo") == {"policy": "fifo", "known": known}
        restart(daemon)
        assert daemon.admin.request("devices")["policy"] == "fifo"
        daemon.options[-1] = "--policy=recent-use"
        restart(daemon)
        assert daemon.admin.request("policy")["policy"] == "recent-use"


def test_who_changed_what_is_in_the_events(daemon: Daemon) -> None:
    daemon.container("a", memory="2g")
    daemon.admin.request("set", name="a", memory="1g", by="alice")
    daemon.admin.request("drain", device="0", drained=True, by="bob")
    daemon.admin.request("drain", device="0", drained=False)
    daemon.admin.request("policy", policy="fifo", by="carol")
    daemon.admin.request("policy")  # asks only
    daemon.admin.request("placement", policy="spread", by="carol")
    kinds = ("limited", "drained", "undrained", "policy")
    assert [(event["kind"], event.get("by"), event.get("reason")) for event in daemon.events(*kinds)] == [
        ("limited", "alice", None),
        ("drained", "bob", None),
        ("undrained", None, None),
        ("policy", "carol", "fifo"),
        ("policy", "carol", "placement spread"),
    ]
