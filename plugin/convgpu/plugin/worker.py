"""gunicorn's threaded worker, with a way past its threads for calls that need no thought.

Each call of the Engine's API costs two of ours, one after the other. Most of them have nothing to do with GPUs: those
are answered by the thread that waits for connections, from the bytes that lie in the socket. So is the question what
kind of driver this is, which the Engine puts ten times while one container comes and goes. Everything else takes
gunicorn's own way, with nothing of it read before. See docs/decisions/0017-connections-are-kept.md.
"""

import contextlib
import selectors
import socket
import struct
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from gunicorn.workers.gthread import TConn, ThreadWorker

from convgpu.plugin import api
from convgpu.plugin.authorization import pass_at_once
from convgpu.plugin.driver import SCOPE
from convgpu.plugin.limits import SILENCE

# Bytes of a call that are looked at here. The Engine shows 64 KiB of an answer at most, most calls have a few hundred.
_MOST: Final = 1 << 16
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\nContent-Length: "  # in this spelling, as Go's client writes it
_AUTHORIZATION: Final = b"POST /AuthZPlugin."
_CAPABILITIES: Final = b"POST /VolumeDriver.Capabilities "
_CAPABLE: Final = api.encode_capabilities(SCOPE)
_QUESTION: Final = f"POST {api.AUTHORIZE_REQUEST} ".encode()
# Threads that may wait for the Engine's and the scheduler's answers. Volume calls have others, and so has what the
# Engine says of its answers: a judge waits for one of these, and it may be too long for the loop.
_JUDGES: Final = 32
# Seconds after which a thread that computes lets the one that waits for connections go on; Python's own 5 ms are as
# much as ten calls.
_SWITCH: Final = 0.0005
# Seconds for which a stopping worker keeps idle connections, for a call that may be on its way.
_LINGER: Final = 0.2
# The kernel's bound for each read of a thread (socket(7), SO_RCVTIMEO): gunicorn takes back a timeout of Python's own,
# because it sets sockets to block.
_READ_BOUND: Final = struct.pack("ll", SILENCE, 0)


class PluginWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Keeps connections until the client closes them, and answers what it can at once.

    The Engine keeps two idle connections and never closes them. A server that closes one first may do so while the
    Engine sends: the Engine then tries again with an empty body.
    """

    def init_process(self) -> None:
        """Start the second pool of threads."""
        sys.setswitchinterval(_SWITCH)
        self._judges = ThreadPoolExecutor(_JUDGES, thread_name_prefix="judge")
        super().init_process()

    def accept(self, listener: socket.socket) -> None:
        """Take a connection into the loop, where its first call is met like all others."""
        try:
            client, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _READ_BOUND)
        self.nr_conns += 1
        self._keep(TConn(self.cfg, client, address, listener.getsockname()))

    def on_client_socket_readable(self, conn: Any, client: socket.socket) -> None:
        """Answer at once, or hand the connection to a thread."""
        waiting = _peek(client)
        if not self.alive or not _answer_at_once(client, waiting):
            self.poller.unregister(client)
            self.keepalived_conns.remove(conn)
            conn.data_ready = True
            self._enqueue(conn, self._judges if waiting.startswith(_QUESTION) else self.tpool)

    def _cap_keepalive(self, deadline: float) -> None:
        super()._cap_keepalive(min(deadline, time.monotonic() + _LINGER))

    def _enqueue(self, conn: Any, pool: ThreadPoolExecutor) -> None:
        def done(future: "Future[Any]") -> None:
            self.method_queue.defer(self.finish_request, conn, future)

        pool.submit(self.handle, conn).add_done_callback(done)

    def _keep(self, conn: Any) -> None:
        conn.sock.setblocking(False)
        conn.timeout = time.monotonic() + self.cfg.keepalive
        self.keepalived_conns.append(conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self.on_client_socket_readable, conn))


def _peek(client: socket.socket) -> bytes:
    try:
        return client.recv(_MOST, socket.MSG_PEEK)
    except OSError:
        return b""


def _answer_at_once(client: socket.socket, waiting: bytes) -> bool:
    """Answer the one whole call that waits in a socket, if that needs no thought; else leave the socket as it is."""
    if not waiting.startswith((_AUTHORIZATION, _CAPABILITIES)):
        return False
    end = waiting.find(_HEAD_END)
    begin = waiting.find(_LENGTH, 0, end)
    if end < 0 or begin < 0:
        return False
    digits = waiting[begin + len(_LENGTH) : waiting.index(b"\r\n", begin + 2)]
    body = waiting[end + len(_HEAD_END) :]
    if digits != str(len(body)).encode():
        return False
    path = waiting[len(b"POST ") : waiting.index(b" ", len(b"POST "))].decode("latin-1")
    reply = _CAPABLE if path == api.CAPABILITIES else pass_at_once(path, body)
    if reply is None:
        return False
    try:
        client.recv(len(waiting))
        # A hundred bytes always fit into the buffer of a socket whose peer waits for them.
        client.sendall(_response(reply))
    except OSError:
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)  # readable from now on, so the next look finds its end
    return True


def _response(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {api.CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
