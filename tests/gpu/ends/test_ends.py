"""Ends: of containers that hold most of the card while another waits, and of programs while nobody looks."""

import json
import statistics
import time

import pytest
from card import Card, FreeMemory
from containers import GIB, SIMULATED, Container, Start, docker, wait_until
from plugin_api import PluginApi

pytestmark = pytest.mark.skipif(SIMULATED, reason="a rehearsal has no PyTorch; tests/hook has the simulated form")

TURNS = 20
ENDS = ("SIGKILL", "exit", "docker stop")


def end(container: Container, how: str) -> None:
    if how == "docker stop":
        docker("stop", "-t", "1", container.name)
    else:
        container.signal("KILL" if how == "SIGKILL" else "USR1")


def test_a_waiter_is_never_refused_however_often_a_holder_ends(
    start: Start, plugin: PluginApi, card: Card, figures: dict[str, object], share: int
) -> None:
    size = share * GIB
    limit = f"{share + max(card.total // GIB // 28, 1)}g"
    turns = []
    holder = start("0", limit, "large.py", size)
    holder.wait_for("holding")
    for turn in range(TURNS):
        how = ENDS[turn % len(ENDS)]
        waiter = start(str(turn + 1), limit, "large.py", size)
        waiter.wait_for("asking")
        wait_until(lambda one=waiter: plugin.events(one.volume, "paused"), "the second is paused")
        with FreeMemory(card, size) as free:
            begin = time.time()
            end(holder, how)
            holding = waiter.wait_for("holding")
        holder.remove()
        freed = None if free.since is None else free.since - begin
        turns.append({"how": how, "freed": freed, "returned": holding["returned"] - begin})
        holder = waiter
    holder.signal("USR1")
    assert holder.wait() == 0
    figures["ends"] = {"size": size, "turns": turns} | {
        how: statistics.median(
            turn["returned"] - turn["freed"] for turn in turns if turn["how"] == how and turn["freed"] is not None
        )
        for how in ENDS
    }
    assert len(turns) == TURNS


# Takes 3 GiB and says how long it lived.
SHORT = """
import ctypes, os, signal, socket, time
def take():
    begun, cuda, word = time.monotonic(), ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0 == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(word), 0) == cuda.cuCtxSetCurrent(word)
    assert cuda.cuMemAlloc_v2(ctypes.byref(word), ctypes.c_size_t(3 << 30)) == 0
    return begun
"""
# In a child, which leaves its descriptors to a child of its own and ends.
CHILD = f"""{SHORT}
if os.fork() == 0:
    begun = take()
    if os.fork() == 0:
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        signal.pause()
    print(time.monotonic() - begun, flush=True)
    os._exit(0)
os.wait()
"""
# Likewise, and the parent of that child lives and does not wait for it.
ZOMBIE = f"""{SHORT}
read, write = os.pipe()
if os.fork() == 0:
    if (child := os.fork()) == 0:
        begun = take()
        if os.fork() == 0:
            for descriptor in (0, 1, 2, write):
                os.close(descriptor)
            signal.pause()
        print(time.monotonic() - begun, flush=True)
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    for descriptor in (0, 1, 2, write):
        os.close(descriptor)
    signal.pause()
os.close(write)
os.read(read, 1)
"""
# By itself; it sends its descriptors of the driver to TAKER, has no child, and its parent is the runtime.
SEND = f"""{SHORT}
begun, to = take(), socket.socket(socket.AF_UNIX)
to.connect("\\0taker")
own = [int(one) for one in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{{one}}")]
socket.send_fds(to, [b"x"], [one for one in own if os.readlink(f"/proc/self/fd/{{one}}") == "/dev/nvidiactl"])
to.recv(1)
print(time.monotonic() - begun, flush=True)
os._exit(0)
"""
WAYS = {"child": CHILD, "zombie": ZOMBIE, "send": SEND}
TAKER = """
import os, signal, socket
listening = socket.socket(socket.AF_UNIX)
listening.bind("\\0taker")
listening.listen()
if os.fork() == 0:
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    connection = listening.accept()[0]
    kept = socket.recv_fds(connection, 1, 64)[1]
    connection.send(b"x")
    signal.pause()
os._exit(0)
"""


def usage(plugin: PluginApi, container: Container) -> int:
    return sum(device["usage"] for device in plugin.container(container.volume)["devices"])


@pytest.mark.parametrize("way", WAYS)
def test_what_a_short_program_left_in_its_container_is_that_containers(
    start: Start, plugin: PluginApi, figures: dict[str, object], way: str
) -> None:
    lived = []
    for _ in range(3):
        container = start("a", "1g", "hold.py", "torch", 0, GIB, GIB)
        container.wait_for("holding")  # else its context would find no room, as soon as the other's memory is charged
        unhooked = ("exec", "-e", "LD_PRELOAD=", container.name, "python3", "-c")
        docker(*unhooked, TAKER)
        done = docker(*unhooked, WAYS[way])
        lived.append(float(done.stdout))
        wait_until(lambda: plugin.events(container.volume, "overused"), "it is seen above its limit")  # noqa: B023
        wait_until(lambda: usage(plugin, container) >= 3 * GIB, "it is charged")  # noqa: B023
        assert [one for one in plugin.get("devices")["devices"][0]["unlimited"] if not one["pid"]] == []
        container.remove()
    figures[f"short programs, {way}"] = {"lived": lived}
    print(way, json.dumps(lived))
