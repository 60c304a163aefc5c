"""A container that `convgpu-runtime` registers by its id: nobody's volume takes its limit away, or its place."""

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
        assert daemon.state(ID)["injected"] is False
        daemon.admin.request("remove", name=ID)


def test_a_container_gets_no_limit_of_a_volume_that_somebody_named_like_it(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        daemon.admin.request("create", name=ID, options={"memory": "9g"})
        daemon.admin.request("mount", name=ID, id="of Docker's")
        assert "name the volume otherwise" in refusal(daemon, "mount", id=ID)
        daemon.admin.request("unmount", name=ID, id="of Docker's")
        daemon.admin.request("mount", name=ID, id=ID)
