"""Names of containers by the Engine's events, from an HTTP server on a UNIX socket in place of an Engine."""

import gc
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingMixIn, UnixStreamServer
from urllib.parse import parse_qs, urlsplit

import pytest

from convgpu.client.scheduler import SchedulerUnavailable
from convgpu.plugin.engine.client import Engine
from convgpu.plugin.engine.container_names import ContainerNames, Starts
from convgpu.protocol.requests import ListedContainer, ReportNames

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

LABELS = {"convgpu.user": "alice", "com.docker.compose.project": "p", "org.label-schema.x": "y"}


def container(action, identity, **attributes):
    return {"Type": "container", "Action": action, "Actor": {"ID": identity, "Attributes": attributes}}


def mount(volume, identity, driver="convgpu:latest"):
    return {
        "Type": "volume",
        "Action": "mount",
        "Actor": {"ID": volume, "Attributes": {"driver": driver, "container": identity}},
    }


def listed(identity, *volumes, **fields):
    return ListedContainer(id=identity, state="running", volumes=volumes, **fields)


def test_a_container_that_was_seen_created_has_its_name_before_its_program_runs():
    starts = Starts("convgpu:latest")
    assert starts.take(container("create", "c", name="one", image="i", **LABELS)) is None
    named = {"name": "one", "image": "i", "labels": {"com.docker.compose.project": "p", "convgpu.user": "alice"}}
    assert starts.take(mount("other", "c", driver="local")) is None
    assert starts.take(mount("v", "c")) == listed("c", "v", **named)
    assert starts.take(mount("w", "c")) == listed("c", "v", "w", **named)
    assert starts.take(container("start", "c", name="one", image="i", **LABELS)) == listed("c", "v", "w", "c", **named)
    assert starts.take(mount("v", "c")) is None  # started again: the start says it


def test_what_is_incomplete_or_of_others_says_nothing():
    starts = Starts("convgpu:latest")
    for event in (
        {},
        {"Type": "network"},
        mount("v", ""),
        {"Type": "volume", "Action": "create", "Actor": {"ID": "v"}},
    ):
        assert starts.take(event) is None
    assert starts.take(container("start", "c" * 64)) == listed("c" * 64, "c" * 64, name="c" * 12)


def test_many_that_never_start_are_forgotten():
    starts = Starts("convgpu:latest")
    for number in range(1025):
        starts.take(container("create", f"c{number}", name=f"n{number}"))
    assert starts.take(mount("v", "c0")) is None
    assert starts.take(mount("v", "c1")).name == "n1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path.endswith("/events"):
            self.server.asked.append(parse_qs(url.query))
            lines = self.server.streams.pop(0)
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for line in lines:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.connection.shutdown(socket.SHUT_RDWR)  # no last chunk: the Engine is killed
            self.close_connection = True
            return
        body = json.dumps({"ApiVersion": "1.41", "MinAPIVersion": "1.12"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class FakeEngine(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True


@pytest.fixture
def engine(tmp_path):
    server = FakeEngine(str(tmp_path / "docker.sock"), Handler)
    server.asked, server.streams = [], []
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()
    gc.collect()


class Scheduler:
    def __init__(self, *failures):
        self.failures, self.asked = list(failures), []

    def ask(self, request):
        if self.failures:
            raise self.failures.pop(0)
        self.asked.append(request)


def line(event, seconds):
    return json.dumps({**event, "time": seconds}).encode() + b"\n"


def test_a_stream_that_breaks_is_followed_from_where_it_broke(tmp_path, engine):
    client = Engine(tmp_path / "docker.sock", timeout=120)
    scheduler = Scheduler(SchedulerUnavailable("it restarts"))
    names = ContainerNames(client, scheduler, "convgpu:latest")
    start = line(container("start", "c", name="one"), 1_700_000_000)
    engine.streams = [[start], [start], [line(mount("v", "d"), 1_700_000_001), b'{"Type"'], []]
    for _ in range(5):  # at last there is no Engine
        names.follow()
    assert scheduler.asked == [ReportNames(listed("c", "c", name="one"))]
    since = [asked.get("since") for asked in engine.asked[:4]]
    assert since == [None, ["1700000000"], ["1700000000"], ["1700000001"]]
    assert json.loads(engine.asked[0]["filters"][0]) == {
        "type": ["container", "volume"],
        "event": ["create", "mount", "start"],
    }
    client._forget()


def test_names_of_any_length_are_short_where_they_are_shown():
    """Docker bounds none: names of 900 kB made one report longer than the scheduler takes."""
    starts, labels = Starts("convgpu:latest"), {f"label{number}": "x" * 900_000 for number in range(30)}
    assert starts.take(container("create", "c", name="n" * 900_000, image="i" * 900_000, **labels)) is None
    shown = starts.take(mount("v", "c"))
    assert (len(shown.name), len(shown.image), len(shown.labels)) == (255, 255, 16)
    assert {len(value) for value in shown.labels.values()} == {128}
    assert len(json.dumps(starts._names)) < 5000  # nothing else stays
