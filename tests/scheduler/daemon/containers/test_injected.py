"""A container that `convgpu-runtime` registers by its id: nobody's volume takes its limit away, or its place."""

import time
from pathlib import Path

import pytest
from daemon import Daemon, running_daemon

from convgpu.client.scheduler import SchedulerRefused

ID = "c0ffee00" * 8


def register(daemon: Daemon) -> None:
    daemon.admin.request("create", name=ID, options={"memory": "2g"})
    daemon.admin.request("mount", name=ID, id=ID)


def refusal(daemon: Daemon, op: str, **fields: object) -> str:
    with pytest.raises(SchedulerRefused) as caught:
        daemon.admin.request(op, name=ID, **fields)
    assert caught.value.code == "busy"
    return str(caught.value)


def test_it_is_removed_by_nobody_while_it_runs(tmp_path: Path) -> None:
    """`docker volume rm ID` of another user took the hook and the limit out of a container without programs."""
    with running_daemon(tmp_path / "d") as daemon:
        register(daemon)
        assert "stop it first" in refusal(daemon, "remove")
        assert "name the volume otherwise" in refusal(daemon, "mount", id="of Docker's")
        daemon.kill()
        daemon.start()
        assert "stop it first" in refusal(daemon, "remove")
        assert daemon.state(ID)["injected"] is True
        daemon.admin.request("unmount", name=ID, id=ID)
        daemon.admin.request("remove", name=ID)


def tell(daemon: Daemon, *states: str, later: float) -> None:
    """Report what the Engine lists, and no volume; `later`: seconds from now at which it was asked."""
    rows = [{"id": ID, "name": "c", "image": "i", "state": state, "volumes": [ID]} for state in states]
    daemon.admin.request("listed", asked=time.time() + later, containers=rows, volumes=[])


def test_a_slow_start_leaves_it_what_it_is(daemon: Daemon) -> None:
    """The list says `created` until its program runs, and its mount is forgotten after ten seconds."""
    register(daemon)
    tell(daemon, "created", later=20)
    assert (daemon.state(ID)["mounts"], daemon.state(ID)["injected"]) == (0, True)
    tell(daemon, "running", later=30)
    assert daemon.state(ID)["state"] == "running"
    assert "stop it first" in refusal(daemon, "remove")
    assert "name the volume otherwise" in refusal(daemon, "mount", id="of Docker's")
    daemon.admin.request("unmount", name=ID, id=ID)  # by the runtime, which knows no count
    daemon.admin.request("remove", name=ID)


def test_one_whose_end_was_never_registered_goes_with_its_container(daemon: Daemon) -> None:
    """The Engine may have no volume of ours at all: that says nothing about injected limits."""
    daemon.admin.request("create", name="v", options={"memory": "1g"})
    register(daemon)
    tell(daemon, "exited", later=20)
    tell(daemon, "exited", later=100)
    assert daemon.state(ID)["state"] == "ended"
    tell(daemon, later=100)
    with pytest.raises(SchedulerRefused) as caught:
        daemon.state(ID)
    assert caught.value.code == "unknown"
    assert daemon.state("v")["state"] == "created"


def test_such_a_one_starts_again_with_another_limit(daemon: Daemon) -> None:
    register(daemon)
    tell(daemon, "exited", later=20)
    daemon.admin.request("create", name=ID, options={"memory": "3g"})
    daemon.admin.request("mount", name=ID, id=ID)
    assert daemon.state(ID)["devices"][0]["limit"] == 3 << 30
    with pytest.raises(SchedulerRefused, match="other options"):  # it runs
        daemon.admin.request("create", name=ID, options={"memory": "4g"})


def test_a_container_gets_no_limit_of_a_volume_that_somebody_named_like_it(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        daemon.admin.request("create", name=ID, options={"memory": "9g"})
        daemon.admin.request("mount", name=ID, id="of Docker's")
        assert "name the volume otherwise" in refusal(daemon, "mount", id=ID)
        daemon.admin.request("unmount", name=ID, id="of Docker's")
        daemon.admin.request("mount", name=ID, id=ID)
