"""`python -m convgpu.plugin` with the real daemon and simulated devices: nothing is replaced."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import requests_unixsocket
from daemon import wait_until

from convgpu.plugin.docker_api import wire
from convgpu.plugin.server.wsgi import _end_scheduler
from convgpu.runtime.scheduler_client import Registration

ROOT = Path(__file__).parents[3]


def post(session, base, path, document):
    answer = session.post(base + path, data=json.dumps(document))
    return answer.status_code, answer.json()


@pytest.fixture
def plugin(settings, wait_until_served, tmp_path):
    environment = {
        **os.environ,
        **settings.environment(),
        "CONVGPU_DEVICES": "simulated:16GiB",
        "CONVGPU_LOG_FORMAT": "json",
        "CONVGPU_LIBRARIES": str(ROOT / "hook/build"),
        "CONVGPU_SIMULATED_DRIVER": str(ROOT / "tests/fakes/build"),
    }
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "convgpu.plugin"],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
        )
    wait_until_served(settings.socket, process, tmp_path / "log")
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def session():
    with requests_unixsocket.Session() as session:
        yield session


@pytest.fixture
def base(settings):
    return f"http+unix://{str(settings.socket).replace('/', '%2F')}"


def children(process):
    """Its children's ids: none once it has ended."""
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in listed.read_text().split()] if process.poll() is None else []


def command_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[2].decode()


def schedulers(process):
    found = set()
    for pid in children(process):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            if b"convgpu.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
    return found


def test_life_of_a_volume(plugin, session, base, settings):
    # No waiting for the daemon: the first question reaches a plugin that was started a moment ago.
    assert post(session, base, wire.CREATE, {"Name": "v", "Opts": {"memory": "2g"}}) == (200, {"Err": ""})
    assert post(session, base, wire.CREATE, {"Name": "v", "Opts": {"memory": "2g"}}) == (200, {"Err": ""})
    status, got = post(session, base, wire.GET, {"Name": "v"})
    assert (status, got["Volume"]["Status"]["devices"][0]["limit_bytes"]) == (200, 2 << 30)
    use = {"Name": "v", "ID": "a" * 64}
    status, mounted = post(session, base, wire.MOUNT, use)
    assert status == 200
    # The plugin derives the mountpoint of a volume that is not being mounted; it must be the daemon's.
    assert got["Volume"]["Mountpoint"] == mounted["Mountpoint"]
    names = {path.name for path in Path(mounted["Mountpoint"]).iterdir()}
    assert {"libconvgpu.so", "scheduler.sock", "ld.so.preload"} <= names
    assert post(session, base, wire.UNMOUNT, use) == (200, {"Err": ""})
    assert post(session, base, wire.REMOVE, {"Name": "v"}) == (200, {"Err": ""})
    assert post(session, base, wire.LIST, {}) == (200, {"Volumes": [], "Err": ""})

    plugin.send_signal(signal.SIGTERM)
    assert plugin.wait(120) == 0
    assert not settings.socket.exists()


@pytest.mark.usefixtures("plugin")
def test_what_the_runtime_registered_is_no_volume(session, base, settings):
    """`docker volume rm` with the ID of another user's container took its limit and its hook away."""
    name = "c0ffee00" * 8
    assert post(session, base, wire.CREATE, {"Name": "v", "Opts": {"memory": "2g"}})[0] == 200
    container = Registration(settings.directory, name, begins=True)
    container.begin({"memory": "3g"})
    unknown = (500, {"Err": f"there is no ConvGPU volume {name}"})
    assert post(session, base, wire.GET, {"Name": name}) == unknown
    assert post(session, base, wire.PATH, {"Name": name}) == unknown
    assert post(session, base, wire.CREATE, {"Name": name, "Opts": {"memory": "3g"}}) == unknown
    assert post(session, base, wire.MOUNT, {"Name": name, "ID": "a" * 64})[0] == 500
    assert post(session, base, wire.REMOVE, {"Name": name})[0] == 500
    assert [one["Name"] for one in post(session, base, wire.LIST, {})[1]["Volumes"]] == ["v"]
    assert session.get(f"{base}/v1/containers/{name}").json()["devices"][0]["limit"] == 3 << 30
    container.end()
    assert session.get(f"{base}/v1/containers/{name}").status_code == 404


@pytest.mark.usefixtures("plugin")
def test_a_refusal_is_the_schedulers_text(session, base, settings):
    status, answer = post(session, base, wire.CREATE, {"Name": "v", "Opts": {"memory": "17g"}})
    assert status == 500
    assert "16GiB" in answer["Err"]
    status, answer = post(session, base, wire.CREATE, {"Name": "v", "Opts": {"memory": "x" * 100_000}})
    assert (status, bool(answer["Err"])) == (500, True)
    assert post(session, base, wire.GET, {"Name": "../etc"}) == (500, {"Err": "there is no ConvGPU volume ../etc"})
    assert post(session, base, wire.LIST, {}) == (200, {"Volumes": [], "Err": ""})
    assert not (settings.directory / "containers" / "v").exists()


@pytest.mark.usefixtures("plugin")
def test_administration(session, base):
    post(session, base, wire.CREATE, {"Name": "v", "Opts": {"memory": "2g"}})
    devices = session.get(f"{base}/v1/devices").json()
    assert (devices["devices"][0]["total"], devices["policy"]) == (16 << 30, "best-fit")
    assert session.get(f"{base}/v1/containers/v").json()["devices"][0]["limit"] == 2 << 30
    assert [event["kind"] for event in session.get(f"{base}/v1/events?since=1").json()["events"]] == ["created"]
    missing = session.get(f"{base}/v1/containers/w")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown")
    refused = session.get(f"{base}/v1/containers/{'w' * 300}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid")


@pytest.mark.usefixtures("plugin")
def test_a_cause_leads_from_dockers_request_to_its_answer(session, base, tmp_path):
    post(session, base, wire.CREATE, {"Name": "v", "Opts": {"memory": "2g"}})
    post(session, base, wire.CREATE, {"Name": "w", "Opts": {"memory": "17g"}})
    [event] = session.get(f"{base}/v1/events?since=1").json()["events"]
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    said = {
        (line["logger"].split(".")[1], line["level"], line["message"].split()[0])
        for line in lines
        if line["cause"] == event["cause"]
    }
    assert said == {("plugin", "INFO", "volume"), ("daemon", "INFO", "created")}
    assert [line["event"]["kind"] for line in lines if "event" in line] == ["created"]
    refused = [line["cause"] for line in lines if line["level"] == "WARNING" and line["cause"] != "container-sync"]
    assert (len(refused), len(set(refused))) == (2, 1)


def test_a_scheduler_that_hangs_delays_a_mount_for_seconds_only(plugin, session, base):
    post(session, base, wire.CREATE, {"Name": "v", "Opts": {"memory": "2g"}})
    scheduler = next(pid for pid in children(plugin) if command_of(pid) == "convgpu.daemon")
    os.kill(scheduler, signal.SIGSTOP)
    took = []
    while not took or (took[-1] >= 10 and len(took) < 3):  # a busy machine holds up one or the other
        begun = time.monotonic()
        status, answer = post(session, base, wire.MOUNT, {"Name": "v", "ID": "a"})
        took.append(time.monotonic() - begun)
        assert (status, "does not answer" in answer["Err"]) == (500, True)
    assert took[-1] < 10, took  # the Engine gives up after 30
    # What does not need the scheduler is answered meanwhile.
    assert post(session, base, wire.CAPABILITIES, {})[0] == 200
    os.kill(scheduler, signal.SIGCONT)
    assert post(session, base, wire.MOUNT, {"Name": "v", "ID": "b"})[0] == 200


def test_a_scheduler_that_hangs_for_good_is_ended(plugin, session, base, settings):
    assert post(session, base, wire.LIST, {})[0] == 200
    scheduler = next(pid for pid in children(plugin) if command_of(pid) == "convgpu.daemon")
    os.kill(scheduler, signal.SIGSTOP)
    with pytest.raises(BlockingIOError):  # noqa: PT012 - who gave up leaves a place taken, until none is left
        while True:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(0.1)
                client.connect(str(settings.admin_socket))
    _end_scheduler(settings.directory)
    # It has just been started, so the plugin ends too; a busy machine may have taken longer, and starts another one.
    wait_until(lambda: plugin.poll() is not None or schedulers(plugin) - {scheduler}, "it is ended")
    assert plugin.poll() in {None, 1}
    assert scheduler not in children(plugin)


@pytest.mark.parametrize("module", ["convgpu.daemon", "gunicorn"])
def test_either_is_killed_and_the_plugin_ends(plugin, session, base, tmp_path, module):
    assert post(session, base, wire.LIST, {})[0] == 200
    both = {command_of(pid): pid for pid in children(plugin)}
    assert both.keys() == {"convgpu.daemon", "gunicorn"}
    os.kill(both[module], signal.SIGKILL)
    assert plugin.wait(120) == 1
    assert re.search(r"(scheduler|server) ended by itself: SIGKILL", (tmp_path / "log").read_text())
    assert [pid for pid in both.values() if Path(f"/proc/{pid}").exists()] == []
