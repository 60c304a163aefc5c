"""NVML that errs or hangs: not known is never nothing, and nobody else has to wait for it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import DRIVER, GIB, Daemon, Holder, Process, ended_with_test, running_daemon, wait_until

from convgpu.client.scheduler import SchedulerRefused
from convgpu.protocol import messages as m
from convgpu.protocol.messages import pack

LOST = 15  # NVML_ERROR_GPU_IS_LOST
NOT_SUPPORTED = 3


def usage(daemon: Daemon, name: str) -> int:
    return daemon.state(name)["devices"][0]["usage"]


@pytest.mark.parametrize("fault", [f"processes_error={LOST}", f"processes_error={NOT_SUPPORTED}", "no_figures=1"])
def test_not_known_is_not_nothing(tmp_path: Path, fault: str) -> None:
    """A process stopped over a restart, while NVML errs, or with a driver that never names processes or figures."""
    with running_daemon(tmp_path / "d") as daemon:
        with Holder(daemon.container("a", memory="10g"), "9g") as stopped:
            wait_until(lambda: usage(daemon, "a") > 9 * GIB, "it holds")
            stopped.send_signal(signal.SIGSTOP)
            daemon.kill()
            daemon.ail(f"0 {fault}")
            daemon.start()
            waiter = Process(daemon.container("b", memory="10g"))
            waiter.hello()
            request = waiter.allocate(8 * GIB)
            wait_until(lambda: "does not reconnect" in daemon.log.read_text(), "its time is over")
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
        daemon.ail("0 hang_ms=600000")
        asked = ill.send(m.Context(0, 526 << 20, 0))
        for _ in range(500):
            before = time.monotonic()
            assert well.ask(m.Query(0)) == m.Usage(2 * GIB, 0, 0)
            assert time.monotonic() - before < 2  # NVML is given up after 2 s
        assert ill.answer(asked) == m.ContextSize(0)
        wait_until(lambda: daemon.admin.request("devices")["devices"][0]["capacity"] == 0, "nothing is granted there")
        health = [(one["capacity"], one["health"]) for one in daemon.admin.request("devices")["devices"]]
        assert health == [(0, "NVML has not answered within 2 s: see whether nvidia-smi does"), (16 * GIB, "ok")]
        assert well.ask(m.Allocate(0, GIB, "cuMemAlloc")) == m.Accepted(GIB, 0)
        ill.end()
        assert daemon.stop() == 0  # whoever hangs in the driver


def test_a_flood_of_questions_to_a_card_that_hangs_costs_bounded_memory(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--audit=0") as daemon:
        folder = daemon.container("a", memory="2g")
        neighbour, flooder = Process(folder), Process(folder)
        neighbour.hello()
        flooder.hello()
        daemon.ail("0 hang_ms=600000")
        with contextlib.suppress(OSError):
            flooder.socket.sendall(b"".join(pack(m.Context(0, 1, 0), number + 1) for number in range(50_000)))
        wait_until(lambda: "1024 requests of one process wait" in daemon.log.read_text(), "there is a bound")
        assert neighbour.ask(m.Query(0)) == m.Usage(2 * GIB, 0, 0)
        questions = [neighbour.send(m.Context(0, 1, 0)) for _ in range(100)]  # a hundred threads at once
        assert {neighbour.answer(request) for request in questions} == {m.ContextSize(0)}


def test_a_lost_card_comes_back(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB", "--audit=50ms") as daemon:
        daemon.ail(f"1 error={LOST}")
        wait_until(lambda: daemon.admin.request("devices")["devices"][1]["capacity"] == 0, "it is seen")
        assert "GPU is lost" in daemon.admin.request("devices")["devices"][1]["health"]
        daemon.ail()
        wait_until(lambda: daemon.admin.request("devices")["devices"][1]["capacity"] == 16 * GIB, "it is back")


def devices(daemon: Daemon) -> list[tuple[float, str]]:
    """Capacity in GiB and health of each."""
    return [(one["capacity"] / GIB, one["health"]) for one in daemon.admin.request("devices")["devices"]]


def hold_outside(daemon: Daemon, *words: str) -> "subprocess.Popen[bytes]":
    environment = os.environ | {"LD_LIBRARY_PATH": str(daemon.directory / "driver")}
    command = [str(DRIVER / "gpu-hold"), "--wait-for-stdin", *words]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


def test_a_device_that_is_full_when_the_scheduler_starts_comes_in_when_it_is_free(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:4GiB,16GiB", "--audit=50ms", "--reserve=1g") as daemon:
        with hold_outside(daemon, "3g") as foreigner:
            wait_until(lambda: devices(daemon)[0] == (0, "ok"), "it is full")
            daemon.kill()
            daemon.start()
            assert devices(daemon) == [(0, "ok"), (15, "ok")]
            folder = daemon.container("a", memory="2g", gpus="all")  # on all devices, whichever has room now
            with pytest.raises(SchedulerRefused, match="has nothing to hand out: all of it is in use"):
                daemon.container("b", memory="2g", gpus="0")
            process = Process(folder)
            assert [row.limit for row in process.hello().devices] == [2 * GIB, 2 * GIB]
            request = process.allocate(GIB, row=0)
            assert process.ask(m.Allocate(1, GIB, "cuMemAlloc")) == m.Accepted(GIB, 0)
            assert request not in process.answers
            foreigner.communicate()
        assert isinstance(process.answer(request), m.Accepted)
        wait_until(lambda: devices(daemon) == [(3, "ok"), (15, "ok")], "all of it is free")


def test_a_host_whose_only_device_is_full_has_a_scheduler(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:4GiB", "--audit=50ms", "--reserve=1g") as daemon:
        with hold_outside(daemon, "3g") as foreigner:
            wait_until(lambda: devices(daemon) == [(0, "ok")], "it is full")
            daemon.kill()
            daemon.start()
            with pytest.raises(SchedulerRefused, match="has nothing to hand out: all of it is in use"):
                daemon.container("a", memory="2g")
            foreigner.communicate()
        wait_until(lambda: devices(daemon) == [(3, "ok")], "it is free")
        daemon.container("a", memory="3g")  # and stays so


def test_what_the_driver_takes_for_itself_is_handed_out_when_it_falls(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--audit=50ms") as daemon:
        for own in (3 * GIB, GIB, 0):
            daemon.kill()
            daemon.ail(f"0 own={own}")
            (daemon.directory / "state.db").unlink()  # an earlier figure would be believed if it is less
            daemon.start()
            expected = [(16 - own / GIB, "ok")]
            assert devices(daemon) == expected
            daemon.ail(f"0 own={own + GIB}")
            wait_until(lambda less=[(15 - own / GIB, "ok")]: devices(daemon) == less, "it rises")
            daemon.ail(f"0 own={own // 2}")
            wait_until(lambda more=[(16 - own / 2 / GIB, "ok")]: devices(daemon) == more, "it falls below the first")


def test_a_device_in_mig_mode_says_so_and_comes_back(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB", "--audit=50ms") as daemon:
        daemon.container("old", memory="2g", gpus="all")
        uuid = daemon.admin.request("devices")["devices"][0]["uuid"]
        mig = "MIG mode is on, and ConvGPU shares whole devices: nvidia-smi -i 0 -mig 0"
        daemon.ail("0 mig=1")
        wait_until(lambda: devices(daemon) == [(0, mig), (16, "ok")], "turned on while it runs")
        daemon.kill()
        daemon.start()
        assert devices(daemon) == [(0, mig), (16, "ok")]
        said = f"device {uuid} hands out nothing: {mig}"
        wait_until(lambda: said in daemon.log.read_text(), "the log says so")
        with pytest.raises(SchedulerRefused, match=f"has nothing to hand out: {mig}"):
            daemon.container("a", memory="2g", gpus="0")
        daemon.container("b", memory="2g")
        assert [len(daemon.state(name)["devices"]) for name in ("old", "b")] == [1, 1]
        daemon.ail()
        wait_until(lambda: devices(daemon) == [(16, "ok"), (16, "ok")], "turned off")
        daemon.container("c", memory="2g", gpus="0")
        daemon.kill()
        daemon.start()
        assert [len(daemon.state(name)["devices"]) for name in ("old", "b", "c")] == [2, 1, 1]


def test_a_card_that_is_lost_over_a_restart_takes_no_container_with_it(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB", "--audit=50ms") as daemon:
        holder = Process(daemon.container("a", memory="4g", gpus="all"))
        rows = holder.hello().devices
        holder.ask(m.Allocate(1, 3 * GIB, "cuMemAlloc"))
        holder.hold(3 * GIB, row=1)
        daemon.kill()
        daemon.ail(f"0 error={LOST}")
        daemon.start()
        holder.reconnect(((rows[1].uuid, 3 * GIB),))
        assert holder.ask(m.Query(0)) == m.Usage(4 * GIB, 3 * GIB, 0)


MANAGED = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAllocManaged(ctypes.byref(pointer), ctypes.c_size_t(5 << 30), 1) == 0
print("held", flush=True)
sys.stdin.readline()
"""


def test_managed_memory_of_a_container_is_not_counted_a_second_time(tmp_path: Path) -> None:
    """NVML lists it for no process."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--audit=50ms") as daemon:
        folder = daemon.container("a", memory="8g")
        environment = os.environ | {"LD_LIBRARY_PATH": f"{folder}/driver", "LD_PRELOAD": f"{folder}/libconvgpu.so"}
        with subprocess.Popen(
            [sys.executable, "-c", MANAGED], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == b"held\n"
            assert usage(daemon, "a") > 5 * GIB
            for _ in range(3):  # each is an audit that found something, and one that found it gone
                with hold_outside(daemon, "1g") as outsider:
                    wait_until(lambda: devices(daemon)[0][0] < 16, "an audit has seen external memory")
                    outsider.communicate()
                wait_until(lambda: devices(daemon) == [(16, "ok")], "another has seen that it is gone")
            program.communicate()


@contextlib.contextmanager
def holding_managed(daemon: Daemon) -> Iterator[subprocess.Popen[bytes]]:
    """A program behind the hook, in container `a`, that holds 5 GiB of managed memory until it gets a line."""
    folder, pipe = daemon.container("a", memory="8g"), subprocess.PIPE
    environment = os.environ | {"LD_LIBRARY_PATH": f"{folder}/driver", "LD_PRELOAD": f"{folder}/libconvgpu.so"}
    managed = subprocess.Popen([sys.executable, "-c", MANAGED], env=environment, stdin=pipe, stdout=pipe)
    with ended_with_test(managed) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"held\n"
        yield program


def test_managed_memory_of_who_has_not_come_back_is_not_granted_to_another(tmp_path: Path) -> None:
    """What it maps says that it is there, though NVML does not."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--audit=100ms") as daemon:
        with holding_managed(daemon) as program:
            held = usage(daemon, "a")
            program.send_signal(signal.SIGSTOP)
            daemon.kill()
            daemon.start()
            other = Process(daemon.container("b", memory="12g"))
            other.hello()
            request = other.allocate(12 * GIB)
            wait_until(lambda: daemon.state("b")["state"] == "waiting", "another waits")
            program.send_signal(signal.SIGCONT)
            wait_until(lambda: usage(daemon, "a") == held, "it is back, with all that it holds")
            assert daemon.state("b")["state"] == "waiting"
            program.communicate()
            assert program.returncode == 0
            assert isinstance(other.answer(request), m.Accepted)
        assert daemon.log.read_text().count("CRITICAL") == 0


def test_who_comes_back_too_late_with_more_than_was_known_is_a_debt_that_fails_nobody(tmp_path: Path) -> None:
    """NVML lists a context for it and not its managed memory, and the memory was granted to another meanwhile."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--audit=0") as daemon:
        with holding_managed(daemon) as program:
            held = usage(daemon, "a")
            program.send_signal(signal.SIGSTOP)
            daemon.kill()
            daemon.start()
            other = Process(daemon.container("b", memory="12g"))
            other.hello()
            answer = other.ask(m.Allocate(0, 12 * GIB, "cuMemAlloc"))
            program.send_signal(signal.SIGCONT)
            assert isinstance(answer, m.Accepted)
            wait_until(lambda: usage(daemon, "a") == held, "it is back, with all that it holds")
            [device] = daemon.admin.request("devices")["devices"]
            assert device["granted"] == held + 12 * GIB > device["capacity"]
            third = Process(daemon.container("c", memory="2g"))
            third.hello()
            request = third.allocate(GIB)
            assert other.ask(m.Query(0)) == m.Usage(12 * GIB, 12 * GIB, 0)
            assert request not in third.answers
            other.end()
            assert isinstance(third.answer(request), m.Accepted)
            [device] = daemon.admin.request("devices")["devices"]
            assert device["granted"] <= device["capacity"]
            program.communicate()
            assert program.returncode == 0
        assert daemon.log.read_text().count("CRITICAL") == 0
