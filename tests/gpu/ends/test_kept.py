"""What a child keeps of a program that ended counts at once, whether or not anybody saw the program alive."""

import json

import pytest
from containers import GIB, SIMULATED, Start, docker
from plugin_api import PluginApi

pytestmark = pytest.mark.skipif(SIMULATED, reason="a rehearsal has no PyTorch; tests/hook has the simulated form")

TURNS = 8
SIZE = 1400  # MiB: there is room for one beside a context
# A program takes memory and ends at once; a child of it keeps that until the next has asked for as much.
PROGRAM = """
import ctypes, json, os, signal, sys, time
way, size, turns = sys.argv[1], int(sys.argv[2]) << 20, int(sys.argv[3])
class Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))
class Properties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("rest", ctypes.c_uint64 * 2),
    )
def take():
    cuda, word = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0
    asked = ctypes.byref(Properties(1, 0, Location(1, 0)))
    return cuda.cuMemCreate(ctypes.byref(word), ctypes.c_size_t(size), asked, ctypes.c_uint64(0))
def ask():
    if (child := os.fork()) == 0:
        os._exit(take())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
for _ in range(turns):
    read, write = os.pipe()
    if (holder := os.fork()) == 0:
        taken = take()
        if os.fork() == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        if way == "kill" and not taken:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(taken)
    os.close(read)
    status = os.waitstatus_to_exitcode(os.waitpid(holder, 0)[1])
    beside = ask()
    os.close(write)
    os.waitpid(-1, 0)
    print(json.dumps([status, beside, ask()]), flush=True)
"""


@pytest.mark.parametrize("way", ["exit", "kill"])
def test_who_asks_beside_what_a_child_keeps_is_refused_until_it_ends(start: Start, plugin: PluginApi, way: str) -> None:
    """Without a context NVML lists nobody with it: half of them were granted, and the container was above its limit."""
    container = start("a", "3g", "hold.py", "torch", 0, GIB, 4 * GIB)
    container.wait_for("holding")
    done = docker("exec", container.name, "python3", "-c", PROGRAM, way, str(SIZE), str(TURNS))
    print(way, done.stdout)
    ended = 0 if way == "exit" else -9
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[ended, 2, 0]] * TURNS
    assert not plugin.events(container.volume, "overused")
