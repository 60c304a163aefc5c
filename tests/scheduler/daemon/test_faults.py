"""NVML that errs or hangs: not known is never nothing, and nobody else has to wait for it."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from daemon import DRIVER, GIB, Daemon, Process, running_daemon, wait_until

from convgpu.protocol import messages as m

LOST = 15  # NVML_ERROR_GPU_IS_LOST
NOT_SUPPORTED = 3


def usage(daemon: Daemon, name: str) -> int:
    return daemon.state(name)["devices"][0]["usage"]


def hold(folder: Path, *sizes: str) -> "subprocess.Popen[bytes]":
    """gpu-hold behind the hook; it holds until its stdin ends."""
    environment = os.environ | {"LD_LIBRARY_PATH": f"{folder}/driver", "LD_PRELOAD": f"{folder}/libconvgpu.so"}
    command = [str(DRIVER / "gpu-hold"), "--wait-for-stdin", *sizes]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("error", [LOST, NOT_SUPPORTED])
def test_not_known_is_not_nothing(tmp_path: Path, error: int) -> None:
    """A process stopped over a restart, while NVML errs, or with a driver that never names processes."""
    with running_daemon(tmp_path / "d") as daemon:
        with hold(daemon.container("a", memory="10g"), "9g") as stopped:
            wait_until(lambda: usage(daemon, "a") > 9 * GIB, "it holds")
            stopped.send_signal(signal.SIGSTOP)
            daemon.kill()
            daemon.ail(f"0 processes_error={error}")
            daemon.start()
            waiter = Process(daemon.container("b", memory="10g"))
            waiter.hello()
            request = waiter.allocate(8 * GIB)
            wait_until(lambda: "does not come back" in daemon.log.read_text(), "its time is over")
            begun = time.monotonic()
            wait_until(lambda: time.monotonic() - begun > 3.5, "another look at who did not come back")
            daemon.ail()
            assert (daemon.state("b")["state"], len(daemon.state("a")["sessions"])) == ("waiting", 1)
            stopped.send_signal(signal.SIGCONT)
            wait_until(lambda: 9 * GIB < usage(daemon, "a") < 10 * GIB, "it is back")
            assert request not in waiter.answers
            stopped.communicate()
        assert isinstance(waiter.answer(request), m.Accepted)


def test_a_card_that_hangs_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB", "--audit=100ms") as daemon:
        ill = Process(daemon.container("ill", memory="2g", gpus="0"))
        well = Process(daemon.container("well", memory="2g", gpus="1"))
        ill.hello()
        well.hello()
        daemon.ail("0 hang_ms=60000")
        asked = ill.send(m.Context(0, 526 << 20, 0))
        begun = time.monotonic()
        while time.monotonic() - begun < 1:
            before = time.monotonic()
            assert well.ask(m.Query(0)) == m.Usage(2 * GIB, 0, 0)
            assert time.monotonic() - before < 0.5
        assert ill.answer(asked) == m.ContextSize(0)
        wait_until(lambda: daemon.admin.request("devices")["devices"][0]["capacity"] == 0, "nothing is granted there")
        health = [(one["capacity"], one["health"]) for one in daemon.admin.request("devices")["devices"]]
        assert health == [(0, "NVML has not answered within 2 s: see whether nvidia-smi does"), (16 * GIB, "ok")]
        assert well.ask(m.Allocate(0, GIB, "cuMemAlloc")) == m.Accepted(GIB, 0)
        ill.end()
        assert daemon.stop() == 0  # whoever hangs in the driver


def test_a_lost_card_comes_back(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB", "--audit=50ms") as daemon:
        daemon.ail(f"1 error={LOST}")
        wait_until(lambda: daemon.admin.request("devices")["devices"][1]["capacity"] == 0, "it is seen")
        assert "GPU is lost" in daemon.admin.request("devices")["devices"][1]["health"]
        daemon.ail()
        wait_until(lambda: daemon.admin.request("devices")["devices"][1]["capacity"] == 16 * GIB, "it is back")
