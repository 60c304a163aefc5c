"""Reading without root, on a real Engine: the plugin makes the socket of a group beside the Engine's."""

import http.client
import json
import socket
import stat

import pytest

pytestmark = pytest.mark.engine

READERS = 65534


def ask(path, method, url, body=None):
    """Return status and content of one answer on a socket."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        connection = http.client.HTTPConnection("plugin")
        connection.sock = sock
        connection.request(method, url, body)
        with connection.getresponse() as answer:
            return answer.status, answer.read()


def test_a_group_gets_a_socket_that_only_reads(engine, plugin):
    engine("plugin", "disable", "-f", plugin)
    engine("plugin", "set", plugin, f"CONVGPU_READERS={READERS}")
    engine("plugin", "enable", plugin)
    path = engine.directory / "convgpu" / f"{plugin}.sock"
    try:
        engine.wait_for("the group has its socket", lambda: path.exists() and path.stat().st_gid == READERS)
        assert stat.filemode(path.stat().st_mode) == "srw-rw----"
        status, content = ask(path, "GET", "/v1/devices")
        assert (status, len(json.loads(content)["devices"])) == (200, 1)
        assert ask(path, "POST", "/v1/devices/0/drain", b'{"drained": true}')[0] == 403
    finally:
        engine("plugin", "disable", "-f", plugin)
        engine("plugin", "set", plugin, "CONVGPU_READERS=auto")
        engine("plugin", "enable", plugin)
