"""The Engine, from answers recorded on Docker 20.10.24."""

import io
import json
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import NotFound

from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.engine_documents import Image, Plugin
from convgpu.cli.connect.engine_endpoint import Endpoint
from convgpu.cli.connect.http_answer import Answer
from convgpu.cli.terminal.errors import Unavailable
from convgpu.protocol.engine_container import EngineContainer

PLUGIN: dict[str, Any] = {
    "Id": "f00d",
    "Enabled": True,
    "Config": {"Interface": {"Socket": "convgpu.sock", "Types": ["docker.volumedriver/1.0"]}},
    "Settings": {"Env": ["CONVGPU_DEVICES=simulated:16GiB", "CONVGPU_POLICY="]},
}
TRAIN: dict[str, Any] = {
    "Id": "c" * 64,
    "Names": ["/other/alias", "/train"],
    "Image": "pytorch:2",
    "Mounts": [
        {"Type": "bind", "Source": "/data", "Destination": "/data"},
        {"Type": "volume", "Name": "v1", "Driver": "convgpu:latest", "Destination": "/run/convgpu"},
    ],
}
PLAIN: dict[str, Any] = {"Id": "d" * 64, "Names": None, "Image": "debian", "Mounts": None}


INFO: dict[str, Any] = {"DockerRootDir": "/var/lib/docker", "ServerVersion": "20.10.24+dfsg1"}


def raising(error: Exception) -> Any:
    def call(*_: object, **__: object) -> None:
        raise error

    return call


@pytest.fixture
def engine() -> tuple[Engine, dict[str, Any]]:
    """An Engine behind a socket, with its answers by path; an exception is raised, an absent one is a 404."""
    answers: dict[str, Any] = {"/info": INFO}

    class Recorded:
        def __init__(self, path: Path) -> None:
            self.path = path

        def ask(self, method: str, url: str, _document: object = None) -> Answer:
            assert (self.path, method) == (Path("/s"), "GET")
            answer = answers.get(url, (404, {"message": f"no such thing: {url}"}))
            if isinstance(answer, Exception):
                raise answer
            status, document = answer if isinstance(answer, tuple) else (200, answer)
            return Answer(status, {}, json.dumps(document).encode())

    return Engine(Endpoint("unix:///s"), Recorded), answers


def test_the_plugins_socket_settings_and_directory_come_from_the_engine(engine: Any) -> None:
    one, answers = engine
    answers["/plugins/convgpu/json"] = PLUGIN
    found = one.plugin("convgpu")
    assert found == Plugin(
        "convgpu",
        "/run/docker/plugins/f00d/convgpu.sock",
        {"CONVGPU_DEVICES": "simulated:16GiB", "CONVGPU_POLICY": ""},
        "f00d",
    )
    assert one.directory(found) == "/var/lib/docker/plugins/f00d/propagated-mount"


def test_a_disabled_plugin_is_to_be_enabled(engine: Any) -> None:
    one, answers = engine
    answers["/plugins/lab/json"] = {**PLUGIN, "Enabled": False}
    with pytest.raises(Unavailable, match=r"(?s)'lab' is disabled.*docker plugin enable lab"):
        one.plugin("lab")


def test_an_absent_plugin_is_to_be_installed(engine: Any) -> None:
    with pytest.raises(Unavailable, match=r"(?s)no plugin 'lab'.*make plugin"):
        engine[0].plugin("lab")


def test_containers_are_found_by_their_volumes_and_ids(engine: Any) -> None:
    one, answers = engine
    answers["/containers/json?all=1"] = [TRAIN, PLAIN]
    train, plain = EngineContainer("c" * 64, "train", "pytorch:2"), EngineContainer("d" * 64, "d" * 12, "debian")
    assert one.containers() == {"v1": (train,), "c" * 64: (train,), "d" * 64: (plain,)}


def test_an_image_tells_its_environment_and_volumes(engine: Any) -> None:
    one, answers = engine
    answers["/images/i/json"] = {"Config": {"Env": ["A=1"], "Volumes": {"/data": {}}}}
    answers["/images/a/b%3A1/json"] = {"Config": {"Env": None, "Volumes": None}}
    assert one.image("i") == Image(("A=1",), ("/data",))
    assert one.image("a/b:1") == Image((), ())
    assert one.image("absent") is None


def test_an_image_with_files_at_the_path_is_known_and_the_probe_is_removed() -> None:
    removed: list[str] = []
    containers = SimpleNamespace(get=lambda name: SimpleNamespace(remove=lambda **_: removed.append(name)))
    full = SimpleNamespace(
        create_container=lambda *_, **__: {"Id": "probe"}, get_archive=lambda _, path: (io.BytesIO(path.encode()), {})
    )
    one = Engine(Endpoint("tcp://host:2376"))
    one.__dict__["client"] = SimpleNamespace(api=full, containers=containers)
    assert one.image_has("i", "/run/convgpu")
    full.get_archive = raising(NotFound("no such file"))
    assert not one.image_has("i", "/run/convgpu")
    assert removed == ["probe", "probe"]


def test_an_image_is_looked_into_over_the_socket_without_the_sdk(tmp_path: Path) -> None:
    asked: list[str] = []

    class Answering(BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.append(f"{self.command} {self.path}")
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            wanted = {"POST": 201, "DELETE": 204, "HEAD": 404}
            self.send_response(wanted[self.command])
            self.end_headers()
            self.wfile.write(b'{"Id": "probe"}' if self.command == "POST" else b"")

        do_POST = do_HEAD = do_DELETE = answer  # noqa: N815 - their names in the library

        def address_string(self) -> str:
            return "engine"

        def log_message(self, *_: object) -> None:
            pass

    with UnixStreamServer(f"{tmp_path}/s", Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        one = Engine(Endpoint(f"unix://{tmp_path}/s"))
        assert not one.image_has("i", "/run/convgpu")
        server.shutdown()
        thread.join()
    assert asked == [
        "POST /containers/create",
        "HEAD /containers/probe/archive?path=/run/convgpu",
        "DELETE /containers/probe?force=1&v=1",
    ]


def test_a_refusal_of_the_engine_is_shown_as_it_is(engine: Any) -> None:
    one, answers = engine
    answers["/containers/json?all=1"] = (403, {"message": "authorization denied by plugin lab"})
    with pytest.raises(Unavailable, match="the Docker Engine refused: authorization denied by plugin lab"):
        one.containers()


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (PermissionError(13, "Permission denied"), "(?s)no permission.*as root"),
        (FileNotFoundError(2, "No such file or directory"), "(?s)unix:///s does not answer.*systemctl start docker"),
    ],
)
def test_an_engine_that_cannot_be_reached_is_explained(engine: Any, cause: OSError, message: str) -> None:
    one, answers = engine
    answers["/info"] = cause
    with pytest.raises(Unavailable, match=message):
        _ = one.info


def test_an_engine_on_another_host_is_asked_through_the_sdk_and_its_absence_is_explained() -> None:
    with pytest.raises(Unavailable, match=r"tcp://127.0.0.1:1 does not answer \(Connection refused\)"):
        Engine(Endpoint("tcp://127.0.0.1:1")).containers()


def test_removing_takes_the_volumes_along_and_passes_over_what_is_gone() -> None:
    removed: list[tuple[str, bool, bool]] = []

    def get(name: str) -> Any:
        if name == "gone":
            raise NotFound("gone")
        return SimpleNamespace(remove=lambda *, force, v: removed.append((name, force, v)))

    one = Engine(Endpoint())
    one.__dict__["client"] = SimpleNamespace(containers=SimpleNamespace(get=get))
    one.remove_containers(["a", "gone", "b"])
    assert removed == [("a", True, True), ("b", True, True)]
