"""The Engine's client and the container sync, against an HTTP server on a UNIX socket in place of an Engine."""

import contextlib
import gc
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingMixIn, UnixStreamServer
from types import SimpleNamespace

import msgspec
import pytest
from docker.errors import NotFound

from convgpu.client.scheduler import SchedulerUnavailable
from convgpu.plugin.docker_api import wire
from convgpu.plugin.engine.client import Engine, EngineUnavailable
from convgpu.plugin.engine.container_sync import QUIET, ContainerSync
from convgpu.plugin.server.app import create_app
from convgpu.protocol.requests import ListedContainer, ReportEngineList

# The docker library leaves a socket that it could not connect to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

VERSION = {"ApiVersion": "1.41", "MinAPIVersion": "1.12"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append(self.path)
        path = self.path.partition("?")[0].rpartition("v1.41")[2]
        status, answer = self.server.answers.get(path, (404, {"message": f"no {path}"}))
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class FakeEngine(ThreadingMixIn, UnixStreamServer):
    """Answers GETs from a table; `close` ends its connections too, as the end of an Engine does."""

    daemon_threads = True

    def __init__(self, path):
        path.unlink(missing_ok=True)
        super().__init__(str(path), Handler)
        self.answers = {"/version": (200, VERSION)}
        self.asked = []
        self._open = []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def get_request(self):
        connection, _ = super().get_request()
        self._open.append(connection)
        return connection, "engine"

    def shutdown_request(self, request):
        super().shutdown_request(request)
        self._open.remove(request)

    def close(self):
        self.shutdown()
        self.server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):  # its thread may be closing it
                connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def serve(tmp_path):
    started = []

    def start():
        started.append(FakeEngine(tmp_path / "docker.sock"))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def engine(tmp_path):
    client = Engine(tmp_path / "docker.sock", timeout=0.5)
    yield client
    client._forget()
    gc.collect()


def names(engine):
    return [row["Id"] for row in engine.ask(lambda api: api.containers(all=True))]


def test_a_question_waits_while_the_engine_s_socket_queues_nobody(tmp_path):
    path, waited = tmp_path / "docker.sock", []
    crowded = socket.socket(socket.AF_UNIX)
    crowded.bind(str(path))
    crowded.listen(0)
    first = socket.socket(socket.AF_UNIX)
    first.connect(str(path))

    def wait(seconds):
        waited.append(seconds)
        if len(waited) == 2:
            running.append(FakeEngine(path))

    running = []
    assert Engine(path, 1.0, wait).ask(lambda client: client.version())["ApiVersion"] == "1.41"
    assert len(waited) == 2
    for one in (*running, first, crowded):
        one.close()


def test_a_socket_that_never_queues_is_no_engine_that_answers(tmp_path):
    with socket.socket(socket.AF_UNIX) as crowded, socket.socket(socket.AF_UNIX) as first:
        crowded.bind(str(tmp_path / "docker.sock"))
        crowded.listen(0)
        first.connect(str(tmp_path / "docker.sock"))
        with pytest.raises(EngineUnavailable, match="temporarily unavailable"):
            Engine(tmp_path / "docker.sock", 0.1, lambda _: None).ask(lambda client: client.version())


def test_an_engine_that_is_not_there_yet_and_starts_again(engine, serve):
    with pytest.raises(EngineUnavailable, match=r"no Engine answers at .*docker\.sock"):
        names(engine)
    first = serve()
    first.answers["/containers/json"] = (200, [{"Id": "a"}])
    assert names(engine) == ["a"]
    first.close()
    with pytest.raises(EngineUnavailable):
        names(engine)
    serve().answers["/containers/json"] = (200, [{"Id": "b"}])
    assert names(engine) == ["b"]


def test_an_engine_that_was_started_again_between_two_questions(engine, serve):
    first = serve()
    first.answers["/containers/json"] = (200, [{"Id": "a"}])
    assert names(engine) == ["a"]
    first.close()
    serve().answers["/containers/json"] = (200, [{"Id": "b"}])
    assert names(engine) == ["b"]


def test_a_silent_engine_is_given_up_in_time(engine, tmp_path):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "docker.sock"))
        silent.listen()
        with pytest.raises(EngineUnavailable, match="no Engine answers"):
            names(engine)


@pytest.mark.parametrize("answer", ["\0", [], {"ApiVersion": None}, {}])
def test_what_is_no_engine(engine, serve, answer):
    serve().answers["/version"] = (200, answer)
    with pytest.raises(EngineUnavailable):
        names(engine)


def test_refusals(engine, serve):
    answers = serve().answers
    answers["/containers/json"] = (500, {"message": "denied by a plugin"})
    with pytest.raises(EngineUnavailable, match=r"refused: denied by a plugin"):
        names(engine)
    with pytest.raises(NotFound):
        engine.ask(lambda api: api.inspect_container("missing"))


def test_a_newer_engine_is_asked_for_its_version_again(engine, serve):
    fake = serve()
    fake.answers["/containers/json"] = (400, {"message": "client version 1.41 is too old"})
    for _ in range(2):
        with pytest.raises(EngineUnavailable, match="too old"):
            names(engine)
    assert fake.asked.count("/version") == 2


MOUNT = {"Type": "volume", "Name": "v", "Driver": "convgpu:latest", "Destination": "/run/convgpu"}
ROWS = [
    {"Id": "a" * 64, "Names": ["/other/alias", "/one"], "Image": "i", "State": "running", "Mounts": [MOUNT]},
    {"Id": "b" * 64, "Names": None, "Image": "i", "State": "exited", "Mounts": [MOUNT, {"Type": "bind"}]},
    {"Id": "c" * 64, "Names": ["/c"], "State": "running", "Mounts": [{**MOUNT, "Driver": "local", "Name": "w"}]},
    {"Id": "d" * 64, "Names": ["/d"], "State": "running", "Mounts": None},
]


@pytest.fixture
def sync(engine, scheduler):
    return ContainerSync(engine, scheduler, "convgpu", keep=3600, clock=lambda: 1700000007.0)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("convgpu.plugin.engine.container_sync.FAILURE_GRACE", 0.0)


@pytest.fixture
def listed(serve, scheduler):
    """An Engine with the rows above; the scheduler knows the volume `v`."""
    fake = serve()
    fake.answers["/containers/json"] = (200, ROWS)
    volumes = [{"Name": "v", "Driver": "convgpu:latest"}]
    fake.answers["/volumes"] = (200, {"Volumes": volumes, "Warnings": None})
    scheduler.request("create", name="v", options={})
    scheduler.asked.clear()
    return fake


@pytest.mark.usefixtures("listed")
def test_the_scheduler_is_told_what_the_engine_lists(sync, scheduler):
    sync.report()
    told = ReportEngineList(
        asked=1700000007.0,
        containers=(
            ListedContainer(id="a" * 64, name="one", image="i", state="running", volumes=("v",)),
            ListedContainer(id="b" * 64, name="b" * 12, image="i", state="exited", volumes=("v",)),
        ),
        volumes=("v",),
    )
    assert [each["op"] for each in scheduler.asked] == ["containers", "listed"]
    assert sync._failing is None
    assert msgspec.convert(scheduler.asked[1], ReportEngineList) == told


def test_a_host_whose_limits_are_all_injected_has_no_volumes(engine, scheduler, listed):
    """The list was taken for that of another driver, and ends were never told."""
    scheduler.request("remove", name="v")
    scheduler.request("create", name="d" * 64, options={})
    scheduler.injected.add("d" * 64)
    listed.answers |= {"/volumes": (200, {"Volumes": None, "Warnings": None}), "/containers/json": (200, ROWS[2:])}
    scheduler.asked.clear()
    # Who registers while the scheduler answers is missing in the list, which says nothing about times after `asked`.
    sync = ContainerSync(engine, scheduler, "convgpu", keep=3600, clock=lambda: float(len(scheduler.asked)))
    scheduler.volumes["e" * 64] = {}  # its registration was not completed
    sync.report()
    told = msgspec.convert(scheduler.asked[-1], ReportEngineList)
    assert (told.asked, told.volumes) == (0.0, ())
    assert [(row.id, row.state, row.volumes) for row in told.containers] == [("d" * 64, "running", ("d" * 64,))]


@pytest.mark.parametrize(
    ("path", "answer", "complaint"),
    [
        ("/containers/json", (500, {"message": "no"}), "refused: no"),
        ("/volumes", (200, {"Volumes": None, "Warnings": ["convgpu: EOF"]}), "does not list all volumes: convgpu: EOF"),
        ("/volumes", (200, {"Volumes": None}), "set CONVGPU_NAME"),
        ("/containers/json", (200, [{"Id": "a"}]), "KeyError"),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_an_incomplete_list_is_not_told_and_complained_about_once(
    sync, listed, scheduler, caplog, path, answer, complaint
):
    good = listed.answers[path]
    listed.answers[path] = answer
    sync.report()
    sync.report()
    assert "listed" not in [each["op"] for each in scheduler.asked]
    assert complaint in caplog.text
    assert len([record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]) == 1
    listed.answers[path] = good
    sync.report()
    assert scheduler.asked[-1]["op"] == "listed"


def test_a_failure_of_a_moment_is_nothing_to_report(sync, caplog):
    sync.report()
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


@pytest.mark.parametrize(("state", "again"), [("running", False), ("restarting", False), ("exited", True)])
def test_a_contradiction_is_a_reason_to_ask_again(sync, listed, scheduler, state, again):
    listed.answers["/containers/json"] = (200, [{**ROWS[0], "State": state}])
    scheduler.request("mount", name="v", id="1")
    sync.report()
    assert sync._contradicted == again


class Doubts:
    """Stands for the event: `waits` are the answers of its `wait`, in turn."""

    def __init__(self, *waits):
        self.waits = list(waits)

    def clear(self):
        pass

    def wait(self, seconds):
        assert seconds == QUIET
        return self.waits.pop(0)


def test_the_question_waits_until_there_are_no_more_doubts(sync, monkeypatch):
    doubts = Doubts(True, True, False, False)
    monkeypatch.setattr(sync, "_requested", doubts)
    sync._wait_until_quiet(time.monotonic())
    assert doubts.waits == [False]


def test_doubts_without_end_do_not_put_the_question_off_for_ever(sync, monkeypatch):
    doubts = Doubts(*[True] * 99)
    now = iter(range(100))
    monkeypatch.setattr(sync, "_requested", doubts)
    monkeypatch.setattr(
        "convgpu.plugin.engine.container_sync.time", SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None)
    )
    sync._wait_until_quiet(0)
    assert len(doubts.waits) == 95


def test_a_mount_and_an_unmount_are_doubts(scheduler, settings):
    doubts = []
    client = create_app(scheduler, settings, lambda: doubts.append(len(scheduler.asked))).test_client()
    for path, document in (
        (wire.CREATE, {"Name": "v"}),
        (wire.MOUNT, {"Name": "v", "ID": "1"}),
        (wire.GET, {"Name": "v"}),
        (wire.UNMOUNT, {"Name": "v", "ID": "1"}),
        (wire.MOUNT, {"Name": "w", "ID": "1"}),
    ):
        client.post(path, data=json.dumps(document))
    assert doubts == [2, 4]  # after the scheduler was told


def test_a_scheduler_that_hangs_for_good_is_reported(sync, listed, scheduler, monkeypatch):
    hung = []
    monkeypatch.setattr(sync, "_on_hung", lambda: hung.append(True))
    scheduler.failure = SchedulerUnavailable("silent")
    sync.report()
    monkeypatch.setattr("convgpu.plugin.engine.container_sync.HUNG", -1.0)
    sync.report()
    assert hung == [True]
    # An Engine that hangs is no reason.
    scheduler.failure = None
    listed.close()
    sync.report()
    assert hung == [True]
