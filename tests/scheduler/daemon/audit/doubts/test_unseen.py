"""Memory of a dead process that nobody saw with any is its container's; on the simulated driver."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from contained_program import TAKE, first_process, program, said
from daemon import CONTEXT, GIB, Daemon, running_daemon, wait_until

from convgpu.core.audit.attribution import UNCOUNTED, Owner
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.doubts import unseen
from convgpu.daemon.audit.doubts.unseen import UnseenMemory
from convgpu.daemon.gpu.namespace_lists import NamespaceAnswer, NamespaceQuestion
from convgpu.daemon.gpu.nvml import DeviceError, UnnamedError

OPTIONS = ["--audit=100ms", "--overuse-after=300ms", "--overuse=stop"]
# Starts the program that is named in a PID namespace of its own, as a child of its first process.
NAMESPACE = f"""{TAKE}
enter(sys.argv[1])
ctypes.CDLL(None).unshare(0x20000000)
if os.fork() == 0:
    if os.fork() == 0:
        os.execv(sys.argv[2], sys.argv[2:])
    while True:
        exec(sys.argv[3])
        os.waitpid(-1, os.WNOHANG)
os.wait()
"""
# A program that uses the driver, has nothing, and ends; one that shares its memory takes some for it a second later.
TWIN = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static void *cuda;
static char stack[1 << 16] __attribute__((aligned(64)));
static int twin(void *unused) {
    int (*retain)(void **, int) = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    int (*use)(void *) = dlsym(cuda, "cuCtxSetCurrent");
    int (*allocate)(unsigned long long *, size_t) = dlsym(cuda, "cuMemAlloc_v2");
    void *context;
    unsigned long long memory;
    sleep(1);
    if (retain(&context, 0) == 0 && use(context) == 0 && allocate(&memory, (size_t)5 << 30) == 0) write(1, "\n", 1);
    for (;;) pause();
}
int main(void) {
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int (*begin)(unsigned) = dlsym(cuda, "cuInit");
    if (begin(0) != 0) return 1;
    clone(twin, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    _exit(0);
}
"""


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("twin") / "twin"
    subprocess.run(["cc", "-x", "c", "-", "-o", place, "-ldl"], input=TWIN, text=True, check=True)
    return place


# All but the namespace's first process, the dead one, and the one that shares its memory.
END_WHOEVER_ASKS = """
for pid in range(4, 99):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


def usage(daemon: Daemon, name: str) -> int:
    return daemon.state(name)["devices"][0]["usage"]


@pytest.mark.parametrize("then", ["time.sleep(0.1)", END_WHOEVER_ASKS])
def test_what_is_made_of_a_dead_process_that_had_nothing_is_its_containers(
    tmp_path: Path, make_cgroup: Callable[[], Path], twin: Path, then: str
) -> None:
    """Another container, whose program holds as much as it may, is charged with none of it."""
    taking, honest = make_cgroup(), make_cgroup()
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS) as daemon:
        daemon.container("a", memory="4g")
        daemon.container("b", memory="1g")
        rows = {"a": honest.name, "b": taking.name}
        listed = [{"id": own, "name": name, "state": "running", "volumes": [name]} for name, own in rows.items()]
        daemon.admin.request("listed", asked=0.0, containers=listed, volumes=["a", "b"])
        other = TAKE + "enter(sys.argv[1])\ntake(3)\nprint(flush=True)\nsignal.pause()\n"
        with program(daemon, other, honest, str(honest)) as holder:
            assert said(holder) == "\n"
            with program(daemon, NAMESPACE, taking, str(taking), str(twin), then) as taker:
                assert said(taker) == "\n"
                taker.wait(60)
        assert [event["container"] for event in daemon.events("overused", "stopped")] == ["b", "b"]
        [overused] = daemon.events("overused")
        assert 0 <= 5 * GIB + CONTEXT - overused["size"] <= UNCOUNTED
        wait_until(lambda: usage(daemon, "b") == 0, "it is free")


class Searched:
    """Answers searches one after the other, with the last answer again and again; keeps the questions."""

    def __init__(self, *answers: Mapping[int, int] | Exception, most: int = 99) -> None:
        self.answers = list(answers)
        self.most = most  # questions for which there is time
        self.questions: list[Sequence[NamespaceQuestion]] = []

    def search_inside(self, questions: Sequence[NamespaceQuestion]) -> list[NamespaceAnswer]:
        self.questions.append(questions)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return [NamespaceAnswer({"gpu": answer}) for _ in questions[: self.most]]


class Places:
    def known_at(self, inode: int, unowned: AbstractSet[tuple[int, int]]) -> set[int]:
        assert inode
        return {6} if (60, 1) not in unowned else set()


INDEX = ProcessIndex({}, {"id": "a", "other": "b"}, {})


async def search(
    monkeypatch: pytest.MonkeyPatch,
    devices: Searched,
    places: Mapping[int, str],
    rounds: int,
    unowned: AbstractSet[tuple[int, int]] = frozenset(),
) -> Any:
    """Return what is found after some searches, while processes are in containers as said."""
    monkeypatch.setattr(unseen, "processes", lambda: list(places))
    monkeypatch.setattr(unseen, "containers_of", lambda pid: [places[pid]])
    searching = cast("Any", UnseenMemory(cast("Any", devices), Places()))
    searching._index, searching._unowned = INDEX, unowned
    for _ in range(rounds):
        await searching._search()
    return searching.found("gpu")


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")


@needs_root
@pytest.mark.parametrize(
    ("answers", "found"),
    [
        # Twice, with what it has the last time; 1 lives, 6 is known.
        ([{1: 5, 5: 7, 6: 9}, {1: 5, 5: 8, 6: 9}], {Owner("a", "id"): 8}),
        ([{}, {5: 8}, {7: 8}], {}),  # each once: it may live by then
    ],
)
def test_who_is_found_twice_and_not_alive_is_its_containers(
    monkeypatch: pytest.MonkeyPatch, answers: Sequence[Mapping[int, int]], found: Mapping[Owner, int]
) -> None:
    devices = Searched(*answers)
    with first_process() as pid:
        assert asyncio.run(search(monkeypatch, devices, {pid: "id"}, len(answers))) == found
    assert all(not one.inner and one.search > pid for each in devices.questions for one in each)


@needs_root
def test_who_was_seen_and_is_nobodys_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended before its container was looked at."""
    with first_process() as pid:
        found = asyncio.run(search(monkeypatch, Searched({6: 9}), {pid: "id"}, 2, {(60, 1)}))
    assert found == {Owner("a", "id"): 9}


@needs_root
def test_a_namespace_that_two_containers_share_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(first_process())
        command = ["nsenter", "--target", str(first), "--pid", "sleep", "60"]
        joined = stack.enter_context(subprocess.Popen(command))
        stack.callback(joined.kill)
        children = Path(f"/proc/{joined.pid}/task/{joined.pid}/children")
        wait_until(children.read_text, "it has begun")
        places = {first: "id", int(children.read_text()): "other"}
        monkeypatch.setattr(unseen, "processes", lambda: list(places))
        monkeypatch.setattr(unseen, "containers_of", lambda pid: [places[pid]])
        assert unseen._find(INDEX, 1) == {}


@needs_root
def test_who_was_not_asked_for_longest_is_first_where_there_is_no_time_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was found in one is still known while another is searched."""
    devices = Searched({5: 7}, most=1)
    with first_process() as one, first_process() as other:
        found = asyncio.run(search(monkeypatch, devices, {one: "id", other: "other"}, 4))
    assert found == {Owner("a", "id"): 7, Owner("b", "other"): 7}


@pytest.mark.parametrize(
    ("fault", "count"), [(UnnamedError("driver 550"), 1), (DeviceError("no answer"), 3), (OSError(24, "too many"), 3)]
)
def test_who_cannot_be_asked_finds_nothing(monkeypatch: pytest.MonkeyPatch, fault: Exception, count: int) -> None:
    """Who does not tell, is asked once; another fault may pass."""

    async def run() -> None:
        devices = Searched(fault)
        searching = cast("Any", UnseenMemory(cast("Any", devices), Places()))
        monkeypatch.setattr(unseen, "_find", lambda _index, _own: {7: unseen._Namespace(Owner("a", "id"), os.dup(0))})
        monkeypatch.setattr(unseen, "_FAILED", 0.0)
        searching.follow({"gpu": GIB}, INDEX)
        while len(devices.questions) < count:
            await asyncio.sleep(0)
        searching._until = 0.0
        await searching._task
        assert searching.found("gpu") == {}
        if count == 1:
            searching.follow({"gpu": GIB}, INDEX)
            assert searching._task.done()

    asyncio.run(run())
