"""Watches processes that got SIGKILL until they are gone, and says why one is not."""

import logging
import select
import threading
import time
from collections.abc import MutableMapping, Sequence
from typing import Final

from convgpu.daemon.audit.ends.terminate import Ended, Order, end_all
from convgpu.daemon.system.processes import fuse
from convgpu.daemon.system.processes.waits import Wait, wait_of

log = logging.getLogger(__name__)

# Seconds after which it is said that a process is still there.
_PATIENCE: Final = 5.0
# Seconds between two frees of its cgroups: its user may limit it anew.
_STEP: Final = 0.1
_SLOWLY: Final = 1.0
_MOST_SHOWN: Final = 3
_STILL: Final = "%s was ended %.0f s ago, and is still there: %s (docs/authorization.md, What no audit ends)"


class Ender:
    """Ends what it is told to, each in a thread of its own, which waits until all of it is gone.

    Args:
        surviving: gets why processes are still there, by the name of what was ended.
    """

    def __init__(self, surviving: MutableMapping[str, str]) -> None:
        self._surviving = surviving
        self._lock = threading.Lock()
        self._orders: dict[str, Order | None] = {}  # by name, while a thread works on it; None: it has taken it

    def end(self, name: str, order: Order) -> None:
        """End processes, those that came since the last order of this name too."""
        with self._lock:
            works = name in self._orders
            self._orders[name] = order
        if works:
            return
        try:
            threading.Thread(target=self._work, args=(name,), name=f"end {name:.12}", daemon=True).start()
        except RuntimeError as error:  # no process IDs are left; the next look orders it again
            log.warning("%s cannot be ended now: %s", name, error)
            with self._lock:
                self._orders.pop(name, None)

    def is_over(self, name: str) -> bool:
        """Say whether what was ended of this name is gone, or may be about to be."""
        return name not in self._surviving

    def _work(self, name: str) -> None:
        ended = Ended()
        try:
            self._end_all_of(name, ended)
        except Exception:  # a fault here must not keep the next order from being carried out
            log.exception("%s could not be ended", name)
            for pid in list(ended.watched):
                ended.close(pid)
            self._surviving.pop(name, None)
            with self._lock:
                self._orders.pop(name, None)

    def _end_all_of(self, name: str, ended: Ended) -> None:
        since, told = time.monotonic(), False
        while (order := self._next(name, ended)) is not None or ended.watched:
            if order is not None:
                end_all(order, ended)
            else:
                ended.free()
            past = time.monotonic() - since
            _forget_gone(ended, _SLOWLY if told else _STEP)
            if ended.watched and past >= _PATIENCE:
                text = describe([wait_of(pid) for pid in list(ended.watched)[:_MOST_SHOWN]], fuse.connections())
                if not told:
                    log.warning(_STILL, name, past, text)
                told, self._surviving[name] = True, text
        if told:
            self._surviving.pop(name, None)
            log.warning("%s is gone, %.0f s after it was ended", name, time.monotonic() - since)

    def _next(self, name: str, ended: Ended) -> Order | None:
        """Return an order that came since the last one; without one, and with nothing to watch, there is no thread."""
        with self._lock:
            order, self._orders[name] = self._orders[name], None
            if order is None and not ended.watched:
                del self._orders[name]
            return order


def _forget_gone(ended: Ended, timeout: float) -> None:
    """Wait for an end of those that are watched, at most `timeout` seconds, and forget those that are gone."""
    poll = select.poll()
    pids = {pidfd: pid for pid, pidfd in ended.watched.items()}
    for pidfd in pids:
        poll.register(pidfd, select.POLLIN)
    for pidfd, _ in poll.poll(timeout * 1000):
        ended.close(pids[pidfd])


def describe(waits: Sequence[Wait], connections: Sequence[fuse.Connection]) -> str:
    """Return what processes that got SIGKILL wait for, and what to do; pure."""
    return "; ".join(_describe(wait, connections) for wait in waits)


def _describe(wait: Wait, connections: Sequence[fuse.Connection]) -> str:
    who = f"pid {wait.pid} (state {wait.state or '?'}, in {wait.place or '?'})"
    if wait.tracer:
        return f"{who} may have stopped for its tracer: end pid {wait.tracer}"
    if wait.is_frozen:
        return f"{who} is frozen: docker unpause, or thaw its cgroup"
    if wait.state == "R":
        return f"{who} runs: it gives its memory back, or gets no CPU"
    if wait.state != "D":
        return f"{who} waits"
    open_ones = ", ".join(f"{each.number} of user {each.user}" for each in connections) or "none is known"
    return (
        f"{who} waits in the kernel, for a disk, a file server, or the closing of its own files; "
        f"FUSE connections with open requests: {open_ones}. "
        "To abort one: echo 1 >/sys/fs/fuse/connections/NUMBER/abort"
    )
