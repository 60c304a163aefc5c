"""A limit in which not even a CUDA context has room is refused when the volume is made, once a context was seen."""

from pathlib import Path

import pytest
from daemon import CONTEXT, Daemon, Process, running_daemon

from convgpu.client.scheduler import SchedulerRefused
from convgpu.daemon.gpu.context_sizes import UNKNOWN
from convgpu.protocol import messages as m

TAKEN = CONTEXT + (2 << 20)


def begin_a_context(daemon: Daemon, row: int = 0) -> None:
    process = Process(daemon.container("first", memory="2g"))
    process.hello()
    process.ask(m.Allocate(row, UNKNOWN, "cuCtxCreate"))
    process.hold(TAKEN, row)
    assert process.ask(m.Context(row, UNKNOWN, 0)) == m.ContextSize(TAKEN)


def refusal(daemon: Daemon, **options: str) -> str:
    with pytest.raises(SchedulerRefused) as refused:
        daemon.container("small", **options)
    return str(refused.value)


def test_it_is_refused_with_the_smallest_that_does_over_a_restart_too(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        daemon.container("before", memory="100m")  # nobody knows yet
        begin_a_context(daemon)
        for _ in range(2):
            assert refusal(daemon, memory="527m").startswith("memory=527m: a CUDA context alone takes 528MiB of GPU-")
            assert "the smallest limit that does is memory=528m" in refusal(daemon, memory="3%")
            with pytest.raises(SchedulerRefused, match="the smallest limit that does is memory=528m"):
                daemon.admin.request("set", name="first", memory="100m")
            daemon.kill()
            daemon.start()
        assert daemon.state("before")["devices"][0]["limit"] == 100 << 20  # what is there stays
        daemon.container("enough", memory="528m")


def test_of_several_gpus_those_are_left_out_on_which_a_context_has_no_room(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB") as daemon:
        begin_a_context(daemon)
        Process(daemon.container("any", memory="100m", gpus="any")).hello()
        other = str(daemon.admin.request("devices")["devices"][1]["uuid"])
        assert [share["uuid"] for share in daemon.state("any")["devices"]] == [other]
        assert "smallest limit" in refusal(daemon, memory="100m", gpus="0")
        assert "smallest limit" in refusal(daemon, memory="100m", gpus="all")
