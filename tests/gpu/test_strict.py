"""CUDA in containers under strict rules: each has user IDs, layers and device nodes of its own (decision 146)."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from card import Card
from containers import GIB, NAME, SIMULATED, Container, Start, docker, run_options, wait_until
from plugin_api import PluginApi

RUNTIME = "convgpu-strict"
BLOCKS = 4
LIMIT = f"{(BLOCKS + 2) << 10}m"  # and a context, and the framework's own memory


@pytest.fixture(autouse=True)
def _runtime() -> None:
    if RUNTIME not in json.loads(docker("info", "-f", "{{json .Runtimes}}").stdout):
        pytest.skip(f"this Engine has no runtime {RUNTIME}: tests/gpu/run gives it to an Engine that it starts itself")


def first_id(pid: int) -> int:
    """Return the host's user ID of the root of a process."""
    return int(Path(f"/proc/{pid}/uid_map").read_text().split()[1])


def right(through: str) -> bool | None:
    return True if through == "torch" else None  # simulated memory has no content


def test_a_program_holds_its_limit_and_gets_no_more(
    start: Start, plugin: PluginApi, card: Card, figures: dict[str, object], through: str
) -> None:
    container = start("a", LIMIT, "hold.py", through, BLOCKS, GIB, (BLOCKS + 3) * GIB, runtime=RUNTIME)
    container.wait_for("holding")
    [session] = plugin.container(container.volume)["sessions"]
    assert first_id(session["pid"]) > 1 << 30
    assert BLOCKS * GIB < card.used_by()[session["pid"]] <= (BLOCKS + 2) * GIB
    container.signal("USR1")
    assert container.wait() == 0
    assert container.reports()["refused"]["error"] == "OutOfMemoryError"
    assert container.reports()["end"]["right"] == right(through)
    figures["strict"] = {"holds": BLOCKS * GIB, "slowest block": container.reports()["holding"]["slowest"]}


def test_a_container_waits_for_another_and_goes_on(start: Start, plugin: PluginApi, share: int, through: str) -> None:
    limit = f"{(share + 2) << 10}m"
    first = start("a", limit, "hold.py", through, share, GIB, runtime=RUNTIME)
    first.wait_for("holding")
    second = start("b", limit, "hold.py", through, share, GIB, runtime=RUNTIME)
    wait_until(lambda: plugin.events(second.volume, "paused"), "the second is paused")
    first.signal("USR1")
    assert first.wait() == 0
    second.wait_for("holding")
    second.signal("USR1")
    assert second.wait() == 0
    assert [each.reports()["end"]["right"] for each in (first, second)] == [right(through)] * 2


def test_memory_leaves_and_comes_back(start: Start, plugin: PluginApi, card: Card, through: str) -> None:
    """The porter, outside of the container's user namespace, copies what the container gave it."""
    container = start("a", LIMIT, "hold.py", through, BLOCKS, GIB, volume="suspend=auto", runtime=RUNTIME)
    container.wait_for("holding")
    [session] = plugin.container(container.volume)["sessions"]
    before = card.used_by()[session["pid"]]

    def state() -> str:
        return plugin.container(container.volume)["residency"]

    plugin.post(f"containers/{container.volume}/suspend")
    wait_until(lambda: plugin.bytes_out(container.volume) >= BLOCKS * GIB, "it is away")
    left = card.used_by().get(session["pid"], 0)
    plugin.post(f"containers/{container.volume}/resume")
    wait_until(lambda: state() == "running", "it runs again")
    container.signal("USR1")
    assert container.wait() == 0
    assert container.reports()["end"]["right"] == right(through)
    assert left <= before - BLOCKS * GIB


# Sends the driver's control node to whoever connects.
GIVE = """
import os, socket
control, listening = os.open("/dev/nvidiactl", os.O_RDWR), socket.socket(socket.AF_UNIX)
listening.bind("/handed/socket")
os.chmod("/handed/socket", 0o666)
listening.listen()
print('{"event": "giving"}', flush=True)
while True:
    socket.send_fds(listening.accept()[0], [b"x"], [control])
"""
# Is sent it, and asks for the end of a client that is not there (NV_ESC_RM_FREE); says who answers.
TAKE = """
import fcntl, os, socket, struct
connection = socket.socket(socket.AF_UNIX)
connection.connect("/handed/socket")
[control] = socket.recv_fds(connection, 1, 1)[1]
try:
    fcntl.ioctl(control, 0xC0104629, bytearray(struct.pack("=4I", 0xC1DFFFF0, 0xC1DFFFF0, 0xC1DFFFF0, 0)))
    print("the driver")
except OSError as error:
    print(os.strerror(error.errno))
"""


@pytest.fixture
def shared() -> Iterator[str]:
    """A volume that containers share."""
    docker("volume", "create", "handed")
    yield "handed"
    docker("volume", "rm", "-f", "handed")


@pytest.mark.skipif(SIMULATED, reason="needs the driver's own device nodes")
def test_a_container_without_a_gpu_uses_no_descriptor_that_it_was_sent(shared: str, libraries: str) -> None:
    """Decision 186. One with a GPU of its own may: the driver answers it."""
    among = ["-v", f"{shared}:/handed"]
    limited = [*run_options(NAME, "1g", libraries, runtime=RUNTIME), *among]
    folders = [word for name in ("usr", "opt", "etc") for word in ("-v", f"/{name}:/{name}:ro")]
    without = ["--runtime", RUNTIME, "--network", "none", *folders, *among]
    giver = Container("handed-giver", limited, ["python3", "-c", GIVE])
    try:
        giver.wait_for("giving")
        asked = ["convgpu/hostfs", "python3", "-c", TAKE]
        answers = [
            docker("run", "--rm", "-e", f"PATH={os.environ['PATH']}", *options, *asked).stdout.strip()
            for options in (without, limited)
        ]
    finally:
        giver.remove()
    assert answers == ["Operation not permitted", "the driver"]
