"""The share of the event loop that each container gets.

A container can have a thousand processes, each with any number of connections. Were all of them watched by the loop
itself, a container that floods would get a thousand turns where another gets one. So the loop watches one descriptor
for all containers, an epoll(7) in which there is one of each container's own, and who has had the least time is served
first (decision 70).
"""

import asyncio
import errno
import heapq
import logging
import select
import socket
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final

from convgpu.daemon.transport.closer import Closer

log = logging.getLogger(__name__)

# Seconds of one turn. What begins within them ends after them, so that they bound what waits and not what runs.
BUDGET: Final = 0.0005
ADMINISTRATORS: Final = ""  # no volume has no name
# Seconds. What cannot be divided, and what stopped this process meanwhile, is to cost who had the turn two rounds.
_MOST_CHARGED: Final = 2 * BUDGET
_BATCH: Final = 16  # ready descriptors that are asked of the kernel at once; it gives each one its turn
# Seconds after which a descriptor is registered again. Others of our user, as root in a container may be, can use up
# what the kernel lets a user register (fs.epoll.max_user_watches; epoll_ctl(2): ENOSPC).
_AGAIN: Final = 0.1
_SCARCE: Final = (errno.ENOSPC, errno.ENOMEM)
_ARMED: Final = select.EPOLLIN | select.EPOLLONESHOT  # tells of a share once, until it is armed again

Callback = Callable[[], None]


class Share:
    """Calls back for descriptors and for work that is due, in turns of a bounded time.

    Within a turn each descriptor that is ready has its place in a queue; whoever has more to do queues again.

    Args:
        budget: seconds of a turn.
        on_due: called when there is something to do that the kernel does not know of.

    Attributes:
        descriptor: can be read while descriptors are ready.
        used: seconds that it has had, in the time of `Shares`.
        is_queued: whether it has a place in the queue of `Shares`.

    Raises:
        OSError: no descriptors are left.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, budget: float, on_due: "Callable[[Share], None]") -> None:
        self._loop = loop
        self._budget = budget
        self._on_due = on_due
        self._epoll = select.epoll()
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._masks: dict[int, int] = {}
        self._unregistered: dict[int, None] = {}  # for which there was no room
        self._again: asyncio.TimerHandle | None = None
        self._ready: deque[tuple[int, int]] = deque()
        self._due: deque[Callback] = deque()
        self._keys: set[Hashable] = set()
        self._end = 0.0
        self._closer = Closer(loop, lambda: on_due(self))
        self.descriptor = self._epoll.fileno()
        self.used = 0.0
        self.is_queued = False

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
            if not self._register(descriptor, mask):
                return
        elif not mask:
            self._epoll.unregister(descriptor)
        else:
            self._epoll.modify(descriptor, mask)
        self._masks[descriptor] = mask
        if not mask:
            del self._masks[descriptor]

    def _register(self, descriptor: int, mask: int) -> bool:
        """Register a descriptor, or say that there is no room: then it is tried again."""
        try:
            self._epoll.register(descriptor, mask)
        except OSError as error:
            if error.errno not in _SCARCE:
                raise
            log.warning("a descriptor is not served until there is room: %s (sysctl fs.epoll.max_user_watches)", error)
            self._unregistered[descriptor] = None
            if self._again is None:
                self._again = self._loop.call_later(_AGAIN, self._register_again)
            return False
        return True

    def _register_again(self) -> None:
        self._again = None
        descriptors, self._unregistered = self._unregistered, {}
        for descriptor in descriptors:
            self._watch(descriptor)

    def release(self, sock: socket.socket) -> None:
        """Close a socket that the container has reached. While too many of these wait, none of its others is served."""
        self._closer.take(sock)

    # -- work ------------------------------------------------------------------------------------------------

    def call_soon(self, work: Callback, key: Hashable = None) -> None:
        """Do some work in this share's time, after what is queued. Work whose key is queued already is not added."""
        if key is not None:
            if key in self._keys:
                return
            self._keys.add(key)
            self._due.append(lambda: self._do(key, work))
        else:
            self._due.append(work)
        self._on_due(self)

    def _do(self, key: Hashable, work: Callback) -> None:
        self._keys.discard(key)
        work()

    @property
    def has_time(self) -> bool:
        """Whether more may be done in this turn; outside of a turn never."""
        return self._loop.time() < self._end

    # -- turns -----------------------------------------------------------------------------------------------

    def take_turn(self) -> bool:
        """Do what is due and serve who is ready, at least one of each, until the time is over; say if it was."""
        self._end = self._loop.time() + self._budget
        try:
            while self._work() | self._serve():
                if not self.has_time:
                    return True
            return False
        finally:
            self._end = 0.0

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

    @property
    def can_wait(self) -> bool:
        """Whether the kernel says when there is more to do; not while descriptors are not served, and when closed."""
        return not self._closer.is_full and not self._epoll.closed

    @property
    def is_closed(self) -> bool:
        """Whether it serves nobody any more."""
        return self._epoll.closed

    def close(self) -> None:
        """Serve nobody any more."""
        self._due.clear()
        self._ready.clear()
        if self._again is not None:
            self._again.cancel()
        self._epoll.close()


class Shares:
    """The shares of all containers, by name; each is made when it is first asked for.

    Who has had the least time goes first (start-time fair queueing): a share that has something to do begins where the
    one that is served began, or after all the time it has had itself, whichever is later. So who asks now and then
    waits for one turn, and not for those of all who flood, nor of all who ask a little more than their part allows. A
    turn that sufficed for all there was counts half, so that who does not flood has up to twice the time of who does.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, budget: float = BUDGET) -> None:
        self._loop = loop
        self._budget = budget
        self._epoll = select.epoll()
        self._shares: dict[str, Share] = {}
        self._by_descriptor: dict[int, Share] = {}
        self._queue: list[tuple[float, float, int, Share]] = []
        self._count = 0
        self._began = 0.0  # where the share began that was served last
        self._next: asyncio.Handle | None = None
        self._is_serving = False
        loop.add_reader(self._epoll, self._begin)

    def of(self, container: str) -> Share:
        """Return the share of a container. Raises OSError: no descriptors are left."""
        share = self._shares.get(container)
        if share is None:
            share = Share(self._loop, self._budget, self._wake)
            self._epoll.register(share.descriptor, _ARMED)
            self._shares[container] = self._by_descriptor[share.descriptor] = share
        return share

    # -- the queue -------------------------------------------------------------------------------------------

    def _wake(self, share: Share) -> None:
        """Give a share that has something to do its place in the queue."""
        if not share.is_queued and not share.is_closed:
            self._push(share)
            self._go_on()

    def _push(self, share: Share) -> None:
        share.is_queued = True
        self._count += 1
        # Of those that would begin alike, who has had less is first: else who asks seldom waits for all in their round.
        heapq.heappush(self._queue, (max(share.used, self._began), share.used, self._count, share))

    def _go_on(self) -> None:
        """Have one turn in the loop's next turn."""
        if self._queue and self._next is None and not self._is_serving:
            self._next = self._loop.call_soon(self._turn)

    def _begin(self) -> None:
        if self._next is None:  # otherwise its turn is queued already
            self._turn()

    def _turn(self) -> None:
        self._next = None
        self._is_serving = True
        end = self._loop.time() + self._budget
        try:
            while self._serve_first() and self._loop.time() < end:
                pass
        finally:
            self._is_serving = False
            self._go_on()

    def _serve_first(self) -> bool:
        for descriptor, _ in self._epoll.poll(0):
            self._wake(self._by_descriptor[descriptor])
        if not self._queue:
            return False
        self._began, _, _, share = heapq.heappop(self._queue)
        begun, goes_on = self._loop.time(), True
        try:
            goes_on = share.take_turn()
        finally:
            taken = min(self._loop.time() - begun, _MOST_CHARGED)
            share.used = self._began + (taken if goes_on else taken / 2)
            share.is_queued = False
            if goes_on and not share.is_closed:
                self._push(share)
            elif share.can_wait:
                self._epoll.modify(share.descriptor, _ARMED)
        return True

    # -- the end ---------------------------------------------------------------------------------------------

    def remove(self, container: str) -> None:
        """Close the share of a container that is removed."""
        share = self._shares.pop(container, None)
        if share is not None:
            del self._by_descriptor[share.descriptor]
            share.close()

    def close(self) -> None:
        """Close all shares."""
        for container in list(self._shares):
            self.remove(container)
        self._queue.clear()
        if self._next is not None:
            self._next.cancel()
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll)
            self._epoll.close()
