"""Notices by a webhook and a command; one that hangs or fails holds up nobody."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner

from convgpu.cli.__main__ import main
from convgpu.cli.show.notify import Command, Dispatcher, Webhook, follow, notice_of
from convgpu.cli.terminal.errors import Unavailable
from convgpu.protocol.records import Event

PAUSED = Event(sequence=3, time=1.0, kind="paused", container="v", uuid="GPU-a", size=1 << 30, call="cuMemAlloc")
NOTICE = notice_of(PAUSED, {"v": "train"}, {"GPU-a": 0})


class Hooks(BaseHTTPRequestHandler):
    got: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.got.append(document)
        self.send_response(200 if self.path == "/good" else 500)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hooks) as one:
        thread = threading.Thread(target=one.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{one.server_port}"
        one.shutdown()
        thread.join()


def test_a_notice_is_the_event_with_a_text():
    assert (NOTICE["kind"], NOTICE["name"], NOTICE["size"]) == ("paused", "train", 1 << 30)
    assert NOTICE["text"] == "PAUSED, waits for 1GiB on GPU 0 (cuMemAlloc)"


def test_a_webhook_gets_it_and_its_error_is_said(server):
    Webhook(f"{server}/good", 10)(NOTICE)
    assert Hooks.got[-1] == NOTICE
    with pytest.raises(ConnectionError, match="answered 500"):
        Webhook(f"{server}/bad", 10)(NOTICE)


def test_a_webhook_that_hangs_is_given_up():
    # It accepts, and says nothing.
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(OSError, match=r"^http://127.0.0.1:\d+ did not answer within 0.2 s$"),
    ):
        Webhook(f"http://127.0.0.1:{silent.getsockname()[1]}/secret", 0.2)(NOTICE)


def test_a_webhook_that_sends_a_byte_now_and_then_is_given_up():
    over = threading.Event()

    def drip(listening: socket.socket) -> None:
        with listening.accept()[0] as taken, suppress(OSError):
            taken.sendall(b"HTTP/1.1 200 OK\r\n")
            while not over.wait(0.05):
                taken.sendall(b"A")

    with socket.create_server(("127.0.0.1", 0)) as dripping:
        threading.Thread(target=drip, args=(dripping,), daemon=True).start()
        with pytest.raises(TimeoutError, match=r"did not answer within 0\.3 s"):
            Webhook(f"http://127.0.0.1:{dripping.getsockname()[1]}", 0.3)(NOTICE)
        over.set()


def test_a_webhook_that_keeps_sixteen_answers_open_gets_no_more(monkeypatch):
    over = threading.Event()
    monkeypatch.setattr(Webhook, "_post", lambda *_: over.wait(120))
    webhook = Webhook("http://hook.example/secret", 0.01)
    for _ in range(16):
        with pytest.raises(TimeoutError, match="did not answer within"):
            webhook(NOTICE)
    with pytest.raises(TimeoutError, match=r"^http://hook.example still answers 16 others: this notice is dropped$"):
        webhook(NOTICE)
    over.set()


def test_a_webhook_that_nobody_serves_is_said_without_its_path():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        host = f"http://127.0.0.1:{gone.getsockname()[1]}"
    with pytest.raises(ConnectionError) as caught:
        Webhook(f"{host}/secret", 10)(NOTICE)
    assert str(caught.value) == f"{host} does not answer (Connection refused)"


def test_a_command_gets_it(tmp_path):
    Command(f'cat >{tmp_path}/in; echo "$CONVGPU_KIND $CONVGPU_CONTAINER: $CONVGPU_TEXT" >{tmp_path}/env', 10)(NOTICE)
    assert json.loads((tmp_path / "in").read_text()) == NOTICE
    assert (tmp_path / "env").read_text() == f"paused train: {NOTICE['text']}\n"
    with pytest.raises(ChildProcessError, match="ended with 3"):
        Command("exit 3", 10)(NOTICE)


def test_a_command_that_hangs_is_ended_with_what_it_started(tmp_path):
    with pytest.raises(TimeoutError, match=r"within 0\.3 s"):
        Command(f"exec 3>{tmp_path}/pipe; sleep 600 & sleep 600", 0.3)(NOTICE)


def test_senders_that_hang_hold_up_nobody_and_the_oldest_are_dropped():
    begun, free, said = threading.Semaphore(0), threading.Event(), []

    def hang(_: dict[str, Any]) -> None:
        begun.release()
        free.wait(120)

    dispatcher = Dispatcher({"webhook": hang}, said.append)
    for number in range(4):
        dispatcher.put({"number": number})
    for _ in range(4):
        assert begun.acquire(timeout=120)
    for number in range(300):
        dispatcher.put({"number": number})  # returns, though nobody takes it
    assert said == ["too many events wait: the oldest is dropped"] * 100
    free.set()


def test_the_feed_goes_on_after_the_scheduler_was_away_and_counts_anew():
    answers: list[Any] = [((PAUSED,), 9), Unavailable("away"), ((), 2), ((PAUSED,), 4)]
    asked = []

    def ask(since: int) -> Any:
        asked.append(since)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    feed = follow(ask, 7)
    assert [next(feed) for _ in range(4)] == [(PAUSED,), (), (), (PAUSED,)]
    assert asked == [7, 9, 9, 2]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "nobody is to be told"),
        (["--url", "chat.example/hook"], "must begin with http:// or https://"),
        (["--command", "true", "--timeout", "soon"], "soon"),
        (["--command", "true", "--kind", "nosuch"], "nosuch"),
    ],
)
def test_wrong_words_are_one_clear_error(words, text):
    done = CliRunner().invoke(main, ["notify", *words])
    assert (done.exit_code, text in done.stderr) == (2, True), done.stderr
