"""Memory of dead programs that others keep, by a descriptor of the driver; on the simulated driver, in real cgroups."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from daemon import CONTEXT, GIB, Daemon, Process, running_daemon, wait_until

from convgpu.protocol import messages as m

OPTIONS = ["--audit=100ms", "--overuse-after=300ms"]
SIZE = 3 * GIB + CONTEXT
# Holds 3 GiB; its child inherits its descriptors, goes into the cgroup that is named, if one is, and tells its pid.
PROGRAM = """
import ctypes, os, signal, sys
if sys.argv[1]:
    open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
cuda, word = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(word), 0) == cuda.cuCtxSetCurrent(word)
assert cuda.cuMemAlloc_v2(ctypes.byref(word), ctypes.c_size_t(3 << 30)) == 0
child = os.fork()
if child:
    signal.pause()
if sys.argv[2] != sys.argv[1]:
    ctypes.CDLL(None).unshare(0x20000)  # other mounts, as in another container
    open(sys.argv[2] + "/cgroup.procs", "w").write(str(os.getpid()))
print(os.getpid(), flush=True)
signal.pause()
"""

# A process with the pid and in the cgroup that are named (clone3(2)); it uses no device.
NAMESAKE = """
import ctypes, os, signal, sys
pid, words = ctypes.c_int(int(sys.argv[1])), (ctypes.c_uint64 * 11)()
words[4], words[8], words[9] = signal.SIGCHLD, ctypes.addressof(pid), 1
child = ctypes.CDLL(None).syscall(435, words, ctypes.sizeof(words))
if child == 0:
    open(sys.argv[2] + "/cgroup.procs", "w").write(str(os.getpid()))
    print(os.getpid(), flush=True)
    signal.pause()
    os._exit(0)
sys.stdin.read()
os.kill(child, signal.SIGKILL)
sys.exit(os.waitpid(child, 0)[1] != signal.SIGKILL)
"""


@contextmanager
def family(
    daemon: Daemon, cgroup: Path | None = None, keeper: Path | None = None, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A program that holds memory, and the pid of its child; in one cgroup each, or those of the host."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(daemon.directory / "driver")} | variables
    command = [sys.executable, "-c", PROGRAM, str(cgroup or ""), str(keeper or cgroup or "")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        pidfd = os.pidfd_open(child)
        try:
            yield process, child
        finally:
            process.kill()
            end(pidfd)
            os.close(pidfd)


def end(pidfd: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def device(daemon: Daemon) -> dict[str, object]:
    return daemon.admin.request("devices")["devices"][0]


def usages(daemon: Daemon, *names: str) -> set[tuple[int, ...]]:
    """Return all that is seen for two seconds: what containers are charged with, and external memory."""
    figures, begun = set(), time.monotonic()

    def has_looked() -> bool:
        figures.add((*(share(daemon, name)["usage"] for name in names), device(daemon)["external"]))
        return time.monotonic() - begun > 2.0

    wait_until(has_looked, "two seconds have passed")
    return figures


def containers(daemon: Daemon) -> list[dict[str, object]]:
    """Return what is shown of containers without a limit, and not of programs of the host's."""
    return [one for one in device(daemon)["unlimited"] if not one.get("pid")]


def share(daemon: Daemon, name: str) -> dict[str, int]:
    return daemon.state(name)["devices"][0]


@contextmanager
def watcher(daemon: Daemon, cgroup: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that has the driver open, and no memory."""
    code = "import os, sys, signal; os.open(sys.argv[1], os.O_RDONLY); signal.pause()"
    enter = f'echo $$ >{cgroup}/cgroup.procs; exec "$@"'
    command = ["bash", "-c", enter, "-", sys.executable, "-c", code, str(daemon.directory / "driver/devices")]
    with subprocess.Popen(command) as process:
        try:
            yield process
        finally:
            process.kill()


def listed(daemon: Daemon, containers: Mapping[Path, str]) -> None:
    """Say what the plugin would: containers run in these cgroups, with these volumes."""
    rows = [
        {"id": cgroup.name, "name": name, "state": "running", "volumes": [name]} for cgroup, name in containers.items()
    ]
    daemon.admin.request("listed", asked=time.time(), containers=rows, volumes=["a", "b"])


def test_what_a_dead_program_left_to_its_workers_stays_its_containers(tmp_path: Path, cgroup: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS, "--overuse=stop") as daemon:
        daemon.container("a", memory="4g")
        listed(daemon, {cgroup: "a"})
        with family(daemon, cgroup, cgroup) as (program, child):
            wait_until(lambda: share(daemon, "a")["usage"] == SIZE, "it is charged")
            program.kill()
            program.wait()
            assert usages(daemon, "a") == {(SIZE, 0)}
            assert (daemon.events("overused", "stopped"), containers(daemon)) == ([], [])
            assert Path(f"/proc/{child}").exists()
        wait_until(lambda: share(daemon, "a")["usage"] == 0, "it is given back with the last worker")


def test_a_hooked_programs_memory_is_its_containers_after_its_session_has_ended(tmp_path: Path, cgroup: Path) -> None:
    """It held its whole limit: that it died makes nobody overuse, and the next program has no room."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS, "--overuse=stop") as daemon:
        folder = daemon.container("a", memory=f"{SIZE >> 20}m")
        listed(daemon, {cgroup: "a"})
        with family(daemon, cgroup, LD_PRELOAD=str(folder / "libconvgpu.so")) as (program, child):
            wait_until(lambda: share(daemon, "a")["seen"] == SIZE == share(daemon, "a")["usage"], "it is seen")
            program.kill()
            program.wait()
            wait_until(lambda: (share(daemon, "a")["grant"], share(daemon, "a")["usage"]) == (0, SIZE), "it is charged")
            process = Process(folder)
            process.hello()
            assert isinstance(process.answer(process.allocate(GIB)), m.Rejected)
            assert usages(daemon, "a") == {(SIZE, 0)}
            assert (daemon.events("overused", "stopped"), Path(f"/proc/{child}").exists()) == ([], True)
        wait_until(lambda: share(daemon, "a")["usage"] == 0, "it is given back with the last worker")
        assert isinstance(process.answer(process.allocate(GIB)), m.Accepted)


def test_a_process_that_gets_the_pid_of_a_dead_one_is_not_charged_for_it(
    tmp_path: Path, make_cgroup: Callable[[], Path]
) -> None:
    dead, innocent = make_cgroup(), make_cgroup()
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS, "--overuse=stop") as daemon:
        daemon.container("a", memory="4g")
        daemon.container("b", memory="1g")
        listed(daemon, {dead: "a", innocent: "b"})
        with family(daemon, dead) as (program, _):
            wait_until(lambda: share(daemon, "a")["usage"] == SIZE, "it is charged")
            program.kill()
            program.wait()
            command, pipe = [sys.executable, "-c", NAMESAKE, str(program.pid), str(innocent)], subprocess.PIPE
            with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as namesake:
                assert namesake.stdout is not None
                assert int(namesake.stdout.readline()) == program.pid
                assert usages(daemon, "a", "b") == {(SIZE, 0, 0)}
                assert daemon.events("overused", "stopped") == []
                namesake.communicate()
                assert namesake.returncode == 0  # it lived until now


def test_who_opened_the_driver_itself_or_has_a_limit_is_not_ended(
    tmp_path: Path, make_cgroup: Callable[[], Path]
) -> None:
    """Monitoring in a container without a limit, and one with a limit that was given a descriptor."""
    giver, watching, limited = make_cgroup(), make_cgroup(), make_cgroup()
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS, "--overuse=stop") as daemon:
        for name in ("a", "b"):
            daemon.container(name, memory="4g")
        listed(daemon, {giver: "a", limited: "b"})
        with family(daemon, giver, limited) as (program, child), watcher(daemon, watching) as monitoring:
            wait_until(lambda: share(daemon, "a")["usage"] == SIZE, "it is charged")
            program.kill()
            program.wait()
            daemon.admin.request("unmount", name="a", id="1")
            listed(daemon, {limited: "b"})
            wait_until(lambda: "stay in use" in daemon.log.read_text(), "it is said")
            line = next(line for line in daemon.log.read_text().splitlines() if "stay in use" in line)
            assert f"candidates: {child} (b) (docs" in line, line
            [left] = containers(daemon)
            assert (left["name"], left["size"], monitoring.poll()) == ("a", SIZE, None)


def test_what_an_ended_container_left_to_another_is_external_and_who_keeps_it_is_ended(
    tmp_path: Path, make_cgroup: Callable[[], Path]
) -> None:
    giver, keeper = make_cgroup(), make_cgroup()
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS, "--overuse=stop") as daemon:
        daemon.container("a", memory="4g")
        listed(daemon, {giver: "a"})
        with family(daemon, giver, keeper) as (program, child), family(daemon) as (other, _):
            wait_until(lambda: share(daemon, "a")["usage"] == SIZE, "it is charged")
            program.kill()
            program.wait()
            daemon.admin.request("unmount", name="a", id="1")
            listed(daemon, {})
            wait_until(lambda: device(daemon)["external"] == 2 * SIZE, "both are external")
            wait_until(lambda: len(containers(daemon)) == 2, "it is seen who keeps it")
            keeping, left = containers(daemon)
            assert (left["name"], left["size"], left["id"]) == ("a", SIZE, "")
            assert (keeping["name"], keeping["size"], keeping["id"]) == (keeper.name, SIZE, keeper.name)
            wait_until(lambda: f"{child} ({keeper.name})" in daemon.log.read_text(), "it is named")
            wait_until(lambda: containers(daemon)[0]["started"], "its start is known")
            verdict = {"id": keeper.name, "started": containers(daemon)[0]["started"], "kept": ""}
            daemon.admin.request("judge", verdicts=[verdict])
            wait_until(lambda: device(daemon)["external"] == SIZE, "it is ended, and the memory is back")
            assert containers(daemon) == []
            assert [(one["container"], one["reason"]) for one in daemon.events("stopped")] == [
                (keeper.name, "unlimited")
            ]
            assert other.poll() is None
        assert daemon.log.read_text().count("stay in use") == 1
