"""Memory of dead programs that others keep, by a descriptor of the driver; on the simulated driver, in real cgroups."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID

import pytest
from daemon import CONTEXT, GIB, Daemon, Process, running_daemon, wait_until

from convgpu.protocol import messages as m
from convgpu.protocol.wire import Reason

OPTIONS = ["--audit=100ms", "--overuse-after=300ms"]
SIZE = 3 * GIB + CONTEXT
# Holds 3 GiB; its child inherits its descriptors, goes into the cgroup that is named, if one is, and tells its pid.
PROGRAM = """
import ctypes, os, signal, socket, sys
if sys.argv[1]:
    open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
if sys.argv[3:]:
    ctypes.CDLL(None).unshare(0x20000)  # other mounts than those of whom it sends its descriptors
cuda, word = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(word), 0) == cuda.cuCtxSetCurrent(word)
assert cuda.cuMemAlloc_v2(ctypes.byref(word), ctypes.c_size_t(3 << 30)) == 0
for path in sys.argv[3:]:
    for control in [int(one) for one in os.listdir("/proc/self/fd")]:
        try:
            name = os.readlink(f"/proc/self/fd/{control}")
        except OSError:
            continue
        if name.endswith("/devices"):
            to = socket.socket(socket.AF_UNIX)
            to.connect(path)
            socket.send_fds(to, [b"x"], [control])
            to.recv(1)
child = os.fork()
if child:
    signal.pause()
if sys.argv[2] != sys.argv[1]:
    ctypes.CDLL(None).unshare(0x20000)  # other mounts, as in another container
    open(sys.argv[2] + "/cgroup.procs", "w").write(str(os.getpid()))
print(os.getpid(), flush=True)
signal.pause()
"""

# Takes descriptors that it is sent, and keeps them.
TAKER = """
import socket, sys
listening, kept = socket.socket(socket.AF_UNIX), []
listening.bind(sys.argv[1])
listening.listen()
while True:
    connection = listening.accept()[0]
    kept.append(socket.recv_fds(connection, 1, 1)[1])
    connection.send(b"x")
"""

# A process with the pid, if nobody has it, and in the cgroup that are named (clone3(2)); it uses no device.
NAMESAKE = """
import ctypes, os, signal, sys
pid, words = ctypes.c_int(int(sys.argv[1])), (ctypes.c_uint64 * 11)()
words[4], words[8], words[9] = signal.SIGCHLD, ctypes.addressof(pid), 1
child = ctypes.CDLL(None).syscall(435, words, ctypes.sizeof(words))
if child < 0:
    sys.exit("somebody else has it")  # and -1 would be everybody
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
    daemon: Daemon,
    cgroup: Path | None = None,
    keeper: Path | None = None,
    send: tuple[Path, ...] = (),
    **variables: str,
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A program that holds memory, and the pid of its child; in one cgroup each, or those of the host."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(daemon.directory / "driver")} | variables
    command = [sys.executable, "-c", PROGRAM, str(cgroup or ""), str(keeper or cgroup or ""), *map(str, send)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            child = int(process.stdout.readline())
            pidfd = os.pidfd_open(child)
            try:
                yield process, child
            finally:
                end(pidfd)
                os.close(pidfd)
        finally:
            process.kill()


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


def test_the_next_program_is_refused_what_a_child_keeps_before_the_audit_has_looked(
    tmp_path: Path, cgroup: Path
) -> None:
    """It was granted that, and then its container was ended for both."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--audit=1h", "--overuse=stop") as daemon:
        folder = daemon.container("a", memory="4g")
        listed(daemon, {cgroup: "a"})
        with family(daemon, cgroup, LD_PRELOAD=str(folder / "libconvgpu.so")) as (program, _child):
            wait_until(lambda: share(daemon, "a")["usage"] == SIZE, "it has its memory")
            process = Process(folder)
            process.hello()
            program.kill()
            program.wait()
            wait_until(lambda: share(daemon, "a")["usage"] == 0, "its lease is given back")
            refused = process.answer(process.allocate(GIB))
            assert refused == m.Rejected(Reason.LIMIT, 4 * GIB, SIZE)  # which says what is in the way
            assert process.ask(m.Allocate(0, GIB // 4, "cuMemAlloc")) == m.Accepted(GIB // 4, 0)

        def is_granted() -> bool:
            return isinstance(process.answer(process.allocate(GIB)), m.Accepted)

        wait_until(is_granted, "it has what the last child gave back, when that has ended")


# Takes as much as it is told when its standard input says so; tells what the driver says.
SIBLING = """
import ctypes, sys
cuda, word = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
sys.stdin.readline()
assert cuda.cuInit(0) == 0 == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(word), 0) == cuda.cuCtxSetCurrent(word)
print(*(cuda.cuMemAlloc_v2(ctypes.byref(word), ctypes.c_size_t(int(size))) for size in sys.argv[1:]))
"""


def test_nor_does_it_take_that_from_what_was_leased_ahead_with_its_context(tmp_path: Path, cgroup: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--audit=1h", "--overuse=stop") as daemon:
        folder = daemon.container("a", memory="5g")
        listed(daemon, {cgroup: "a"})
        environment = os.environ | {"LD_LIBRARY_PATH": str(daemon.directory / "driver")}
        hook, pipe = {"LD_PRELOAD": str(folder / "libconvgpu.so")}, subprocess.PIPE
        command = [sys.executable, "-c", SIBLING, str(GIB), str(GIB // 4)]
        with (
            family(daemon, cgroup, LD_PRELOAD=hook["LD_PRELOAD"]) as (program, _child),
            subprocess.Popen(command, env=environment | hook, stdin=pipe, stdout=pipe, text=True) as sibling,
        ):
            wait_until(lambda: share(daemon, "a")["usage"] == SIZE, "it has its memory")
            program.kill()
            program.wait()
            assert sibling.communicate("now\n") == ("2 0\n", None)  # CUDA_ERROR_OUT_OF_MEMORY


@pytest.mark.parametrize("admit", ["part", "whole"])
def test_nobody_is_ended_for_what_a_child_keeps_and_others_were_granted(
    tmp_path: Path, cgroup: Path, admit: str
) -> None:
    """They were granted it when the program ended, and wait on as soon as the driver has refused it."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS, "--overuse=stop") as daemon:
        folder, other = daemon.container("a", memory="4g"), daemon.container("b", memory="14g", admit=admit)
        listed(daemon, {cgroup: "a"})
        environment = os.environ | {"LD_LIBRARY_PATH": str(daemon.directory / "driver")}
        environment["LD_PRELOAD"] = str(other / "libconvgpu.so")
        command, pipe = [sys.executable, "-c", SIBLING, str(13 * GIB)], subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as waiting:
            with family(daemon, cgroup, LD_PRELOAD=str(folder / "libconvgpu.so")) as (program, _child):
                wait_until(lambda: share(daemon, "a")["seen"] == SIZE == share(daemon, "a")["usage"], "it is seen")
                assert waiting.stdin is not None
                waiting.stdin.write("now\n")
                waiting.stdin.flush()
                wait_until(lambda: len(daemon.events("paused")) == 1, "the other waits")
                program.kill()
                program.wait()
                wait_until(lambda: len(daemon.events("paused")) == 2, "it waits again")
                usages(daemon, "a")
                assert (daemon.events("overused", "stopped"), share(daemon, "a")["usage"]) == ([], SIZE)
            assert waiting.communicate()[0] == "0\n"


def is_innocent_who_gets_the_pid(daemon: Daemon, dead: Path, innocent: Path) -> bool:
    """Say whether a process had the pid of a dead one, and was not charged; somebody else may have got it before."""
    with family(daemon, dead) as (program, _):
        wait_until(lambda: share(daemon, "a")["usage"] == SIZE, "it is charged")
        program.kill()
        program.wait()
        command, pipe = [sys.executable, "-c", NAMESAKE, str(program.pid), str(innocent)], subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as namesake:
            assert namesake.stdout is not None
            if not (said := namesake.stdout.readline()):
                return False
            assert int(said) == program.pid
            assert usages(daemon, "a", "b") == {(SIZE, 0, 0)}
            assert daemon.events("overused", "stopped") == []
            namesake.communicate()
            return namesake.returncode == 0  # it lived until now


def test_a_process_that_gets_the_pid_of_a_dead_one_is_not_charged_for_it(
    tmp_path: Path, make_cgroup: Callable[[], Path]
) -> None:
    dead, innocent = make_cgroup(), make_cgroup()
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS, "--overuse=stop") as daemon:
        daemon.container("a", memory="4g")
        daemon.container("b", memory="1g")
        listed(daemon, {dead: "a", innocent: "b"})
        assert any(is_innocent_who_gets_the_pid(daemon, dead, innocent) for _ in range(3))


@contextmanager
def taker(path: Path, cgroup: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A program that takes every descriptor it is sent, as a bus or a service does; in a container or on the host."""
    enter = f'echo $$ >{cgroup}/cgroup.procs; exec "$@"' if cgroup else 'exec "$@"'
    with subprocess.Popen(["bash", "-c", enter, "-", sys.executable, "-c", TAKER, str(path)]) as process:
        try:
            wait_until(path.exists, "it listens")
            yield process
        finally:
            process.kill()


def judge_all(daemon: Daemon) -> None:
    """Say of all that the scheduler wants judged that nothing permits it, as the plugin would of a user's program."""
    rows = [one for one in device(daemon)["unlimited"] if one["id"] and one["started"]]
    verdicts = [{"id": one["id"], "started": one["started"], "kept": ""} for one in rows]
    if verdicts:
        daemon.admin.request("judge", verdicts=verdicts)


def test_whoever_was_sent_a_descriptor_is_named_and_not_judged(tmp_path: Path, make_cgroup: Callable[[], Path]) -> None:
    """A program of the host's, and one in a container without a limit: they take what a stranger sends them."""
    giver, innocent, watching = make_cgroup(), make_cgroup(), make_cgroup()
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS, "--overuse=stop") as daemon:
        daemon.container("a", memory="4g")
        listed(daemon, {giver: "a"})
        with (
            watcher(daemon, watching) as monitoring,  # opened the driver itself, and is not named
            taker(tmp_path / "bus") as bus,
            taker(tmp_path / "service", innocent) as service,
            family(daemon, giver, send=(tmp_path / "bus", tmp_path / "service")) as (program, child),
        ):
            wait_until(lambda: share(daemon, "a")["usage"] == SIZE, "it is charged")
            os.kill(child, signal.SIGKILL)
            program.kill()
            program.wait()
            daemon.admin.request("unmount", name="a", id="1")
            daemon.admin.request("remove", name="a")
            listed(daemon, {})
            wait_until(lambda: "stay in use" in daemon.log.read_text(), "it is said")
            begun = time.monotonic()

            def is_over() -> bool:
                judge_all(daemon)
                return time.monotonic() - begun > 2.0

            wait_until(is_over, "whoever is judged would have been ended")
            assert [one.poll() for one in (bus, service, monitoring)] == [None] * 3
            assert daemon.events("stopped") == []
            [left] = device(daemon)["unlimited"]
            places = {bus.pid: "on the host", service.pid: f"in container {innocent.name}"}
            comm = Path(f"/proc/{bus.pid}/comm").read_text().strip()
            named = [f"{pid} '{comm}' {places[pid]}" for pid in sorted(places)]
            assert (left["name"], left["size"], left["id"], left["pid"]) == ("a", SIZE, "", 0)
            assert left["kept"].endswith("; was sent one: " + ", ".join(named))
            assert f"was sent one: {', '.join(named)}. Restart" in daemon.log.read_text()
        wait_until(lambda: device(daemon)["unlimited"] == [], "nothing is kept any more")
        assert daemon.log.read_text().count("stay in use") == 1


HUNG = """
import asyncio, threading
from convgpu.core.audit.attribution import Kept, Owner
from convgpu.daemon.audit import keepers
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.report import AuditReport
hangs = threading.Event()
def processes():
    hangs.set()
    threading.Event().wait()
keepers.processes = processes
async def run():
    found = keepers.Keepers(lambda: [(195, 255, None)], AuditReport())
    found.see("x", [Kept(1, 1, Owner(), True)])
    found.look(ProcessIndex({}, {}, {}))
    await asyncio.to_thread(hangs.wait)
asyncio.run(run())
"""


def test_a_look_at_files_that_never_ends_keeps_no_scheduler_from_ending() -> None:
    subprocess.run([sys.executable, "-c", HUNG], check=True, timeout=30)


def test_who_leaves_memory_to_a_child_keeps_its_place(tmp_path: Path, cgroup: Path) -> None:
    """It was placed anew with its whole limit, and what the child kept was nobody's: 15 GiB with a limit of 8."""
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB", *OPTIONS, "--overuse=stop") as daemon:
        folder = daemon.container("a", memory="4g", gpus="any")
        listed(daemon, {cgroup: "a"})
        with family(daemon, cgroup, LD_PRELOAD=str(folder / "libconvgpu.so")) as (program, _child):
            wait_until(lambda: share(daemon, "a")["seen"] == SIZE, "it is seen")
            before = share(daemon, "a")["uuid"]
            Process(daemon.container("b", memory="2g", gpus="0")).hello()  # so the other GPU would be chosen now
            program.kill()
            program.wait()
            process = Process(folder)
            assert [one.uuid for one in process.hello().devices] == [UUID(before.removeprefix("GPU-")).bytes]
            assert isinstance(process.answer(process.allocate(GIB)), m.Rejected)
            wait_until(lambda: share(daemon, "a")["usage"] == SIZE, "it is charged")
            assert isinstance(process.answer(process.allocate(GIB)), m.Rejected)
            process.end()
            assert daemon.events("stopped") == []
        wait_until(lambda: not daemon.state("a")["devices"], "it has no place when nothing is kept")
