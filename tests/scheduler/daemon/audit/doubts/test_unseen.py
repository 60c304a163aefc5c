"""Memory of a dead process that nobody saw with any is its container's; on the simulated driver."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from contained_program import TAKE, program, said
from daemon import CONTEXT, GIB, Daemon, running_daemon, wait_until

from convgpu.core.audit.attribution import UNCOUNTED

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
        events = [(event["kind"], event["container"]) for event in daemon.events("overused", "stopped")]
        assert events == [("overused", "b"), ("stopped", "b")]
        [overused] = daemon.events("overused")
        assert 0 <= 5 * GIB + CONTEXT - overused["size"] <= UNCOUNTED
        wait_until(lambda: usage(daemon, "b") == 0, "it is free")
