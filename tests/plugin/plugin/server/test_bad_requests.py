"""What no Engine sends, on the real socket of the plugin's server: an error or a refusal each time, never more."""

import base64
import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from convgpu.plugin.docker_api import wire

ROOT = Path(__file__).parents[4]
CREATE = "/v1.41/containers/create"
GPU = '"DeviceRequests": [{"Count": -1}]'
DEEP = 100_000

# Bodies of a create, each of which some reader could take for one with a GPU, or for none.
BODIES = {
    "empty": b"",
    "empty object": b"{}",
    "null": b"null",
    "list": b"[]",
    "text": b'"x"',
    "number": b"1e999",
    "half": b'{"HostConfig": {' + GPU.encode(),
    "5 MB": f'{{"Labels": {{"x": "{"y" * (5 << 20)}"}}, "HostConfig": {{{GPU}}}}}'.encode(),
    "deep lists": b"[" * DEEP,
    "deep objects": b'{"HostConfig":' * DEEP,
    "deep and closed": b'{"x":' + b"[" * DEEP + b"]" * DEEP + b"," + GPU.encode() + b"}",
    "deep before": b'{"HostConfig": {"x": ' + b"[" * DEEP + b"]" * DEEP + b", " + GPU.encode() + b"}}",
    "invalid UTF-8": f'{{"Domainname": "\xff", "HostConfig": {{{GPU}}}}}'.encode("latin-1"),
    "half a surrogate": f'{{"Domainname": "\\ud800", "HostConfig": {{{GPU}}}}}'.encode(),
    "BOM": b"\xef\xbb\xbf" + f'{{"HostConfig": {{{GPU}}}}}'.encode(),
    "UTF-16": f'{{"HostConfig": {{{GPU}}}}}'.encode("utf-16"),
    "twice": f'{{"HostConfig": {{{GPU}, "DeviceRequests": []}}}}'.encode(),
    "twice, deeper": b'{"HostConfig": {"DeviceRequests": [{"Count": 0, "Count": -1}]}}',
    "twice, in another case": f'{{"HostConfig": {{{GPU}, "devicerequests": []}}}}'.encode(),
    "twice, one escaped": f'{{"HostConfig": {{{GPU}, "\\u0044eviceRequests": []}}}}'.encode(),
    "large number": f'{{"HostConfig": {{"Memory": 1e999, {GPU}}}}}'.encode(),
    "long number": f'{{"HostConfig": {{"Memory": {"9" * 10_000}, {GPU}}}}}'.encode(),
    "not a number": f'{{"HostConfig": {{"Memory": NaN, {GPU}}}}}'.encode(),
    "NUL": f'{{"HostConfig": {{"x\\u0000": 1, {GPU}}}}}'.encode(),
    "NUL behind": f'{{"HostConfig": {{{GPU}}}}}\0'.encode(),
    "NUL in a path": b'{"HostConfig": {"Devices": [{"PathOnHost": "/dev/nvidia0\\u0000"}]}}',
    "NUL in a source": b'{"HostConfig": {"Binds": ["/\\u0000:/x"], "Privileged": true}}',
    "other types": b'{"HostConfig": {"DeviceRequests": {"0": {}}, "Binds": 7, "Env": {}}}',
    "types within": b'{"HostConfig": {"DeviceRequests": [7]}}',
    "a comment": f'{{/* x */ "HostConfig": {{{GPU}}}}}'.encode(),
}


@dataclass(frozen=True)
class Served:
    """The whole plugin, with its scheduler."""

    socket: Path
    directory: Path
    log: Path

    def workers(self):
        return re.findall(r"Booting worker with pid: (\d+)", self.log.read_text())


@pytest.fixture(scope="module")
def served(tmp_path_factory, wait_until_served):
    top = tmp_path_factory.mktemp("plugin")
    one = Served(top / "s", top / "d", top / "log")
    environment = {
        "CONVGPU_DEVICES": "simulated:16GiB",
        "CONVGPU_DIRECTORY": str(one.directory),
        "CONVGPU_SOCKET": str(one.socket),
        "CONVGPU_ENGINE": str(top / "nobody.sock"),
        "CONVGPU_READ_ONLY": "no",
        "CONVGPU_LIBRARIES": str(ROOT / "hook/build"),
        "CONVGPU_SIMULATED_DRIVER": str(ROOT / "tests/fakes/build"),
    }
    with one.log.open("wb") as log:
        command = [sys.executable, "-m", "convgpu.plugin"]
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=log, stderr=subprocess.STDOUT, cwd=top
        )
    wait_until_served(one.socket, process, one.log)
    wait_until_served(one.directory / "admin.sock", process, one.log)
    yield one
    process.terminate()
    assert process.wait(120) == 0
    assert len(one.workers()) == 1, "the worker ended"
    assert "ended by itself" not in one.log.read_text()


@pytest.fixture(scope="module")
def send(served):
    """Return a function that sends bytes and returns status and body of the answer, None for a closed connection."""

    def sent(raw):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(120)
            connection.connect(str(served.socket))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            answer = http.client.HTTPResponse(connection)
            try:
                answer.begin()
                return answer.status, answer.read()
            except (ConnectionResetError, http.client.BadStatusLine):
                return None

    return sent


def post(path, body, *headers):
    lines = [f"POST {path} HTTP/1.1", "Host: ", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def question(body, **fields):
    encoded = base64.b64encode(body).decode()
    return json.dumps({"RequestMethod": "POST", "RequestUri": CREATE, "RequestBody": encoded, **fields}).encode()


def allowed(send, raw):
    status, body = send(raw)
    assert status == 200
    answer = json.loads(body)
    assert answer["Allow"] or (answer["Msg"] and "not-understood" not in answer["Msg"]), answer
    return answer["Allow"]


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_refused(send, name):
    assert not allowed(send, post(wire.AUTHORIZE_REQUEST, question(BODIES[name])))
    for uri in ("/containers/c/exec", "/volumes/create", "/services/create", "/containers/c/update"):
        # In these there is no GPU to find, but some answer.
        status, body = send(post(wire.AUTHORIZE_REQUEST, question(BODIES[name], RequestUri=uri)))
        assert status == 200
        assert b"not-understood" not in body


@pytest.mark.parametrize("method", ["BREW", "post", "pOsT", "PATCH", "PUT", "P\0ST", "GET ", "", None, 7])
def test_methods_that_nobody_knows_are_no_way_around(send, method):
    body = f'{{"HostConfig": {{{GPU}}}}}'.encode()
    assert not allowed(send, post(wire.AUTHORIZE_REQUEST, question(body, RequestMethod=method)))


@pytest.mark.parametrize(
    "uri",
    [
        CREATE + "?" + "x" * (1 << 20),
        CREATE + "?%zz=%00&;&=;#",
        CREATE + "#x",
        "http://[::1" + CREATE,
        "http://a\x00b" + CREATE,
        "/v1.41/containers/creat%65%",
        "",
        None,
    ],
    ids=lambda uri: repr(uri)[:30],
)
def test_addresses_are_no_way_around(send, uri):
    body = f'{{"HostConfig": {{{GPU}}}}}'.encode()
    passed = allowed(send, post(wire.AUTHORIZE_REQUEST, question(body, RequestUri=uri)))
    assert passed == (uri in {CREATE + "#x", "/v1.41/containers/creat%65%"})  # which are no calls of the Engine's


@pytest.mark.parametrize("envelope", [b"", b"{", b"[]", b"[" * DEEP, b'{"RequestMethod":' * DEEP, b"\xff", b"\0" * 100])
@pytest.mark.parametrize("path", [wire.AUTHORIZE_REQUEST, wire.CREATE, wire.MOUNT, wire.GET, wire.REMOVE])
def test_what_is_no_question_is_an_error(send, path, envelope):
    status, body = send(post(path, envelope))
    answer = json.loads(body)
    assert (status, answer.get("Allow", False)) in {(200, False), (500, False)}
    assert answer.get("Msg") or answer.get("Err")
    assert "its log says why" not in body.decode()


@pytest.mark.parametrize(
    "name", ["../../etc", "a/../b", "\0", "x" * 5000, "x" * (5 << 20), "\ud800", "é\U0001f40b", " ", "-"]
)
def test_names_of_volumes_are_never_paths(send, served, name):
    before = sorted(path.name for path in served.directory.iterdir())
    for path in (wire.CREATE, wire.MOUNT, wire.GET, wire.UNMOUNT, wire.REMOVE):
        status, body = send(post(path, json.dumps({"Name": name, "ID": name, "Opts": {}}).encode()))
        assert status in {200, 500}
        assert "its log says why" not in body.decode(), body
    assert sorted(path.name for path in served.directory.iterdir()) == before


HTTP = {
    "nothing": b"",
    "half a line": b"POST /AuthZ",
    "no version": b"GET /v1/devices\r\n\r\n",
    "another version": b"GET /v1/devices HTTP/9.9\r\n\r\n",
    "NUL": b"POST /\0 HTTP/1.1\r\n\r\n",
    "many headers": b"GET /v1/devices HTTP/1.1\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
    "a long header": b"GET /v1/devices HTTP/1.1\r\nX: " + b"y" * (5 << 20) + b"\r\n\r\n",
    "a negative length": post(wire.GET, b"{}").replace(b"Length: 2", b"Length: -2"),
    "a length in words": post(wire.GET, b"{}").replace(b"Length: 2", b"Length: two"),
    "two lengths": post(wire.GET, b"{}", "Content-Length: 20"),
    "a length and chunks": post(wire.AUTHORIZE_REQUEST, b"{}", "Transfer-Encoding: chunked"),
    "broken chunks": b"POST /AuthZPlugin.AuthZReq HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
    "endless chunk": b"POST /AuthZPlugin.AuthZReq HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 5000,
    "another coding": b"POST /AuthZPlugin.AuthZReq HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n\x1f\x8b",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 100,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500,
    "an unknown method": b"BREW /VolumeDriver.Create HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
    "a method that only asks": b"GET /VolumeDriver.Remove HTTP/1.1\r\n\r\n",
    "an unknown call": post("/VolumeDriver.Format", b"{}"),
    "a call in another case": post("/volumedriver.create", b"{}"),
}


@pytest.mark.parametrize("name", HTTP)
def test_what_is_no_http_is_an_error(send, name):
    answer = send(HTTP[name])
    assert answer is None or answer[0] >= 400 or json.loads(answer[1]).get("Allow") is False, answer


def test_chunks_are_read_as_a_whole(send):
    body = question(f'{{"HostConfig": {{{GPU}}}}}'.encode())
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(body[at : at + 7]), body[at : at + 7]) for at in range(0, len(body), 7))
    head = b"POST /AuthZPlugin.AuthZReq HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert not allowed(send, head + pieces + b"0\r\n\r\n")


def test_questions_one_behind_the_other_are_each_answered(send):
    first = post(wire.AUTHORIZE_REQUEST, question(b"", RequestMethod="GET"))
    second = post(wire.AUTHORIZE_REQUEST, question(f'{{"HostConfig": {{{GPU}}}}}'.encode()))
    status, body = send(first + second)
    assert (status, json.loads(body)["Allow"]) == (200, True)
    status, body = send(second + first)
    assert (status, json.loads(body)["Allow"]) == (200, False)


def test_the_log_stays_a_log(served):
    lines = served.log.read_text().splitlines()
    assert [line for line in lines if not re.match(r"\S+ \S+ level=[A-Z]+ cause=\S+ [\w.]+: ", line)] == []
    assert max(map(len, lines)) < 100_000
