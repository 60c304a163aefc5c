"""The quick client's reading of answers, whole and cut off; tests/plugin/cli/connect/test_scheduler.py asks servers."""

import pytest

from convgpu.cli.connect.http_answer import Answer
from convgpu.cli.connect.quick_http import read_answer

HEAD = b"HTTP/1.0 404 Not Found\r\nContent-Type: text/plain\r\nX-A:b: c\r\nContent-Length: 4\r\n\r\n"


def test_an_answer_is_read():
    headers = {"content-type": "text/plain", "x-a": "b: c", "content-length": "4"}
    assert read_answer(HEAD + b"\r\n\r\n") == Answer(404, headers, b"\r\n\r\n")
    assert read_answer(HEAD, has_body=False) == Answer(404, headers, b"")
    assert read_answer(b"HTTP/1.1 200\r\n\r\n{}") == Answer(200, {}, b"{}")
    assert read_answer(b"HTTP/1.1 204 No Content\r\n\r\n").json() is None


CUT_OFF = [b"", b"SSH-2.0-OpenSSH\r\n\r\n", HEAD[:30], HEAD + b"abc", b"HTTP/1.0 abc\r\n\r\n", b"HTTP/1.0 20\r\n"]


@pytest.mark.parametrize("received", CUT_OFF)
def test_what_is_no_whole_answer_is_an_error_of_the_connection(received):
    with pytest.raises(ConnectionError, match="HTTP answer"):
        read_answer(received)
