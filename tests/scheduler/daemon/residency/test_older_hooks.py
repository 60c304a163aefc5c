"""Containers that were started before an upgrade: their hook cannot stop them, and nobody says that it did."""

from pathlib import Path

from daemon import GIB, Process, elastic_process, running_daemon, wait_until

from convgpu.protocol import messages as m


def test_a_suspended_container_of_an_older_hook_is_busy(tmp_path: Path) -> None:
    """It was shown as stopped, and ran on."""
    with running_daemon(tmp_path / "d", "simulated:4GiB", "--host-memory=1g") as daemon:
        old = Process(daemon.container("old", memory="2g", suspend="auto"))
        old.hello()
        assert old.ask(m.Allocate(0, GIB, "cuMemAlloc")) == m.Accepted(GIB, 0)
        new, _ = elastic_process(daemon, "new", "1g")
        assert new.ask(m.Query(0)) == m.Usage(GIB, 0, 0)
        daemon.admin.request("suspend", name="old")
        assert daemon.state("old")["residency"] == "stopping"
        wait_until(lambda: daemon.state("old")["residency"] == "busy", "it did not stop")
        kinds = [str(event["kind"]) for event in daemon.events("suspended", "busy")]
        assert kinds == ["busy"]
