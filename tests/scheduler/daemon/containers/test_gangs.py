"""A gang against a real scheduler: what it knows of members that have ended, and who can belong to it."""

from pathlib import Path

import pytest
from daemon import GIB, Daemon, Process, running_daemon

from convgpu.client.scheduler import SchedulerRefused
from convgpu.protocol import messages as m


def test_a_restart_remembers_that_one_of_a_gang_has_ended(daemon: Daemon) -> None:
    """Else one that is started again, while another of it runs, waits for the ended one and is rejected."""
    folders = {name: daemon.container(name, memory="4g", gang="train:3") for name in "abc"}
    processes = {name: Process(folder) for name, folder in folders.items()}
    requests, held = {}, {}
    for name, process in processes.items():
        [row] = process.hello().devices
        requests[name], held[name] = process.allocate(GIB), ((row.uuid, GIB),)
    for name, process in processes.items():
        assert isinstance(process.answer(requests[name]), m.Accepted)
        process.hold(GIB)
    for name in "bc":
        processes[name].end()
        daemon.admin.request("unmount", name=name, id="1")
    daemon.stop()  # what is in the history is written then
    daemon.start()
    processes["a"].reconnect(held["a"])
    daemon.admin.request("mount", name="b", id="1")
    again = Process(folders["b"])
    again.hello()
    assert isinstance(again.ask(m.Allocate(0, GIB, "cuMemAlloc")), m.Accepted)
    assert sorted(str(event["container"]) for event in daemon.events("ended")) == ["b", "c"]
    assert [daemon.state(name)["state"] for name in "abc"] == ["running", "running", "ended"]


def test_one_of_a_gang_that_has_a_place_is_not_reckoned_anywhere_else(tmp_path: Path) -> None:
    """The other one came to the same GPU, and both waited for as long as the first one lived."""
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB") as daemon:
        first = Process(daemon.container("a", memory="10g", gang="train:2", gpus="any"))
        first.hello()
        waits = first.allocate(GIB)
        with pytest.raises(SchedulerRefused, match="the largest limit that fits is memory=6144m"):
            daemon.container("b", memory="10g", gang="train:2", gpus="0")
        second = Process(daemon.container("b", memory="10g", gang="train:2", gpus="any"))
        second.hello()
        assert isinstance(second.ask(m.Allocate(0, GIB, "cuMemAlloc")), m.Accepted)
        assert isinstance(first.answer(waits), m.Accepted)
