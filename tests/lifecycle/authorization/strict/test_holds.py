"""What the Engine holds for ever costs nobody else anything, under strict rules on a real Engine."""

import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import pytest
from docker_engine import wait_for
from raw_engine import Call
from strict_run import API, body, logs

pytestmark = pytest.mark.engine

HELD = int(os.environ.get("CONVGPU_HELD", "6"))
CALLS = int(os.environ.get("CONVGPU_HELD_CALLS", "10"))  # about each
FIFO = "rm /etc/passwd; mkfifo /etc/passwd; echo done; sleep 600"


@pytest.fixture
def pool():
    with ThreadPoolExecutor(HELD * (CALLS + 1)) as threads:
        yield threads


def fifos(site):
    """Return the files of accounts that are FIFOs, in containers that the Engine has mounted."""
    found = []
    for path in Path(site.directory, "data").glob("overlay2/*/merged/etc/passwd"):
        with suppress(OSError):
            found += [path] if stat.S_ISFIFO(path.lstat().st_mode) else []
    return found


def release(site):
    """Write nothing into each FIFO that somebody reads, as root of the host can."""
    for path in fifos(site):
        with suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


@pytest.fixture
def held(site, raw, pool):
    """Containers that the Engine starts and that it does not come to an end with."""
    named = body({}, "sh", "-c", FIFO) | {"User": "root"}
    containers = [raw.post(f"{API}/containers/create", named).json["Id"] for _ in range(HELD)]
    for container in containers:
        assert raw.post(f"{API}/containers/{container}/start").status == 204
        wait_for("it has its FIFO", lambda each=container: logs(raw, each) == "done\n")
        raw.post(f"{API}/containers/{container}/kill")
        raw.post(f"{API}/containers/{container}/wait")
    starts = [pool.submit(raw.post, f"{API}/containers/{container}/start") for container in containers]
    wait_for("the Engine opens the FIFOs", lambda: len(fifos(site)) == HELD, 30)
    yield containers

    def over():
        release(site)
        return not wait(starts, 0.1).not_done

    wait_for("all starts come to an end", over)
    for container in containers:
        raw.remove(container)


def of_others(raw, running):
    """Return how long each call of another user took, in seconds; all succeed."""
    asked = {"Cmd": ["true"]}
    calls = {
        "exec": (Call("POST", f"{API}/containers/{running}/exec", asked), 201),
        "logs": (Call("GET", f"{API}/containers/{running}/logs?stdout=1"), 200),
        "create": (Call("POST", f"{API}/containers/create", body({})), 201),
    }
    took = {}
    for name, (call, status) in calls.items():
        begun = time.monotonic()
        answer = raw.send(call)
        took[name] = time.monotonic() - begun
        assert answer.status == status, answer
        if name == "create":
            raw.remove(answer.json["Id"])
    return took


def test_held_containers_cost_others_nothing(raw, running, held, pool):
    quiet = of_others(raw, running)
    uri = f"{API}/containers/{{}}/logs?stdout=1"
    asked = [pool.submit(raw.send, Call("GET", uri.format(held[n % HELD]))) for n in range(HELD * CALLS)]
    rounds = [of_others(raw, running) for _ in range(10)]
    waiting = sum(not each.done() for each in asked)
    refused = asked[-1].result().raw.decode()
    slowest = {name: max(each[name] for each in rounds) for name in quiet}
    print(f"{HELD} held, {CALLS} calls about each: {quiet} quiet, {slowest} at most; {waiting} waited", refused)
    assert waiting > 0
    assert (" held: the Engine has not answered about container " in refused, max(slowest.values()) < 2) == (True, True)
