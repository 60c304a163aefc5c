"""gunicorn's threaded worker, which answers a whole call of the Engine without gunicorn's parser.

Each call of the Engine's API costs two of ours, one after the other, and a container with a volume some twenty. A call
that lies whole in its socket is answered by `EngineCalls`: in the thread that waits for connections if the answer needs
nobody, else in a thread of a pool. A call that is not whole yet, and every other request, is read by gunicorn in such a
thread, with no byte of it consumed before; `PluginApp` hands a call of the Engine to the same `EngineCalls`. See
docs/decisions/0031-one-table-for-the-engines-calls.md.
"""

import contextlib
import select
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from gunicorn.workers.gthread import TConn, ThreadWorker

from convgpu.plugin.docker_api import wire
from convgpu.plugin.docker_api.body_limits import READ_TIMEOUT
from convgpu.plugin.docker_api.engine_calls import answer_at_once
from convgpu.plugin.engine.waiting import PLACES

# Bytes of a call that are read at once. The Engine shows 64 KiB of an answer at most, most calls have a few hundred.
_MAX_PEEK: Final = 1 << 16
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\nContent-Length: "  # in this spelling, as Go's client writes it
_VERSION: Final = b" HTTP/1.1\r\n"
# With one of these headers (lower case) a body may have another length, or its client waits for the connection's end.
_UNUSUAL_HEADERS: Final = (b"\r\ntransfer-encoding:", b"\r\nconnection:")
_CALLS: Final = (b"POST /AuthZPlugin.", b"POST /VolumeDriver.")
_AUTHORIZATION: Final = f"POST {wire.AUTHORIZE_REQUEST} ".encode()
# Threads that judge authorizations: those that wait for the Engine's answers about something, and those that do not.
# Volume calls and `AuthZRes` have a pool of their own: a judge waits for the Engine, and the Engine for these.
_JUDGES: Final = PLACES + 32
# Seconds after which a thread that computes releases the interpreter for the one that waits for connections; Python's
# own 5 ms are as long as ten calls.
_SWITCH_INTERVAL: Final = 0.0005
# Seconds for which a stopping worker keeps idle connections, for a call that may be on its way.
_LINGER: Final = 0.2
# The kernel's timeout for each read and write of a thread (socket(7), SO_RCVTIMEO): gunicorn undoes a timeout of
# Python's own, because it sets sockets to block.
_SOCKET_TIMEOUT: Final = struct.pack("ll", READ_TIMEOUT, 0)


class PluginWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Keeps connections until the client closes them, and answers whole calls of the Engine itself.

    The Engine keeps two idle connections and never closes them. A server that closes one first may do so while the
    Engine sends: the Engine then tries again with an empty body.
    """

    def init_process(self) -> None:
        """Start the second pool of threads."""
        sys.setswitchinterval(_SWITCH_INTERVAL)
        self._judges = ThreadPoolExecutor(_JUDGES, thread_name_prefix="judge")
        super().init_process()

    def accept(self, listener: socket.socket) -> None:
        """Take a connection into the loop, which waits for its first call as for all others."""
        try:
            client, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _SOCKET_TIMEOUT)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SOCKET_TIMEOUT)
        self.nr_conns += 1
        self._keep(_Connection(self.cfg, client, address, listener.getsockname()))

    def on_client_socket_readable(self, conn: Any, client: socket.socket) -> None:
        """Answer at once, or hand the connection to a thread."""
        waiting = _peek(client)
        call = _whole_call(waiting) if self.alive else None
        if call is not None and _send_answer_at_once(client, waiting, *call, strict=self.wsgi.calls.is_strict):
            return
        self.poller.unregister(client)
        self.keepalived_conns.remove(conn)
        conn.data_ready = True
        is_judged = waiting.startswith(_AUTHORIZATION)
        if call is not None and call[0] in self.wsgi.calls.paths:
            work, finish = partial(self._answer_call, client, len(waiting), *call), self._finish_call
        else:
            work, finish = partial(self.handle, conn), self.finish_request
        if is_judged:
            self._submit(self._judges, partial(_answer_if_wanted, client, work), finish, conn)
        else:
            self._submit(self.tpool, work, finish, conn)

    def _answer_call(self, client: socket.socket, length: int, path: str, body: bytes) -> None:
        """Answer one whole call, of `length` bytes in the socket, in a thread."""
        client.recv(length)
        status, reply = self.wsgi.calls.answer(path, body)
        client.setblocking(True)
        client.sendall(_response(reply, status))

    def _finish_call(self, conn: Any, future: "Future[None]") -> None:
        if future.exception() is None:
            self._keep(conn)
            if not self.alive:
                self._cap_keepalive(time.monotonic() + _LINGER)
        else:
            self.nr_conns -= 1  # the client is gone
            conn.close()

    def _cap_keepalive(self, deadline: float) -> None:
        super()._cap_keepalive(min(deadline, time.monotonic() + _LINGER))

    def _submit(
        self,
        pool: ThreadPoolExecutor,
        work: Callable[[], object],
        finish: Callable[[Any, "Future[Any]"], None],
        conn: Any,
    ) -> None:
        """Run `work` for a connection in a thread of `pool`, then `finish` in the thread that waits for connections."""
        pool.submit(work).add_done_callback(lambda future: self.method_queue.defer(finish, conn, future))

    def _keep(self, conn: Any) -> None:
        conn.sock.setblocking(False)
        conn.timeout = time.monotonic() + self.cfg.keepalive
        self.keepalived_conns.append(conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self.on_client_socket_readable, conn))


class _Connection(TConn):  # type: ignore[misc]  # gunicorn has no types
    def close(self, graceful: bool = False) -> None:  # noqa: ARG002 - gunicorn's signature
        """Close without waiting for the peer, as the loop would do for up to 2 s for each.

        That is for TCP, which may lose an answer when more was sent than was read; a UNIX socket delivers it.
        """
        super().close()


def _peek(client: socket.socket) -> bytes:
    try:
        return client.recv(_MAX_PEEK, socket.MSG_PEEK)
    except OSError:
        return b""


def _whole_call(waiting: bytes) -> tuple[str, bytes] | None:
    """Return path and body of a call of the Engine, if it is whole and nothing follows it; else None."""
    if not waiting.startswith(_CALLS):
        return None
    end = waiting.find(_HEAD_END)
    begin = waiting.find(_LENGTH, 0, end)
    if end < 0 or begin < 0 or _is_unusual(waiting[:end].lower()):
        return None
    digits = waiting[begin + len(_LENGTH) : waiting.index(b"\r\n", begin + 2)]
    body = waiting[end + len(_HEAD_END) :]
    if digits != str(len(body)).encode():
        return None
    path_end = waiting.index(b" ", len(b"POST "))
    if not waiting.startswith(_VERSION, path_end):
        return None
    return waiting[len(b"POST ") : path_end].decode("latin-1"), body


def _is_unusual(head: bytes) -> bool:
    return head.count(b"\r\ncontent-length:") != 1 or any(word in head for word in _UNUSUAL_HEADERS)


def _send_answer_at_once(client: socket.socket, waiting: bytes, path: str, body: bytes, *, strict: bool) -> bool:
    """Answer a whole call that waits in a socket, if that needs nobody; else leave the socket as it is."""
    reply = answer_at_once(path, body, strict=strict)
    if reply is None:
        return False
    try:
        client.recv(len(waiting))
        # A hundred bytes always fit into the buffer of a socket whose peer waits for them.
        client.sendall(_response(reply))
    except OSError:
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)  # readable from now on, so that the loop finds its end
    return True


def _answer_if_wanted(client: socket.socket, work: Callable[[], object]) -> object:
    """Do some work for a client, unless it has hung up: the Engine does so after 30 s, which a queue can last."""
    poll = select.poll()
    poll.register(client, 0)
    if poll.poll(0):  # POLLHUP: it has closed its socket, and not only its half
        raise ConnectionResetError
    return work()


def _response(body: bytes, status: int = HTTPStatus.OK) -> bytes:
    line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    head = f"{line}\r\nContent-Type: {wire.CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
