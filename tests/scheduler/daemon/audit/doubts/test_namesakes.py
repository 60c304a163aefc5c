"""Memory that is listed with one pid for two programs of different containers; on the simulated driver.

Both are in PID namespaces of their own, as in containers: there the driver tells them apart (docs/decisions/0197).
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from contained_program import TAKE, program, said
from daemon import CONTEXT, GIB, Daemon, running_daemon, wait_until

OPTIONS = ["--audit=100ms", "--overuse-after=300ms", "--overuse=stop"]
SIZE = 3 * GIB + CONTEXT
# In a PID namespace of its own, a program that holds 3 GiB and ends when it is told so, and one that keeps that.
KEEPER = f"""{TAKE}
enter(sys.argv[1])
ctypes.CDLL(None).unshare(0x20000000)
if (first := os.fork()) == 0:
    if os.fork() == 0:
        take(3)
        if os.fork() == 0:
            signal.pause()
        sys.stdin.readline()
        os._exit(0)
    os.wait()
    print(flush=True)
    signal.pause()
while not (program := open(f"/proc/{{first}}/task/{{first}}/children").read()):
    pass
print(program, flush=True)
signal.pause()
"""
# A program with the pid that is named, the first one of a PID namespace (clone3(2)): it opens a session in the folder
# that is named, and takes memory past the hook. The last argument is what it does then.
NAMESAKE = f"""{TAKE}
from convgpu.protocol.messages import Hello, pack
pids, words = (ctypes.c_int * 2)(1, int(sys.argv[1])), (ctypes.c_uint64 * 11)()
words[0], words[4], words[8], words[9] = 0x20000000, signal.SIGCHLD, ctypes.addressof(pids), 2
child = ctypes.CDLL(None).syscall(435, words, ctypes.sizeof(words))
if child == 0:
    enter(sys.argv[2])
    os.chdir(sys.argv[3])
    session = socket.socket(socket.AF_UNIX)
    session.connect("scheduler.sock")
    session.sendall(pack(Hello(os.getpid(), "namesake", "", ()), 1))
    session.recv(65536)
    take(int(sys.argv[4]))
    print(flush=True)
    exec(sys.argv[5])
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1] != signal.SIGKILL)
"""
END_WHOEVER_ASKS = """
while True:
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


def share(daemon: Daemon, name: str) -> dict[str, int]:
    return daemon.state(name)["devices"][0]


@pytest.mark.parametrize("then", ["signal.pause()", END_WHOEVER_ASKS])
def test_what_is_taken_past_the_hook_with_a_dead_ones_pid_is_the_takers(
    tmp_path: Path, make_cgroup: Callable[[], Path], then: str
) -> None:
    """Also where whoever asks in its PID namespace is ended: only its own processes can do that."""
    keeping, taking = make_cgroup(), make_cgroup()
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS) as daemon:
        daemon.container("a", memory="4g")
        folder = daemon.container("b", memory="1g")
        rows = {"a": keeping.name, "b": taking.name}
        listed = [{"id": own, "name": name, "state": "running", "volumes": [name]} for name, own in rows.items()]
        daemon.admin.request("listed", asked=0.0, containers=listed, volumes=["a", "b"])
        with program(daemon, KEEPER, keeping, str(keeping)) as keeper:
            pid = said(keeper).strip()
            wait_until(lambda: share(daemon, "a")["usage"] == SIZE, "it is charged")
            assert keeper.stdin is not None
            keeper.stdin.write("end\n")
            assert said(keeper) == "\n"  # it has ended
            with program(daemon, NAMESAKE, taking, pid, str(taking), str(folder), "5", then) as namesake:
                assert said(namesake) == "\n"
                assert namesake.wait(60) == 0
            assert [event["container"] for event in daemon.events("overused", "stopped")] == ["b", "b"]
            [overused] = daemon.events("overused")
            assert overused["size"] == 5 * GIB + CONTEXT
            wait_until(lambda: (share(daemon, "a")["usage"], share(daemon, "b")["usage"]) == (SIZE, 0), "it is free")
