"""HTTP servers of the command line: small, read-only, and with bounds on what others can take of them."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

MAX_CONNECTIONS: Final = 64
IDLE: Final = 10.0  # seconds that a client may take for a line of a request, or to receive a piece of an answer
# Seconds until the first one. Browsers open connections that they may need: one that is closed before is an error to
# the page that needs it then, unless the browser had seen that. Chromium keeps them for 10 s.
UNUSED: Final = 60.0


class BoundedServer(ThreadingHTTPServer):
    """Serves each connection in a thread of its own; too many are closed at once."""

    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._connections = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start the thread of a connection."""
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started; socketserver closes the connection
            self._connections.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, and make room for another one."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that goes away in the middle is no error."""


class ReadOnlyHandler(BaseHTTPRequestHandler):
    """One connection, one request: then nothing of a client stays behind in a thread."""

    server_version = "convgpu"
    sys_version = ""
    timeout = UNUSED

    def parse_request(self) -> bool:
        """Read what follows the first line."""
        self.connection.settimeout(IDLE)
        return super().parse_request()

    def _refuse_method(self) -> None:
        self.say(405, "this is read-only")

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse_method  # noqa: N815 - their names in the library

    def send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def say(self, status: int, text: str) -> None:
        """Answer with a line for people."""
        headers = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
        self.send(status, headers, (text + "\n").encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the library
        """Say nothing: an address with its token must not stand in a log."""

    def finish(self) -> None:
        """Close, also when the client is gone already."""
        try:
            super().finish()
        except (OSError, ValueError):
            self.connection.close()
