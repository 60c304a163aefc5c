"""The two doors to a scheduler, against real sockets in front of recorded answers."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any, ClassVar

import pytest

from convgpu.cli.errors import Unavailable
from convgpu.cli.scheduler import DaemonDoor, PluginDoor, Scheduler
from convgpu.protocol.records import Container, Devices, Event, Events, Share

CONTAINER = {
    "name": "v",
    "created": 1.5,
    "state": "running",
    "mounts": 1,
    "mountpoint": "/d/v",
    "devices": [{"uuid": "GPU-a", "limit": 3, "grant": 2, "usage": 1}],
    "sessions": [],
    "waiting": [],
    "of a later version": True,
}
ANSWERS: dict[str, tuple[int, Any]] = {
    "/v1/containers": (200, {"containers": [CONTAINER]}),
    "/v1/events?since=7": (
        200,
        {
            "events": [{"sequence": 7, "time": 1.0, "cause": "c", "kind": "ended", "container": "v"}],
            "next": 8,
        },
    ),
    "/v1/devices": (503, {"error": {"code": "unavailable", "text": "the scheduler is starting: try again"}}),
    "/v1/events?since=0": (200, {"events": "none"}),
}


class Answering(BaseHTTPRequestHandler):
    answers: ClassVar = ANSWERS

    def do_GET(self) -> None:
        status, body = self.answers[self.path]
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


class PluginServer(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True

    def get_request(self) -> tuple[Any, Any]:
        connection, _ = super().get_request()
        return connection, ("plugin", 0)  # BaseHTTPRequestHandler wants an address of two


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Scheduler]:
    path = tmp_path / "convgpu.sock"
    with PluginServer(str(path), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        door = PluginDoor(path)
        yield Scheduler(door)
        door.close()
        server.shutdown()
        thread.join()


def test_answers_of_the_plugin_become_records(plugin: Scheduler) -> None:
    assert plugin.containers() == (
        Container(
            name="v",
            mountpoint="/d/v",
            created=1.5,
            state="running",
            mounts=1,
            devices=(Share(uuid="GPU-a", limit=3, grant=2, usage=1),),
        ),
    )
    assert plugin.events(7) == Events(
        events=(Event(sequence=7, time=1.0, cause="c", kind="ended", container="v"),), next=8
    )


def test_a_refusal_of_the_plugin_reaches_the_user(plugin: Scheduler) -> None:
    with pytest.raises(Unavailable, match=r"the plugin answered 503: the scheduler is starting: try again"):
        plugin.devices()


def test_an_answer_of_another_version_is_named(plugin: Scheduler) -> None:
    with pytest.raises(Unavailable, match=r"(?s)'events' is not understood \(events: .*different versions"):
        plugin.events(0)


def test_a_socket_that_nobody_serves_names_the_next_step(tmp_path: Path) -> None:
    door = PluginDoor(tmp_path / "none.sock")
    with pytest.raises(Unavailable, match=r"(?s)does not answer on .*none.sock.*docker plugin enable"):
        Scheduler(door).devices()
    door.close()


def test_a_directory_without_a_daemon_names_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"(?s)does not answer.*convgpud --directory"):
        Scheduler(DaemonDoor(tmp_path, timeout=0.01)).devices()


def test_without_permission_the_user_is_told_to_be_root(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    door = PluginDoor(Path("/nowhere/convgpu.sock"))
    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(Unavailable, match=r"(?s)no permission to open .*Run this as root: sudo convgpu"):
        Scheduler(door).devices()
    door.close()


def test_devices_have_a_policy_and_maybe_a_driver() -> None:
    class Door:
        def ask(self, op: str, **fields: object) -> object:
            assert (op, fields) == ("devices", {})
            return {"devices": [], "policy": "fifo", "volume_library_path": "/run/convgpu/driver"}

    expected = Devices(devices=(), policy="fifo", volume_library_path="/run/convgpu/driver")
    assert Scheduler(Door()).devices() == expected
