"""A gang against a real scheduler: what it knows of members that have ended, and who can belong to it."""

from daemon import GIB, Daemon, Process

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
