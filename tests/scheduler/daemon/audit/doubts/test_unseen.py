"""Memory of a dead process that nobody saw with any is its container's; on the simulated driver."""

import asyncio
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from contained_program import TAKE, program, said
from daemon import CONTEXT, GIB, Daemon, running_daemon, wait_until

from convgpu.core.audit.attribution import UNCOUNTED, Owner
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.doubts import unseen
from convgpu.daemon.audit.doubts.pid_slices import DeadTold, Looked, Pids, Plan
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


class Devices:
    """Keeps the questions by which who asks is told to leave."""

    def __init__(self) -> None:
        self.left = 0

    def search_inside(self, questions: Sequence[NamespaceQuestion]) -> list[NamespaceAnswer]:
        assert not questions
        self.left += 1
        return []


A, B = Owner("a", "id"), Owner("b", "other")
INDEX = ProcessIndex({}, {"id": "a", "other": "b"}, {})
ALL = Pids(frozenset(), range(1, 100))


def told(sizes: Mapping[int, int], asked: Pids = ALL) -> DeadTold:
    return DeadTold(asked, {"gpu": sizes})


class Searching:
    """Searches, of which each sees what is said; the others fail, or see the last again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *seen: Sequence[tuple[int, DeadTold]] | Exception) -> None:
        self.devices, self.seen, self.left = Devices(), list(seen), False
        self.count, self.owners = 0, {7: A, 8: B}
        monkeypatch.setattr(unseen, "look", self._look)
        self.unseen = cast("Any", UnseenMemory(cast("Any", self.devices)))
        self.unseen._index, self.unseen._nobodys = INDEX, {"gpu": 9}

    def _look(self, *_: object) -> Looked:
        self.count += 1
        seen = self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]
        if isinstance(seen, Exception):
            raise seen
        plans = {inode: Plan([1] if self.left else []) for inode in self.owners}
        return Looked(self.owners, plans, seen)

    def found(self, searches: int = 0) -> Mapping[Owner, int]:
        """Return what is found after some searches."""

        async def run() -> Any:
            for _ in range(searches or len(self.seen)):
                await self.unseen._search()
            return self.unseen.found("gpu")

        return cast("Mapping[Owner, int]", asyncio.run(run()))


def test_what_is_told_of_some_pids_leaves_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = Pids(frozenset(), range(1, 50)), Pids(frozenset({60}), range(70, 80))
    seen = [[(7, told({5: 2, 60: 3}))], [(7, told({5: 4}, low))], [(7, told({}, high))]]
    assert [Searching(monkeypatch, *seen[:count]).found() for count in (1, 2, 3)] == [{A: 5}, {A: 7}, {A: 4}]


def test_whose_namespace_has_become_anothers_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    searching = Searching(monkeypatch, [(7, told({5: 2}))], [])
    assert searching.found(1) == {A: 2}
    searching.owners = {7: B}
    assert searching.found(1) == {}


def test_what_was_told_long_ago_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen, "_STALE", 0.0)
    assert Searching(monkeypatch, [(7, told({5: 2}))]).found() == {}


def test_who_ends_or_stops_whoever_asks_has_all_that_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    disturbed = DeadTold(ALL, None, is_disturbed=True)
    assert Searching(monkeypatch, [(7, disturbed), (8, told({5: 2}))]).found() == {A: 9, B: 2}


def test_why_nothing_is_told_is_said_once_and_who_asks_begins_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    searching = Searching(monkeypatch, [(7, told({5: 2}))], [(7, DeadTold(ALL, trouble="the driver refuses"))])
    assert (searching.found(1), searching.found(2)) == ({A: 2}, {})
    assert (searching.devices.left, len(caplog.records)) == (2, 1)
    assert "the driver refuses" in caplog.text


def test_passes_that_find_nothing_become_rare_until_more_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    searching = Searching(monkeypatch, [])

    async def pauses(count: int) -> list[float]:
        return [await searching.unseen._try() for _ in range(count)]

    assert asyncio.run(pauses(8)) == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    searching.left = True  # a pass that goes on is no reason
    assert asyncio.run(pauses(2)) == [0.5, 0.5]

    async def follow() -> list[float]:
        searching.left = False
        for size in (GIB, GIB + 1):
            searching.unseen.follow({"gpu": size}, INDEX)
        searching.unseen.close()
        return await pauses(2)

    assert asyncio.run(follow()) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("fault", "count"), [(UnnamedError("driver 550"), 1), (DeviceError("no answer"), 3), (OSError(24, "too many"), 3)]
)
def test_who_cannot_be_asked_finds_nothing(monkeypatch: pytest.MonkeyPatch, fault: Exception, count: int) -> None:
    """Who does not tell, is asked once; another fault may pass."""

    async def run() -> None:
        searching = Searching(monkeypatch, fault)
        monkeypatch.setattr(unseen, "_FAILED", 0.0)
        searching.unseen.follow({"gpu": GIB}, INDEX)
        while searching.count < count:
            await asyncio.sleep(0)
        searching.unseen._until = 0.0
        await searching.unseen._task
        assert searching.unseen.found("gpu") == {}
        if count == 1:
            searching.unseen.follow({"gpu": GIB}, INDEX)
            assert searching.unseen._task.done()

    asyncio.run(run())
