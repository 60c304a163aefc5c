"""Memory that the driver lists with one process ID for a dead program and a living one, of different containers."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from card import Card
from containers import GIB, SIMULATED, Container, Start, wait_until
from plugin_api import PluginApi

from convgpu.protocol.messages import Hello, pack

pytestmark = pytest.mark.skipif(
    SIMULATED, reason="tests/scheduler/daemon/audit/doubts/test_namesakes.py has the simulated form"
)

PID = 0x5EC0DE
HELLO = pack(Hello(PID, "namesake", "", ()), 1).hex()
# Without the hook. For each line it makes a child: that says its name, and waits for one more line, which is how many
# GiB it takes. The first child leaves them to a child of its own at the third; others open a session before.
PROGRAM = f"""
import ctypes, os, signal, socket, sys
def child():
    size = int(sys.stdin.readline() or 0)
    if size == 0:
        os._exit(0)
    if sys.argv[1] == "session":
        session = socket.socket(socket.AF_UNIX)
        session.connect("/run/convgpu/scheduler.sock")
        pid, mark = (number.to_bytes(4, "little") for number in (os.getpid(), {PID}))
        session.sendall(bytes.fromhex("{HELLO}").replace(mark, pid))
        session.recv(65536)
    cuda, word = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0 == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(word), 0) == cuda.cuCtxSetCurrent(word)
    assert cuda.cuMemAlloc_v2(ctypes.byref(word), ctypes.c_size_t(size << 30)) == 0
    print("taken", flush=True)
    if sys.stdin.readline() == "keep\\n" and os.fork() == 0:
        signal.pause()
    os._exit(0)
sys.stdin = open(0, buffering=1)
while sys.stdin.readline():
    pid = os.fork()
    if pid == 0:
        child()
    print("made", flush=True)
    os.waitpid(pid, 0)
    print("ended", flush=True)
"""


class Maker:
    """A program in a container that makes one child after another."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def say(self, line: str, answer: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        assert self.process.stdout.readline() == f"{answer}\n"


@contextmanager
def maker(container: Container, kind: str) -> Iterator[Maker]:
    words = ["docker", "exec", "-i", "-e", "LD_PRELOAD=", container.name, "python3", "-u", "-c", PROGRAM, kind]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        try:
            yield Maker(process)
        finally:
            process.kill()


def has(taker: Maker, pid: int) -> bool:
    """Have a child made; say whether it has that process ID, which is free."""
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
    taker.say("go", "made")
    return Path(f"/proc/{pid}").exists()


def share(plugin: PluginApi, container: Container) -> dict[str, int]:
    [device] = plugin.container(container.volume)["devices"]
    return device


def test_what_is_taken_with_a_dead_ones_process_id_is_the_takers(
    start: Start, plugin: PluginApi, card: Card, figures: dict[str, object]
) -> None:
    """The taker opened a session; the dead one's container is not charged, and nothing is nobody's."""
    keeping, taking = (start(name, "5g", "hold.py", "torch", 0, GIB, GIB) for name in ("a", "b"))
    for container in (keeping, taking):
        container.wait_for("holding")
    quiet = card.used_by()
    with maker(keeping, "alone") as keeper, maker(taking, "session") as taker:
        keeper.say("go", "made")
        keeper.say("3", "taken")
        [pid] = card.used_by().keys() - quiet.keys()
        kept = card.used_by()[pid]
        wait_until(lambda: share(plugin, keeping)["usage"] > kept, "it is charged")
        before = share(plugin, keeping)
        keeper.say("keep", "ended")
        tries = 1
        while not has(taker, pid):
            taker.say("0", "ended")
            tries += 1
            assert tries < 200
        taker.say("8", "taken")
        begun = time.monotonic()
        listed = card.used_by()[pid]
        assert listed - kept > 8 * GIB
        wait_until(lambda: plugin.events(taking.volume, "overused"), "it is seen above its limit")
        seen_after = time.monotonic() - begun
        wait_until(lambda: share(plugin, taking)["usage"] > listed - kept, "it is charged")
        charged = share(plugin, taking)
        assert share(plugin, keeping) == before
        assert plugin.events(keeping.volume, "overused") == []
        assert [one for one in plugin.get("devices")["devices"][0]["unlimited"] if not one["pid"]] == []
    figures["one process ID"] = {
        "tries": tries,
        "listed": listed,
        "kept": kept,
        "charged": charged["usage"],
        "seen after": seen_after,
    }
