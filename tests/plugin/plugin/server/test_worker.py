"""gunicorn with our configuration on a real socket, asked as the Engine asks."""

import base64
import contextlib
import http.client
import json
import os
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from convgpu.plugin.__main__ import _commands
from convgpu.plugin.docker_api import wire
from convgpu.plugin.docker_api.body_limits import MAX_BODY, READ_TIMEOUT
from convgpu.plugin.server import worker
from convgpu.plugin.server.worker import _peek, _send_answer_at_once, _whole_call


def ask(path, raw=b"", method="POST", target=wire.CAPABILITIES):
    """Send what Docker 20.10 sends, an empty Host and no Content-Type, and return status, headers and body."""
    head = (
        f"{method} {target} HTTP/1.1\r\nHost: \r\nUser-Agent: Go-http-client/1.1\r\n"
        f"Content-Length: {len(raw)}\r\nAccept: application/vnd.docker.plugins.v1.2+json\r\n\r\n"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(120)
        connection.connect(str(path))
        connection.sendall(head.encode() + raw)
        # It must not be closed after the answer, so its length counts.
        answer = http.client.HTTPResponse(connection, method=method)
        answer.begin()
        return answer.status, str(answer.headers), answer.read()


@pytest.fixture
def server(settings, admin_socket, wait_until_served, tmp_path):  # noqa: ARG001
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            _commands((), has_readers=False)["server"],
            env={**os.environ, **settings.environment()},
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
        )
    wait_until_served(settings.socket, process, tmp_path / "log")
    yield process
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0


@pytest.mark.parametrize(
    "other",
    [
        (b"Host: ", b"connection: close"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"Host: ", b"Transfer-encoding: chunked"),
        (b"Host: ", b"content-length: 3"),
    ],
)
def test_what_no_engine_writes_goes_gunicorns_way(other):
    body = b'{"Name":"v"}'
    call = b"POST /VolumeDriver.Remove HTTP/1.1\r\nHost: \r\nContent-Length: 12\r\n\r\n" + body
    assert _whole_call(call) == (wire.REMOVE, body)
    assert _whole_call(call.replace(*other)) is None
    assert _whole_call(call + call) is None


def test_what_kind_of_driver_this_is_needs_no_thread():
    body = b'{"Name":"v"}'
    head = f"POST {wire.CAPABILITIES} HTTP/1.1\r\nHost: \r\nContent-Length: {len(body)}\r\n\r\n".encode()

    def answered(client):
        waiting = _peek(client)
        return _send_answer_at_once(client, waiting, *_whole_call(waiting), strict=False)

    engine, ours = socket.socketpair()
    with engine, ours:
        engine.sendall(head + body[:3])
        assert _whole_call(_peek(ours)) is None  # the rest is on its way, and gunicorn waits for it
        assert _peek(ours) == head + body[:3]
        engine.sendall(body[3:])
        assert answered(ours)
        answer = http.client.HTTPResponse(engine)
        answer.begin()
        assert json.loads(answer.read()) == {"Capabilities": {"Scope": "local"}}
        engine.sendall(head.replace(b"Capabilities", b"Get") + body)
        assert not answered(ours)


@pytest.mark.usefixtures("server")
def test_docker_over_a_real_socket(settings, scheduler):
    status, head, body = ask(settings.socket)
    assert (status, json.loads(body)) == (200, {"Capabilities": {"Scope": "local"}})
    assert f"Content-Type: {wire.CONTENT_TYPE}\n" in head
    # The Engine would meet connections that are just being closed.
    assert "Connection: close" not in head

    create = json.dumps({"Name": "v", "Opts": {"memory": "2g"}}).encode()
    assert ask(settings.socket, create, target=wire.CREATE)[0] == 200
    assert scheduler.volumes == {"v": {"memory": "2g"}}
    status, _, body = ask(settings.socket, b'{"Name": "v", "Opts": {"x": ""}}', target=wire.CREATE)
    assert (status, json.loads(body)["Err"].partition(":")[0]) == (500, "unknown option")
    status, _, body = ask(settings.socket, target=wire.MOUNT)
    assert (status, json.loads(body)) == (500, {"Err": wire.EMPTY_BODY})

    inner = base64.b64encode(b'{"HostConfig": {"DeviceRequests": [{}]}}').decode()
    call = {"RequestMethod": "POST", "RequestUri": "/containers/create", "RequestBody": inner}
    status, head, body = ask(settings.socket, json.dumps(call).encode(), target=wire.AUTHORIZE_REQUEST)
    assert (status, json.loads(body)["Allow"]) == (200, False)
    assert f"Content-Type: {wire.CONTENT_TYPE}\n" in head

    status, _, body = ask(settings.socket, method="GET", target="/v1/containers/v")
    assert (status, json.loads(body)) == (200, scheduler._container("v"))


def test_nothing_that_a_client_sends_ends_the_worker(settings, server, tmp_path):
    def worker():
        found = re.findall(r"Booting worker with pid: (\d+)", (tmp_path / "log").read_text())
        return [int(pid) for pid in found]

    assert ask(settings.socket)[0] == 200
    before = worker()
    assert ask(settings.socket, b"{" * (2 * MAX_BODY), target=wire.CREATE)[0] == 413
    assert ask(settings.socket, b"\0" * (2 * MAX_BODY), target=wire.AUTHORIZE_REQUEST)[0] == 200
    assert ask(settings.socket, target="/" + "x" * 9000)[0] == 414
    endless = b"POST /AuthZPlugin.AuthZRes HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n"
    for garbage in (b"", b"\0" * 4096, b"GET\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n{", endless):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(settings.socket))
            connection.sendall(garbage)
    assert ask(settings.socket)[0] == 200
    assert server.poll() is None
    assert len(before) == 1
    assert worker() == before


def test_a_question_whose_asker_has_gone_is_not_answered():
    answered = []
    for end, expected in ((lambda engine: engine.shutdown(socket.SHUT_WR), [1]), (lambda engine: engine.close(), [])):
        engine, ours = socket.socketpair()
        with engine, ours:
            end(engine)
            with contextlib.suppress(ConnectionResetError):
                worker._answer_if_wanted(ours, lambda: answered.append(1))
        assert answered == expected
        answered.clear()


@pytest.mark.usefixtures("server")
def test_the_engines_own_answers_pass_while_every_judge_waits_for_the_rest_of_a_question(settings):
    waiting = f"POST {wire.AUTHORIZE_REQUEST} HTTP/1.1\r\nHost: \r\nContent-Length: 9\r\n\r\n".encode()
    with contextlib.ExitStack() as connections:
        # The answers name the volume, and fill the buffer of somebody who never reads.
        unknown = json.dumps({"Name": "n" * 12_000}).encode()
        deaf = connections.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        deaf.connect(str(settings.socket))
        head = f"POST {wire.GET} HTTP/1.1\r\nHost: \r\nContent-Length: {len(unknown)}\r\n\r\n"
        deaf.sendall((head.encode() + unknown) * 30)
        half = []
        for _ in range(worker._JUDGES):
            connection = connections.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            connection.connect(str(settings.socket))
            connection.sendall(waiting)
            half.append(connection)
        # More than the loop looks at.
        inspected = json.dumps({"RequestMethod": "GET", "ResponseBody": "A" * (2 * worker._MAX_PEEK)}).encode()
        assert ask(settings.socket, inspected, target=wire.AUTHORIZE_RESPONSE)[0] == 200
        # None of them holds its thread for ever.
        for connection in half:
            connection.settimeout(3 * READ_TIMEOUT)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert json.loads(answer.read())["Msg"].startswith("request-malformed: it did not go on for ")
        # Nor does the loop wait for them, whose connections are closed now, to close their ends.
        assert ask(settings.socket)[0] == 200
        hung_up = select.poll()
        hung_up.register(deaf, 0)
        assert [event & select.POLLHUP for _, event in hung_up.poll(3000 * READ_TIMEOUT)] == [select.POLLHUP]


@pytest.mark.usefixtures("server")
def test_a_call_is_answered_alike_with_and_without_gunicorns_parser(settings, scheduler):
    scheduler.volumes["v"] = {}
    for target, raw in (
        (wire.GET, b'{"Name": "v"}'),
        (wire.GET, b'{"Name": "nobody"}'),
        (wire.MOUNT, b""),
        (wire.CREATE, b'{"Name": "w", "Opts": {"x": ""}}'),
        (wire.REMOVE, b"{" * 100_000),
        (wire.PATH, b'{"Name": 7}'),
    ):
        status, head, body = ask(settings.socket, raw, target=target)
        assert "Server: gunicorn" not in head or len(raw) > worker._MAX_PEEK
        by_gunicorn = ask(settings.socket, raw, target=f"{target}?")
        assert "Server: gunicorn" in by_gunicorn[1]
        assert (status, body) == (by_gunicorn[0], by_gunicorn[2])


def test_a_call_that_is_under_way_when_the_server_is_ended_is_answered(settings, server, scheduler, tmp_path):
    begun, go_on = threading.Event(), threading.Event()

    def create(name, options=None):
        begun.set()
        assert go_on.wait(120)
        scheduler.volumes[name] = options
        return {}

    scheduler._create = create
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, settings.socket, b'{"Name": "v"}', target=wire.CREATE)
        assert begun.wait(120)
        server.send_signal(signal.SIGTERM)
        end = time.monotonic() + 15
        while "signal: term" not in (log := (tmp_path / "log").read_text()):
            assert time.monotonic() < end, log
            time.sleep(0.01)
        go_on.set()
        status, _, body = answer.result()
    assert (status, json.loads(body), server.wait(120)) == (200, {"Err": ""}, 0)


@pytest.mark.usefixtures("server")
def test_the_socket_is_for_root_only(settings):
    assert stat.S_IMODE(settings.socket.stat().st_mode) == 0o600


@pytest.mark.usefixtures("server")
def test_every_line_of_the_log_has_level_and_cause(settings, tmp_path):
    ask(settings.socket, b'{"Name": "v"}', target=wire.CREATE)
    ask(settings.socket, b'{"Name": "v\\nlevel=ERROR"}', target=wire.REMOVE)
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line for line in lines if not re.match(r"\S+ \S+ level=[A-Z]+ cause=\S+ [\w.]+: ", line)] == []
    assert any(
        re.search(r"level=INFO cause=Create-[0-9a-f]{6}-\d+ .*: volume v created with \{\}$", line) for line in lines
    )


def test_a_setting_that_is_not_possible_is_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "convgpu.plugin", "--log", "loud"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "convgpu.plugin: CONVGPU_LOG=loud: must be one of debug, info, warning, error\n"
