"""The share of the event loop that each container gets.

A container can have a thousand processes, each with any number of connections. Were all of them watched by the loop
itself, a container that floods would get a thousand turns where another gets one. So the loop watches one descriptor
for each container, an epoll(7) of its own, and a turn of that costs everybody else a bounded time (decision 70).
"""

import asyncio
import select
import socket
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final

from convgpu.daemon.transport.closer import Closer

# Seconds of one turn. What begins within them ends after them, so that they bound what waits and not what runs.
BUDGET: Final = 0.0005
_BATCH: Final = 16  # ready descriptors that are asked of the kernel at once; it gives each one its turn

Callback = Callable[[], None]


class Share:
    """Calls back for descriptors and for work that is due, in turns of a bounded time.

    Within a turn each descriptor that is ready has its place in a queue; whoever has more to do queues again.

    Args:
        budget: seconds of a turn.
        quick: those that are served before this one, as long as its turns do not suffice for all it has to do.

    Raises:
        OSError: no descriptors are left.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, budget: float = BUDGET, quick: "QuickShares | None" = None
    ) -> None:
        self._loop = loop
        self._budget = budget
        self._epoll = select.epoll()
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._masks: dict[int, int] = {}
        self._ready: deque[tuple[int, int]] = deque()
        self._due: deque[Callback] = deque()
        self._queued: set[Hashable] = set()
        self._end = 0.0
        self._next: asyncio.Handle | None = None
        self._closer = Closer(loop, self._resume)
        self._quick = quick
        self._is_busy = False
        if quick is not None:
            quick.add(self._epoll.fileno(), self._turn)
        loop.add_reader(self._epoll, self._turn)

    # -- descriptors -----------------------------------------------------------------------------------------

    def add_reader(self, descriptor: int, callback: Callback) -> None:
        """Call back whenever a descriptor can be read, until `remove_reader`."""
        self._readers[descriptor] = callback
        self._watch(descriptor)

    def add_writer(self, descriptor: int, callback: Callback) -> None:
        """Call back whenever a descriptor can be written, until `remove_writer`."""
        self._writers[descriptor] = callback
        self._watch(descriptor)

    def remove_reader(self, descriptor: int) -> None:
        """End `add_reader`; nothing happens if there was none."""
        if self._readers.pop(descriptor, None) is not None:
            self._watch(descriptor)

    def remove_writer(self, descriptor: int) -> None:
        """End `add_writer`; nothing happens if there was none."""
        if self._writers.pop(descriptor, None) is not None:
            self._watch(descriptor)

    def _watch(self, descriptor: int) -> None:
        before = self._masks.get(descriptor, 0)
        mask = select.EPOLLIN * (descriptor in self._readers) | select.EPOLLOUT * (descriptor in self._writers)
        if mask == before:
            return
        if not before:
            self._epoll.register(descriptor, mask)
        elif not mask:
            self._epoll.unregister(descriptor)
        else:
            self._epoll.modify(descriptor, mask)
        self._masks[descriptor] = mask
        if not mask:
            del self._masks[descriptor]

    def release(self, sock: socket.socket) -> None:
        """Close a socket that the container has reached. While too many of these wait, none of its others is served."""
        self._closer.take(sock)
        if self._closer.is_full and not self._epoll.closed:
            self._loop.remove_reader(self._epoll)

    def _resume(self) -> None:
        if not self._epoll.closed:
            self._loop.add_reader(self._epoll, self._turn)

    # -- work ------------------------------------------------------------------------------------------------

    def call_soon(self, work: Callback, key: Hashable = None) -> None:
        """Do some work in this share's time, after what is queued. Work whose key is queued already is not added."""
        if key is not None:
            if key in self._queued:
                return
            self._queued.add(key)
            self._due.append(lambda: self._do(key, work))
        else:
            self._due.append(work)
        self._continue()

    def _do(self, key: Hashable, work: Callback) -> None:
        self._queued.discard(key)
        work()

    @property
    def has_time(self) -> bool:
        """Whether more may be done in this turn; outside of a turn never."""
        return self._loop.time() < self._end

    # -- turns -----------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Do what is due and serve who is ready, at least one of each, until the time is over."""
        if self._next is not None:  # its turn is queued already: one in each turn of the loop
            return
        self._run()

    def _run(self) -> None:
        self._next = None
        try:
            if self._is_busy and self._quick is not None:
                self._quick.serve()
            self._end = self._loop.time() + self._budget
            goes_on = True
            while goes_on:
                goes_on = (self._work() | self._serve()) and self.has_time
        finally:
            self._note_rest()
            self._end = 0.0
            self._continue()

    def _note_rest(self) -> None:
        """Note whether more is to be done than a turn suffices for: then others that need less go first."""
        if self._quick is None or self._epoll.closed:
            return
        if not self.has_time and not self._due and not self._ready:
            self._ready.extend(self._epoll.poll(0, _BATCH))
        is_busy = bool(self._due or self._ready)
        if is_busy == self._is_busy:
            return
        self._is_busy = is_busy
        if is_busy:
            self._quick.remove(self._epoll.fileno())
        else:
            self._quick.add(self._epoll.fileno(), self._turn)

    def _work(self) -> bool:
        if not self._due:
            return False
        self._due.popleft()()
        return True

    def _serve(self) -> bool:
        if self._closer.is_full:
            return False
        if not self._ready and not self._epoll.closed:
            self._ready.extend(self._epoll.poll(0, _BATCH))
        if not self._ready:
            return False
        descriptor, events = self._ready.popleft()
        reader, writer = self._readers.get(descriptor), self._writers.get(descriptor)
        if reader is not None and events & ~select.EPOLLOUT:
            reader()
        if writer is not None and events & ~select.EPOLLIN and self._writers.get(descriptor) is writer:
            writer()
        return True

    def _continue(self) -> None:
        """Have another turn in the loop's next turn if there is work: the kernel knows only of descriptors."""
        if self._due and self._next is None and not self._end and not self._epoll.closed:
            self._next = self._loop.call_soon(self._run)

    def close(self) -> None:
        """Serve nobody any more."""
        if self._next is not None:
            self._next.cancel()
        self._due.clear()
        self._ready.clear()
        if not self._epoll.closed:
            if self._quick is not None:
                self._quick.remove(self._epoll.fileno())
            self._loop.remove_reader(self._epoll)
            self._epoll.close()


class QuickShares:
    """The shares whose turns suffice for all they have to do.

    Were turns only taken one after the other, whoever asks now and then would wait for those of all containers that
    flood. So before each turn of one that floods, who needs less is served, for the time of such a turn altogether.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, budget: float = BUDGET) -> None:
        self._loop = loop
        self._budget = budget
        self._epoll = select.epoll()
        self._turns: dict[int, Callback] = {}
        self._ready: deque[int] = deque()

    def add(self, descriptor: int, turn: Callback) -> None:
        """Add a share by the descriptor that can be read when it has something to do."""
        self._turns[descriptor] = turn
        self._epoll.register(descriptor, select.EPOLLIN)

    def remove(self, descriptor: int) -> None:
        """Remove a share; nothing happens if it is not here."""
        if self._turns.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def serve(self) -> None:
        """Give those that are ready a turn, one after the other, until the time is over."""
        end = self._loop.time() + self._budget
        if not self._ready:
            self._ready.extend(descriptor for descriptor, _ in self._epoll.poll(0, _BATCH))
        while self._ready:
            turn = self._turns.get(self._ready.popleft())
            if turn is not None:
                turn()
            if self._loop.time() >= end:
                return

    def close(self) -> None:
        """Serve nobody any more."""
        self._epoll.close()


class Shares:
    """The shares of all containers, by name; each is made when it is first asked for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, budget: float = BUDGET) -> None:
        self._loop = loop
        self._budget = budget
        self._quick = QuickShares(loop, budget)
        self._shares: dict[str, Share] = {}

    def of(self, container: str) -> Share:
        """Return the share of a container. Raises OSError: no descriptors are left."""
        share = self._shares.get(container)
        if share is None:
            share = self._shares[container] = Share(self._loop, self._budget, self._quick)
        return share

    def remove(self, container: str) -> None:
        """Close the share of a container that is removed."""
        share = self._shares.pop(container, None)
        if share is not None:
            share.close()

    def close(self) -> None:
        """Close all shares."""
        for container in list(self._shares):
            self.remove(container)
        self._quick.close()
