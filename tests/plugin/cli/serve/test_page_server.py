"""What `convgpu dashboard` answers on loopback, and whom it does not answer."""

import contextlib
import http.client
import json
import socket
import threading

import pytest

from convgpu.cli.connect.http_answer import Answer
from convgpu.cli.serve.feed import Feed
from convgpu.cli.serve.http_server import MAX_CONNECTIONS
from convgpu.cli.serve.page_server import MAX_STREAMS, PageServer
from convgpu.cli.serve.questions import Questions
from convgpu.cli.terminal.errors import Refused, Unavailable
from convgpu.protocol.inspection.usage import Usage, UsageSample
from convgpu.protocol.records import Devices, Event, Events

TOKEN = "token-of-the-test"  # noqa: S105 - of no real page


class Nothing:
    def devices(self):
        return Devices(devices=(), policy="fifo")

    def containers(self):
        return ()

    def events(self, since=0):
        return Events(events=(), next=since)

    def usage(self, step=1, after=0):
        return Usage(step=step, samples=(UsageSample(after + step, {}),))

    def history(self, container, limit):
        if container == "gone":
            raise Refused("there is no such container\nSee: convgpu ps")
        return (Event(sequence=limit, time=1.0, kind="paused", container=container),)

    def allocations(self, name):
        raise Unavailable(f"nobody answers for {name}")


class Files:
    def __init__(self):
        self.asked = []
        self.failure = None

    def __call__(self, target):
        self.asked.append(target)
        if self.failure:
            raise self.failure
        headers = {
            "content-type": "text/css",
            "content-security-policy": "default-src 'none'",
            "connection": "close",
        }
        return Answer(200, headers, b"body")


@pytest.fixture
def files():
    return Files()


@pytest.fixture
def feed():
    feed = Feed(Nothing())
    feed.poll()
    return feed


@pytest.fixture
def server(files, feed):
    server = PageServer(0, TOKEN, files, feed, Questions(Nothing(), feed))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    feed.close()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def get(server):
    def ask(path, method="GET", host=None):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=120)) as connection:
            connection.putrequest(method, path, skip_host=True)
            connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    return ask


@pytest.fixture
def stream(server):
    with contextlib.ExitStack() as stack:

        def open_stream(size=1 << 16):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port), 10))
            head = f"GET /{TOKEN}/stream HTTP/1.1\r\nHost: localhost:{server.server_port}\r\n\r\n"
            connection.sendall(head.encode())
            return stack.enter_context(connection.makefile("rb", size))

        yield open_stream


def test_files_come_from_the_plugin_with_its_policy(get, files):
    status, headers, body = get(f"/{TOKEN}/style.css?x=1")
    assert (status, body, files.asked) == (200, b"body", ["/dashboard/style.css"])
    assert (headers["Content-Type"], headers["Content-Security-Policy"]) == ("text/css", "default-src 'none'")
    assert headers["Access-Control-Allow-Origin"] is None
    assert get(f"/{TOKEN}/")[0] == 200
    assert files.asked[-1] == "/dashboard/"


@pytest.mark.parametrize("path", ["/", "/wrong/", f"/{TOKEN}x/", "/%ff/", f"/{TOKEN[:-1]}/stream"])
def test_without_the_token_there_is_nothing(get, files, path):
    status, _, body = get(path)
    assert (status, files.asked) == (404, [])
    assert TOKEN.encode() not in body


@pytest.mark.parametrize("place", ["../v1/containers", "%2e%2e/v1", "a/b", "..", "x y", "a" * 60000, "style.css%00"])
def test_only_the_pages_own_files_can_be_had(get, files, place):
    assert get(f"/{TOKEN}/{place.replace(' ', '%20')}")[0] == 404
    assert files.asked == []


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1.evil.example:80", "[::1]:80", " "])
def test_another_host_is_refused(get, files, host):
    assert get(f"/{TOKEN}/", host=host)[0] == 421
    assert files.asked == []


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_it_is_read_only(get, files, method):
    assert get(f"/{TOKEN}/", method)[0] == 405
    assert files.asked == []


def test_a_plugin_that_is_gone_is_said(get, files):
    files.failure = FileNotFoundError("gone")
    status, _, body = get(f"/{TOKEN}/")
    assert (status, b"docker plugin ls" in body) == (502, True)


def test_a_stream_begins_with_all_and_goes_on(stream, feed):
    lines = stream()
    while (line := lines.readline()) != b"\r\n":
        assert line
    assert lines.readline() == b"event: samples\n"
    assert json.loads(lines.readline().removeprefix(b"data: "))["first"] is True
    assert lines.readline() == b"\n"
    assert lines.readline() == b"event: state\n"
    assert json.loads(lines.readline().removeprefix(b"data: "))["policy"] == "fifo"
    assert lines.readline() == b"\n"
    feed.poll()
    assert lines.readline() in {b"event: samples\n", b"event: state\n"}


def test_streams_and_connections_are_bounded(stream, server, get):
    for _ in range(MAX_STREAMS):
        assert stream().readline() == b"HTTP/1.0 200 OK\r\n"
    assert stream().readline() == b"HTTP/1.0 503 Service Unavailable\r\n"
    assert get(f"/{TOKEN}/")[0] == 200
    with contextlib.ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port), 10))
            for _ in range(MAX_CONNECTIONS)
        ]
        closed = idle[-1].recv(1)
        assert closed == b""


def test_a_port_that_is_taken(server, files, feed):
    with pytest.raises(OSError, match="Address already in use"):
        PageServer(server.server_port, TOKEN, files, feed, server.questions)


def test_the_page_asks_for_a_longer_span_a_history_and_allocations(get):
    status, headers, body = get(f"/{TOKEN}/usage?step=12")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == {"step": 12, "samples": [{"time": 12, "devices": {}}]}
    [event] = json.loads(get(f"/{TOKEN}/history?container=train&limit=5")[2])["events"]
    assert (event["sequence"], event["container"]) == (5, "train")
    assert get(f"/{TOKEN}/allocations?container=train")[::2] == (502, b"nobody answers for train\n")
    assert get(f"/{TOKEN}/history?container=gone")[::2] == (404, b"there is no such container\n")


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("usage", b"step: one of 1, 12, 144\n"),
        ("usage?step=2", b"step: one of 1, 12, 144\n"),
        ("history", b"container: the name of a volume\n"),
        ("history?container=../etc", b"container: the name of a volume\n"),
        ("history?container=a&limit=1001", b"limit: a number up to 1000\n"),
        ("history?container=a&limit=-1", b"limit: a number up to 1000\n"),
        ("allocations?container=%00", b"container: the name of a volume\n"),
        ("usage?" + "&".join("a=1" for _ in range(9)), b"too many fields\n"),
    ],
)
def test_what_the_page_would_not_ask_is_refused_with_a_line(get, place, problem):
    assert get(f"/{TOKEN}/{place}")[::2] == (400, problem)


def test_questions_need_the_token(get):
    assert get("/usage?step=1")[0] == get("/another/usage?step=1")[0] == 404
