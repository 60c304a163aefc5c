"""The program that asks within PID namespaces, on the simulated driver: what it tells, and what it is there."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from daemon import CONTEXT, GIB, Daemon, running_daemon, wait_until

from convgpu.daemon.gpu.namespace_lists import NO_IDS, NamespaceAnswer, NamespaceAsker, NamespaceQuestion

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")

# The first process of a PID namespace: takes 3 GiB, and then does what it is told with each process that comes there.
PROGRAM = """
import ctypes, os, signal, sys
cuda, word = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(word), 0) == cuda.cuCtxSetCurrent(word)
assert cuda.cuMemAlloc_v2(ctypes.byref(word), ctypes.c_size_t(3 << 30)) == 0
print("taken", flush=True)
if not sys.argv[1]:
    signal.pause()
seen = set()
while True:
    for pid in {name for name in os.listdir("/proc") if name.isdecimal()} - {"1"} - seen:
        try:
            exec(sys.argv[1])
        except OSError:
            continue
        seen.add(pid)
"""
# Without the capabilities that containers do not have; says what it could do.
LIMIT = """
import resource
if os.getuid() != {user}:
    os.setresgid({user}, {user}, {user})
    os.setresuid({user}, {user}, {user})
for act in (
    lambda: resource.prlimit(int(pid), resource.RLIMIT_FSIZE, (0, 0)),
    lambda: resource.prlimit(int(pid), resource.RLIMIT_AS, (0, 0)),
    lambda: os.sched_setscheduler(int(pid), os.SCHED_IDLE, os.sched_param(0)),
    lambda: os.sched_setaffinity(int(pid), [0]),
):
    try:
        print("it could", act(), flush=True)
    except (PermissionError, ProcessLookupError):
        pass
"""
NOWHERE = """
import os, sys
from convgpu.daemon.gpu.namespace_program import _make_nowhere
os.fchdir(_make_nowhere())
os.chroot(".")
print("there", flush=True)
sys.stdin.read()
"""
LATE = "no answer in time"
TELL = """
rows = dict(line.split(":\\t") for line in open(f"/proc/{pid}/status").read().splitlines() if ":\\t" in line)
try:
    os.listdir(f"/proc/{pid}/root/")
    print("looked into", flush=True)
except PermissionError:
    print(rows["Uid"].split(), int(rows["CapPrm"], 16), int(rows["CapEff"], 16), flush=True)
"""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("n") / "d", "simulated:16GiB") as daemon:
        yield daemon


@contextmanager
def namespace(daemon: Daemon, then: str = "", *options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A program in a PID namespace, and its pid here; without what Docker gives no container by default."""
    few = "-sys_ptrace,-sys_resource,-sys_nice,-sys_admin,-net_admin"
    drop = ["setpriv", "--bounding-set", few, "--inh-caps", few]
    command = ["unshare", *options, "--pid", "--fork", "--mount-proc", *drop, sys.executable, "-c", PROGRAM, then]
    environment = os.environ | {"LD_LIBRARY_PATH": str(daemon.directory / "driver")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "taken\n"
        first = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        try:
            yield process, first
        finally:
            with suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)


@pytest.fixture
def asker(simulated: Daemon) -> Iterator[NamespaceAsker]:
    asker = NamespaceAsker(str(simulated.directory / "driver/libnvidia-ml.so.1"))
    yield asker
    asker.close(60)


def ask(asker: NamespaceAsker, *firsts: int) -> list[NamespaceAnswer]:
    descriptors = [os.open(f"/proc/{first}/ns/pid", os.O_RDONLY | os.O_CLOEXEC) for first in firsts]
    questions = [NamespaceQuestion(one, [1, 7], [first]) for one, first in zip(descriptors, firsts, strict=True)]
    try:
        answers = [NamespaceAnswer(trouble=LATE)]
        # Who comes is asked the next time; late it may be where others keep the cores busy.
        while any(answer.has_come or answer.trouble == LATE for answer in answers):
            answers = asker.ask(questions, patience=60)
        return answers
    finally:
        for one in descriptors:
            os.close(one)


def there(first: int) -> list[int]:
    """Return the pids of ours in the namespace of a process: whose parent is outside."""
    namespace, found = Path(f"/proc/{first}/ns/pid").readlink(), []
    for pid in [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]:
        with suppress(OSError):
            if pid != first and Path(f"/proc/{pid}/ns/pid").readlink() == namespace:
                found.append(pid)
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_what_processes_hold_is_told_by_the_pids_that_they_have_there(simulated: Daemon, asker: NamespaceAsker) -> None:
    size = 3 * GIB + CONTEXT
    users = "--user", "--map-root-user"  # as strict rules have it
    with namespace(simulated) as (_, one), namespace(simulated, "", *users) as (_, other):
        [uuid] = (row["uuid"] for row in simulated.admin.request("devices")["devices"])
        assert ask(asker, one, other) == [
            NamespaceAnswer({uuid: {1: size}}, {uuid: {first: size}}) for first in (one, other)
        ]


def test_who_asks_is_nobody_there_and_cannot_be_looked_into(simulated: Daemon, asker: NamespaceAsker) -> None:
    """It has CAP_NET_ADMIN, and never in force: so nobody without that may give it another share of the cores."""
    with namespace(simulated, TELL) as (program, first):
        assert program.stdout is not None
        for _ in range(50):
            assert ask(asker, first)[0].most is not None
            if select.select([program.stdout], [], [], 0)[0]:
                break
        users = [*map(str, NO_IDS), "0"]  # real, effective and saved; and that of files, where NVML opens some
        assert program.stdout.readline() == f"{users} {1 << 12} 0\n"


@pytest.mark.parametrize("user", [0, *NO_IDS])
def test_who_asks_cannot_be_limited_by_who_takes_its_ids(simulated: Daemon, asker: NamespaceAsker, user: int) -> None:
    with namespace(simulated, LIMIT.format(user=user)) as (program, first):
        assert program.stdout is not None
        for _ in range(10):
            assert ask(asker, first)[0].most is not None
        assert not select.select([program.stdout], [], [], 0)[0]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGINT])
def test_whoever_ends_or_stops_who_asks_is_known_for_it(
    simulated: Daemon, asker: NamespaceAsker, number: signal.Signals
) -> None:
    with namespace(simulated, f"os.kill(int(pid), {int(number)})") as (_, first):
        answers = iter(lambda: ask(asker, first)[0], None)
        assert next(answer for answer in answers if answer.most is None) == NamespaceAnswer(is_disturbed=True)


def test_a_namespace_whose_first_process_has_ended_cannot_be_asked(simulated: Daemon, asker: NamespaceAsker) -> None:
    with namespace(simulated) as (process, first):
        descriptor = os.open(f"/proc/{first}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        os.kill(first, signal.SIGKILL)
        process.wait()
        question = NamespaceQuestion(descriptor, [1], [first])
        assert [asker.ask([question], patience=60) for _ in range(3)] == [
            [NamespaceAnswer(has_come=True)],
            [NamespaceAnswer(trouble="it has ended")],
            [NamespaceAnswer(has_come=True)],
        ]
        with pytest.raises(OSError, match=r"^status 1: OSError: /nowhere/libnvidia-ml.so.1: cannot open"):
            NamespaceAsker("/nowhere/libnvidia-ml.so.1").ask([question], patience=60)
        os.close(descriptor)


def test_whoever_ends_with_its_container_was_ended_by_nobody(simulated: Daemon, asker: NamespaceAsker) -> None:
    """The kernel ends all who are there. Two in a row would be held against the next one with that inode."""
    with namespace(simulated) as (process, first):
        descriptor = os.open(f"/proc/{first}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        assert ask(asker, first)[0].most is not None
        os.kill(first, signal.SIGKILL)
        process.wait()
        wait_until(lambda: not Path(f"/proc/{first}").exists(), "all have ended")
        assert asker.ask([NamespaceQuestion(descriptor, [1], [first])], patience=60) == [
            NamespaceAnswer(trouble="it has ended")
        ]
        os.close(descriptor)


def test_an_inode_is_no_other_namespaces_while_somebody_is_there(simulated: Daemon, asker: NamespaceAsker) -> None:
    """Nobody else has it open, and the kernel gives it to the next one."""

    def opened() -> set[str]:
        folder = Path(f"/proc/{cast('Any', asker)._program.pid}/fd")
        return {str(one.readlink()) for one in folder.iterdir() if str(one.readlink()).startswith("pid:")}

    with namespace(simulated) as (_, one), namespace(simulated) as (_, other):
        for first in (one, other):
            ask(asker, first)
            assert opened() == {str(Path(f"/proc/{first}/ns/pid").readlink())}


def test_who_asks_stays_until_nobody_is_asked_about_there(simulated: Daemon, asker: NamespaceAsker) -> None:
    """Whoever comes is seen coming, and memory can be given back for that moment."""
    with namespace(simulated) as (_, one), namespace(simulated) as (_, other):
        assert [answer.most is None for answer in ask(asker, one, other)] == [False, False]
        [first], [second] = there(one), there(other)
        assert [answer.most is None for answer in ask(asker, other)] == [False]
        assert (there(one), there(other)) == ([], [second])
        ask(asker, one, other)
        assert there(one) not in ([], [first])
        assert there(other) == [second]
        assert asker.ask([]) == []
        assert (there(one), there(other)) == ([], [])


def test_who_is_ended_whenever_it_waits_is_known_for_it_at_the_second_time(
    simulated: Daemon, asker: NamespaceAsker
) -> None:
    """Who comes is not asked at once: its memory could be away until somebody else has to come."""
    with namespace(simulated) as (_, first):
        found = []
        for kills in (False, True, False, True, True, True):
            descriptor = os.open(f"/proc/{first}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            [answer] = asker.ask([NamespaceQuestion(descriptor, [1], [first])], patience=60)
            os.close(descriptor)
            found.append((answer.has_come, answer.most is not None, answer.is_disturbed))
            if kills:
                wait_until(lambda: there(first), "it is there")
                os.kill(there(first)[0], signal.SIGKILL)
        come, told, disturbed = (True, False, False), (False, True, False), (False, False, True)
        assert found == [come, told, come, told, come, disturbed]


def test_nothing_is_above_the_folder_that_who_asks_has_for_its_root() -> None:
    with subprocess.Popen([sys.executable, "-c", NOWHERE], stdout=subprocess.PIPE, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        for path in ("root", "root/..", "root/../..", "cwd/.."):
            assert list(Path(f"/proc/{process.pid}/{path}/").iterdir()) == []
        process.communicate()


def test_the_end_of_a_namespace_is_not_held_up(simulated: Daemon, asker: NamespaceAsker) -> None:
    with namespace(simulated) as (process, one), namespace(simulated) as (_, other):
        ask(asker, one, other)
        os.kill(one, signal.SIGKILL)
        process.wait(60)
        assert [answer.most is None for answer in ask(asker, other)] == [False]


def test_who_asks_ends_with_the_program_that_started_it(simulated: Daemon, asker: NamespaceAsker) -> None:
    with namespace(simulated) as (_, first):
        ask(asker, first)
        [ours] = there(first)
        os.kill(parent(parent(ours)), signal.SIGKILL)
        wait_until(lambda: not there(first), "nobody of ours is there")
        with pytest.raises(OSError, match="status -9"):
            ask(asker, first)
        assert ask(asker, first)[0].most is not None
