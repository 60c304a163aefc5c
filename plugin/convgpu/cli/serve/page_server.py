"""HTTP on loopback for a browser on this machine: files from the plugin, and the feed as server-sent events.

The plugin's socket is for root. What is shown of it here is read-only and needs the token of the address, which nobody
else on this machine knows; a page of another site learns nothing either: it does not know the token, a name of its own
that leads to 127.0.0.1 (DNS rebinding) is refused by `Host`, and no answer allows other origins.
"""

import hmac
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from convgpu.cli.connect.http_answer import Answer
from convgpu.cli.serve.feed import Feed
from convgpu.cli.serve.http_server import BoundedServer, ReadOnlyHandler
from convgpu.cli.serve.questions import BadQuestion, Questions
from convgpu.cli.terminal.errors import Refused, Unavailable

MAX_STREAMS: Final = 32
_HEARTBEAT: Final = 2.0  # seconds after which a stream shows that it is alive
_FILE: Final = re.compile(r"([a-z]{1,32}\.[a-z]{2,4})?|stream")
_PASSED_ON: Final = (
    "Content-Type",
    "Content-Security-Policy",
    "X-Content-Type-Options",
    "Referrer-Policy",
    "Cross-Origin-Resource-Policy",
    "Cross-Origin-Opener-Policy",
    "Cache-Control",
)

_JSON: Final = {"Content-Type": "application/json", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class PageServer(BoundedServer):
    """Serves `http://127.0.0.1:PORT/TOKEN/`.

    Args:
        port: 0 for any that is free.
        token: first part of each path.
        files: returns the plugin's answer for a path.
        feed: what the page shows.
        questions: what it asks beside.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, port: int, token: str, files: Callable[[str], Answer], feed: Feed, questions: Questions) -> None:
        self.token = token
        self.files = files
        self.feed = feed
        self.questions = questions
        self._streams = threading.BoundedSemaphore(MAX_STREAMS)
        super().__init__(("127.0.0.1", port), _Handler)
        self.hosts = {f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost")}

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    @contextmanager
    def stream(self) -> Iterator[bool]:
        """Hold one of the places for streams; False if all are taken."""
        got = self._streams.acquire(blocking=False)
        try:
            yield got
        finally:
            if got:
                self._streams.release()


class _Handler(ReadOnlyHandler):
    server: PageServer

    def do_GET(self) -> None:  # noqa: N802 - its name in the library
        """Answer a request of the page."""
        place = self._place()
        if place is None:
            return
        if place == "stream":
            self._stream()
            return
        if place in self.server.questions.places:
            self._answer(place)
            return
        try:
            answer = self.server.files(f"/dashboard/{place}")
        except OSError as error:
            self.say(502, f"the plugin does not answer ({error}); `docker plugin ls` says whether it is enabled")
            return
        headers = {name: answer.headers[name.lower()] for name in _PASSED_ON if name.lower() in answer.headers}
        self.send(answer.status, headers, answer.content)

    def _place(self) -> str | None:
        """Return the path behind the token, or answer the request and return None."""
        if self.headers.get("Host", "") not in self.server.hosts:
            self.say(421, "ask for 127.0.0.1 or localhost")
            return None
        token, _, place = self.path.partition("?")[0].removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self.say(404, "use the whole address that `convgpu dashboard` printed; it is another one each time")
            return None
        if _FILE.fullmatch(place) is None and place not in self.server.questions.places:
            self.say(404, "the page has no such file")
            return None
        return place

    def _answer(self, place: str) -> None:
        try:
            body = self.server.questions.answer(place, self.path.partition("?")[2])
        except BadQuestion as error:
            self.say(400, str(error))
        except (Refused, Unavailable) as error:
            self.say(404 if isinstance(error, Refused) else 502, error.message.partition("\n")[0])
        else:
            self.send(200, _JSON, body)

    def _stream(self) -> None:
        with self.server.stream() as got:
            if not got:
                self.say(503, f"{MAX_STREAMS} pages are open; close one")
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self._send_updates()

    def _send_updates(self) -> None:
        feed = self.server.feed
        version = next_sample = 0
        while not feed.closed:
            update = feed.wait(version, next_sample, _HEARTBEAT)
            version, next_sample = update.version, update.next_sample
            pieces = [(b"samples", update.samples), (b"state", update.state)]
            text = b"".join(b"event: %s\ndata: %s\n\n" % piece for piece in pieces if piece[1] is not None)
            self.wfile.write(text or b"event: alive\ndata: %.1f\n\n" % update.silence)
