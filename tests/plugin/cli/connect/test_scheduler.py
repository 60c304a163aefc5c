"""The two transports to a scheduler, against real sockets in front of recorded answers."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any, ClassVar

import pytest

from convgpu.cli.connect.quick_http import QuickHttp
from convgpu.cli.connect.requests_http import RequestsHttp
from convgpu.cli.connect.scheduler import DaemonTransport, PluginTransport, Scheduler, read_answer
from convgpu.cli.connect.unix_http import OpenHttp
from convgpu.cli.terminal.errors import Refused, Unavailable
from convgpu.protocol.records import Container, Devices, Event, Events, LimitChange, LimitChanges, PolicyChoice, Share
from convgpu.protocol.requests import AnswerT, ListDevices, Request

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
    '/v1/containers/v%2Fw/limits {"memory": "4g", "by": "alice"}': (
        200,
        {"devices": [{"uuid": "GPU-a", "limit": 4, "target": 3, "usage": 2}], "priority": 3},
    ),
    '/v1/containers/v/limits {"wait": "5m", "priority": "3", "by": "alice"}': (
        200,
        {"devices": [], "wait": 300.0, "priority": 3},
    ),
    "/v1/containers/v/suspend?deep=true {}": (200, {}),
    "/v1/containers/v/suspend {}": (404, {"error": {"code": "unknown", "text": "no volume v"}}),
    '/v1/containers/v/limits {"memory": "4t", "by": "alice"}': (
        400,
        {"error": {"code": "invalid", "text": "memory=4t: too much"}},
    ),
    '/v1/devices/GPU-a/drain {"drained": true, "by": "alice"}': (200, {}),
    "/v1/policy": (200, {"policy": "fifo", "known": ["best-fit", "fifo"]}),
    '/v1/policy {"policy": "fifo", "by": "alice"}': (404, {"error": {"code": "http", "text": "not found"}}),
    "/v1/history?container=v&kinds=paused&kinds=granted&after=1.5&limit=10": (200, {"events": []}),
}


@pytest.fixture(autouse=True)
def sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes name who called sudo."""
    monkeypatch.setenv("SUDO_USER", "alice")


class Answering(BaseHTTPRequestHandler):
    answers: ClassVar = ANSWERS

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.path += " " + self.rfile.read(length).decode()
        self.do_GET()

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


@pytest.fixture(params=[QuickHttp, RequestsHttp])
def plugin(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    path = tmp_path / "convgpu.sock"
    with PluginServer(str(path), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield Scheduler(PluginTransport(request.param(path)))
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


def test_changes_are_posted_and_what_cannot_be_is_a_refusal(plugin: Scheduler) -> None:
    changes = plugin.set_limits("v/w", "4g")
    assert changes == LimitChanges(devices=(LimitChange(uuid="GPU-a", limit=4, target=3, usage=2),), priority=3)
    with pytest.raises(Refused, match=r"memory=4t: too much"):
        plugin.set_limits("v", "4t")
    assert plugin.set_limits("v", wait="5m", priority="3") == LimitChanges(devices=(), wait=300.0, priority=3)
    plugin.suspend("v", deep=True)
    with pytest.raises(Refused, match="no volume v"):
        plugin.suspend("v")
    plugin.drain("GPU-a", drained=True)
    assert plugin.policy() == PolicyChoice(policy="fifo", known=("best-fit", "fifo"))
    assert plugin.history("v", ("paused", "granted"), 1.5, 10) == ()


def test_a_plugin_that_does_not_know_the_question_is_an_older_one(plugin: Scheduler) -> None:
    with pytest.raises(Unavailable, match="the plugin is older than this command"):
        plugin.policy("fifo")


def test_an_answer_of_another_version_is_named(plugin: Scheduler) -> None:
    wrong = r"(?s)'events' is not understood \(Expected `array`, got `str` - at `\$\.events`\).*different versions"
    with pytest.raises(Unavailable, match=wrong):
        plugin.events(0)


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.usefixtures("unconnected_sockets")
@pytest.mark.parametrize("client", [QuickHttp, RequestsHttp])
def test_a_socket_that_nobody_serves_names_the_next_step(tmp_path: Path, client: OpenHttp) -> None:
    transport = PluginTransport(client(tmp_path / "none.sock"))
    wanted = r"(?s)does not answer on .*none.sock \(No such file or directory\).*docker plugin enable"
    with pytest.raises(Unavailable, match=wanted):
        Scheduler(transport).devices()


def test_a_directory_without_a_daemon_names_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"(?s)does not answer.*convgpud --directory"):
        Scheduler(DaemonTransport(tmp_path, timeout=0.01)).devices()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.usefixtures("unconnected_sockets")
@pytest.mark.parametrize("client", [QuickHttp, RequestsHttp])
def test_without_permission_the_user_is_told_to_be_root(monkeypatch: pytest.MonkeyPatch, client: OpenHttp) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("convgpu.cli.connect.quick_http._socket", socket)
    with pytest.raises(Unavailable, match=r"(?s)no permission to open .*Run this as root: sudo convgpu"):
        Scheduler(PluginTransport(client(Path("/nowhere/convgpu.sock")))).devices()


def test_devices_have_a_policy_and_maybe_a_driver() -> None:
    class Transport:
        def ask(self, request: Request[AnswerT]) -> AnswerT:
            assert request == ListDevices()
            answer = {"devices": [], "policy": "fifo", "volume_library_path": "/run/convgpu/driver"}
            return read_answer(request, answer)

    expected = Devices(devices=(), policy="fifo", volume_library_path="/run/convgpu/driver")
    assert Scheduler(Transport()).devices() == expected
