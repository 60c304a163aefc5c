"""A program waits for a GPU that was chosen for its container and is lost: it ends, and the next one gets another."""

import os
import subprocess
from pathlib import Path

from built import DRIVER
from daemon import GIB, Process, running_daemon, wait_until

from convgpu.protocol import messages as m


def gpu_hold(folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"LD_LIBRARY_PATH": f"{folder}/driver", "LD_PRELOAD": f"{folder}/libconvgpu.so"}
    command, pipe = [str(DRIVER / "gpu-hold"), "1g"], subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


def test_a_program_that_waits_for_a_lost_gpu_ends_with_a_line_and_the_next_gets_another(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:4GiB,4GiB", "--audit=50ms") as daemon:
        lost, other = (device["uuid"] for device in daemon.admin.request("devices")["devices"])
        holder = Process(daemon.container("holder", memory="4g", gpus="0"))
        holder.hello()
        assert isinstance(holder.ask(m.Allocate(0, 4 * GIB, "cuMemAlloc")), m.Accepted)
        daemon.container("beside", memory="4g", gpus="1")
        folder = daemon.container("a", memory="2g", gpus="any")
        program = gpu_hold(folder)
        wait_until(lambda: bool(daemon.state("a")["waiting"]), "its context waits")
        assert [share["uuid"] for share in daemon.state("a")["devices"]] == [lost]
        daemon.ail("0 error=15")
        _, said = program.communicate(timeout=120)
        assert program.returncode != 0
        assert "the GPU that was chosen for this container is lost or drained; start the program again" in said
        again = gpu_hold(folder)
        again.communicate(timeout=120)
        assert again.returncode == 0
        placed = [list(event["limits"]) for event in daemon.events("placed")]
        assert placed == [[lost], [other]]
