"""Tells of each process that begins, as the kernel's connector does (netlink(7), include/uapi/linux/cn_proc.h).

The connector exists in the host's first network namespace only, and wants CAP_NET_ADMIN before Linux 6.6. A plugin has
a network namespace of its own, so the socket is made in that of a process above it.
"""

import contextlib
import ctypes
import errno
import os
import select
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_CONNECTOR: Final = 11  # NETLINK_CONNECTOR
_PROCESSES: Final = 1  # CN_IDX_PROC and CN_VAL_PROC
_LISTEN: Final = 1  # PROC_CN_MCAST_LISTEN
_FORK: Final = 1  # PROC_EVENT_FORK
_BIRTH: Final = struct.pack("=I", _FORK)
_ATTACH_FILTER: Final = 26  # SO_ATTACH_FILTER
_BUFFER_FORCE: Final = 33  # SO_RCVBUFFORCE
_NEW_NETWORK: Final = 0x4000_0000  # CLONE_NEWNET
# Bytes that the kernel may queue; an event takes some 800 there.
_BUFFER: Final = 32 << 20
_TIMEOUT: Final = 1000  # milliseconds for the kernel's answer
_NETLINK: Final = struct.Struct("=IHHII")
_MESSAGE: Final = struct.Struct("=IIIIHH")
_WHAT: Final = 36  # offset of proc_event.what, and of what follows
_EVENT: Final = struct.Struct("=QIIII")  # time, and the parent's and the child's pid and tgid
_EVENT_AT: Final = 44
# Events of one read; the rest comes with the next.
_MOST: Final = 200_000

_libc: Final = ctypes.CDLL(None, use_errno=True)


def _filter() -> bytes:
    """Return a program for the socket that takes births of processes and the kernel's answer, but no threads.

    Loads are in network order. Answers have the kind 0, a birth has the same number as pid and as tgid of the child.
    """
    load, equal, equal_x, to_x, give = 0x20, 0x15, 0x1D, 0x07, 0x06
    rows = [
        (load, 0, 0, _WHAT),
        (equal, 5, 0, 0),
        (equal, 0, 5, socket.htonl(_FORK)),
        (load, 0, 0, _EVENT_AT + 16),
        (to_x, 0, 0, 0),
        (load, 0, 0, _EVENT_AT + 20),
        (equal_x, 0, 1, 0),
        (give, 0, 0, 0xFFFF_FFFF),
        (give, 0, 0, 0),
    ]
    return b"".join(struct.pack("=HBBI", *row) for row in rows)


class ForkEvents:
    """The births of processes since this was made, which the kernel queues until they are read.

    Raises:
        OSError: the kernel has no connector, it is not ours to use, or it does not answer.
    """

    def __init__(self, networks: Iterable[Path] = ()) -> None:
        self._is_lost = False
        self._socket = _subscribe_in(networks)

    def read(self) -> Iterator[tuple[int, int, float]]:
        """Yield the births since the last read: the parent's pid, the child's, and when, on the monotonic clock.

        Raises:
            OSError: the socket does not work any more.
        """
        for _ in range(_MOST):
            try:
                data, (sender, _) = self._socket.recvfrom(256)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._is_lost = True
                continue
            if sender == 0 and len(data) >= _EVENT_AT + _EVENT.size and data[_WHAT : _WHAT + 4] == _BIRTH:
                at, _, parent, _, child = _EVENT.unpack_from(data, _EVENT_AT)
                yield parent, child, at / 1e9

    def take_loss(self) -> bool:
        """Return whether births were lost since this was asked, for there were too many."""
        is_lost, self._is_lost = self._is_lost, False
        return is_lost

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _subscribe_in(networks: Iterable[Path]) -> socket.socket:
    """Return a socket of the connector, in the first of these namespaces where the kernel answers; else in our own."""
    for network in networks:
        with contextlib.suppress(OSError), network.open("rb") as namespace:  # not ours, or without a connector
            own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            try:
                if _libc.setns(namespace.fileno(), _NEW_NETWORK) == 0:
                    try:
                        return _subscribe()
                    finally:
                        _libc.setns(own, _NEW_NETWORK)
            finally:
                os.close(own)
    return _subscribe()


def _subscribe() -> socket.socket:
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    events = socket.socket(socket.AF_NETLINK, kind, _CONNECTOR)
    try:
        _ask_for_births(events)
    except BaseException:
        events.close()
        raise
    return events


def _ask_for_births(events: socket.socket) -> None:
    program = _filter()
    rows = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(rows))
    events.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, described)
    with contextlib.suppress(PermissionError):  # the usual size does for a quiet host
        events.setsockopt(socket.SOL_SOCKET, _BUFFER_FORCE, _BUFFER)
    events.bind((0, _PROCESSES))
    message = _MESSAGE.pack(_PROCESSES, _PROCESSES, 0, 0, 4, 0) + struct.pack("=I", _LISTEN)
    events.send(_NETLINK.pack(_NETLINK.size + len(message), 3, 0, 0, 0) + message)
    poll = select.poll()
    poll.register(events, select.POLLIN)
    if not poll.poll(_TIMEOUT):
        raise TimeoutError(errno.ETIMEDOUT, "the kernel's connector does not tell of processes")
