"""Memory that outlives its process: others have descriptors of it, and the driver counts it for nobody then.

A process tells of each descriptor by which it exported memory, and by which number an epoll instance of its own knows
it. We have a copy of the instance: the kernel forgets the entry with the last descriptor, wherever that is. So what a
process had exported and somebody has still when it ends, stays charged to its container as long as it is so, and to
nobody else (docs/decisions/0207). When its volume has been removed, there is nobody to charge, and it is shown under
the name that it had (docs/decisions/0208).

This is beside what an audit finds beyond leases; both together are the charge in the ledger.
"""

import asyncio
import errno
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Final
from weakref import WeakValueDictionary

from convgpu.core import events as e
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.sessions.exports import OPEN, UNKNOWN, Exports, Instance, Room
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.system.background_tasks import BackgroundTasks
from convgpu.daemon.system.processes.daemon_threads import in_daemon_thread
from convgpu.daemon.system.processes.epoll_entries import copy_instance
from convgpu.protocol.inspection.messages import ALL, Exported
from convgpu.protocol.records import Unlimited

log = logging.getLogger(__name__)

# Seconds between looks at what ended processes left, and for one. A look at a single entry takes 20 us, but a second
# where the program has made an instance of millions: so none is in the event loop.
_STEP: Final = 0.5
_PATIENCE: Final = 0.2
_COPYING: Final = 2.0  # seconds for what takes some microseconds
# Copies of instances of a container, one for each process that exports, if it does not close them.
_MOST_COPIES: Final = 1024
# Errors of taking a copy that are for what the process did: its descriptor is closed, or another file.
_OF_THE_PROCESS: Final = (errno.EBADF, errno.EINVAL, errno.ENOENT)
# Copies that are kept of all containers that were removed. Who left least is forgotten first.
_MOST_REMOVED: Final = 1024
_SOMEBODY_HAS: Final = "a process of it that has ended exported memory, and somebody has the descriptor"
_WHY: Final = f"{_SOMEBODY_HAS}; it is charged with that. End who was sent it"
_WHY_REMOVED: Final = f"{_SOMEBODY_HAS}; its volume was removed, and others wait for it. End who was sent it"

Process = tuple[str, int, int]
"""A container, and a process of it: its pid, and when it started, in clock ticks since boot."""


def _forget_closed(left: Sequence[Exports]) -> None:
    for one in left:
        one.forget_closed(_PATIENCE / len(left))


class OutlivingMemory:
    """Knows what processes exported, and has their containers charged with what others have after their ends.

    Attributes:
        most_copies: of instances, of all containers together; each is a descriptor.
    """

    def __init__(self, driver: MachineDriver, most_copies: int = 16_384) -> None:
        self._driver = driver
        self.most_copies = most_copies
        self._living: dict[int, Exports] = {}  # by session
        self._left: defaultdict[str, list[Exports]] = defaultdict(list)  # by container
        self._rooms: WeakValueDictionary[str, Room] = WeakValueDictionary()  # likewise
        self._earlier: dict[Process, Mapping[str, int]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._looks: dict[str, asyncio.Task[None]] = {}  # that were asked for, by container
        self._wake = asyncio.Event()
        self._tasks = BackgroundTasks()

    # -- living processes ------------------------------------------------------------------------------------

    def note(self, session: Session, told: Exported) -> bool:
        """Note what a process tells; say whether its instance is known. Else `copy` is to follow."""
        exports = self._living.get(session.number) or self._begin(session.number, session.container)
        if not told.size:
            if told.instance == ALL:
                exports.forget_earlier()
            else:
                exports.forget(told.name)
            return True
        instance = exports.note(told, session.rows[told.device])
        return instance is None or (instance in exports.copies and instance not in exports.copying)

    def _begin(self, number: int, container: str) -> Exports:
        room = self._rooms.setdefault(container, Room())
        self._living[number] = exports = Exports(container, room)
        return exports

    async def copy(self, session: Session, told: Exported) -> None:
        """Take a copy of an instance of a process. Where that cannot be, what the process told is not known.

        It counts as open where that is for what the process did itself.
        """
        exports, instance = self._living.get(session.number), (told.instance, told.generation)
        process, pid = session.process, session.pid
        if exports is not None and instance in exports.copying:
            await exports.copying[instance].wait()
            return
        if exports is None or instance in exports.copies or process is None:
            return
        if not self._may_copy(session):
            return
        if self._has_many(session):
            exports.copies[instance] = OPEN
            return
        given_up = list[bool]()
        exports.copies[instance], exports.copying[instance] = UNKNOWN, asyncio.Event()
        loop = asyncio.get_running_loop()

        def work() -> None:
            try:
                copy = copy_instance(pid, own, instance[0])
            finally:
                os.close(own)
            loop.call_soon_threadsafe(self._keep, exports, instance, copy, given_up)

        try:
            own = os.dup(process)
            await asyncio.wait_for(in_daemon_thread(work), _COPYING)
        except (OSError, RuntimeError) as error:  # TimeoutError too; no descriptor, no thread
            given_up.append(True)
            self._follow_failure(exports, instance, error, pid)
        finally:
            exports.copying.pop(instance).set()

    def _keep(self, exports: Exports, instance: Instance, copy: int, given_up: Sequence[bool]) -> None:
        if exports.is_closed or given_up:
            self._tasks.start(in_daemon_thread(partial(os.close, copy)))
        else:
            exports.copies[instance] = copy

    def _follow_failure(self, exports: Exports, instance: Instance, error: Exception, pid: int) -> None:
        """Count as open what a process closed or exchanged meanwhile that lives on; the next export tries again."""
        del exports.copies[instance]
        lives = any(one is exports for one in self._living.values())
        if lives and isinstance(error, OSError) and error.errno in _OF_THE_PROCESS:
            exports.copies[instance] = OPEN
            log.warning("what pid %d exported counts as open while memory of the device has no process: %s", pid, error)
        else:
            log.warning("what pid %d exported is not known: %s", pid, error)

    def _may_copy(self, session: Session) -> bool:
        """Say whether there may be one more copy, of all containers together."""
        every = chain(self._living.values(), *self._left.values())
        total = sum(copy != OPEN for one in every for copy in one.copies.values())
        if total >= self.most_copies:
            log.warning("what pid %d exported is not known: there are %d copies", session.pid, total)
        return total < self.most_copies

    def _has_many(self, session: Session) -> bool:
        """Say whether a container has as many copies as it may have."""
        of_it = chain(
            (one for one in self._living.values() if one.container == session.container),
            (one for one in self._left.get(session.container, ()) if one.looked_at_with),
        )
        if is_full := sum(len(one.copies) for one in of_it) >= _MOST_COPIES:
            log.warning(
                "what pid %d exported counts as open while memory of the device has no process: %s has %d copies",
                session.pid,
                session.container,
                _MOST_COPIES,
            )
        return is_full

    # -- ends ------------------------------------------------------------------------------------------------

    def leave(self, session: Session, used: Mapping[str, int]) -> Mapping[str, int]:
        """Return what stays charged at the end of a session, which used so many bytes of each device.

        All that the process did not say to be closed: a look follows at once.
        """
        exports = self._living.pop(session.number, None)
        if exports is None:
            return {}
        exports.pid = session.pid
        kept = self._charge(exports, used)
        if not kept:
            self._close(exports)
        return kept

    def reconnect(
        self, session: Session, previous: Session, used: Mapping[str, int], held: Mapping[str, int]
    ) -> Mapping[str, int]:
        """Return what stays charged when a process connects again, which used so much and holds so much.

        All in bytes by device. Who has executed another program holds nothing, and has left what others have.
        """
        if any(held.values()):
            if (exports := self._living.pop(previous.number, None)) is not None:
                self._living[session.number] = exports
                exports.forget_expected()  # the end of that may have been told to nobody
            return {}
        return self.leave(previous, used)

    def _charge(self, exports: Exports, most: Mapping[str, int]) -> Mapping[str, int]:
        exports.most = most
        exports.charged = exports.sizes()
        kept = {device: size for device, size in exports.charged.items() if size > 0}
        if kept:
            self._follow_always(exports)
        return kept

    def _follow_always(self, exports: Exports) -> None:
        self._left[exports.container].append(exports)
        self._wake.set()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look_always())

    async def _look_always(self) -> None:
        """Look at what each container left, every half second; who makes that slow, does so for himself."""
        while self._left:
            self._wake.clear()
            for container in {one.looked_at_with for one in self._all_left()}:
                self._begin_look(container)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _STEP)

    def _begin_look(self, container: str) -> asyncio.Task[None]:
        if container not in self._looks:
            self._looks[container] = asyncio.get_running_loop().create_task(self._look_at(container))
            self._looks[container].add_done_callback(lambda _: self._looks.pop(container))
        return self._looks[container]

    async def _look_at(self, container: str) -> None:
        some = self._left.get(container, ()) if container else self._all_left()
        left = [one for one in some if one.looked_at_with == container]
        try:
            await in_daemon_thread(partial(_forget_closed, left))
        except RuntimeError as error:  # no thread: it stays charged, and the next look may have one
            log.warning("what %s left is not looked at: %s", container or "containers", error)
            return
        for one in left:
            self._follow(one)
            self._log_once(one)
        self._bound_removed()

    def see_none(self, device: str) -> None:
        """Take it that no memory of a device is without a process: what nobody can tell of is not there."""
        for one in self._all_left():
            if one.doubt(device):
                self._follow(one)

    def _log_once(self, exports: Exports) -> None:
        """Say what is charged, when it was looked at for the first time."""
        if not exports.is_logged:
            exports.is_logged = True
            for device, size in (+exports.charged).items():
                log.info("%s is charged with %d bytes of %s: %s", exports.container, size, device, _WHY)

    def left_on(self, container: str, device: str) -> int:
        """Return the bytes of a device with which a container is charged for its ended processes left them."""
        return sum(one.charged[device] for one in self._left.get(container, ()))

    async def look(self, container: str) -> None:
        """Look at what a container left: what is closed by now is not in the way of its next process.

        A look that has begun may be past what was closed since, and does not know who ended since: one follows it.
        """
        if (begun := self._looks.get(container)) is not None:
            await asyncio.wait([begun])
        await asyncio.shield(self._begin_look(container))

    def _follow(self, exports: Exports) -> None:
        """Charge with no more than somebody has. Who is charged with less was removed, and perhaps made anew."""
        if exports.is_closed:
            return
        name, sizes = exports.container, exports.sizes()
        for device, size in [(device, exports.charged[device]) for device in exports.most]:
            account = self._driver.machine.account(name, device)
            now = account.charged if account is not None else 0
            exports.removed[device] = min(exports.removed[device] + max(size - now, 0), sizes[device])
            exports.charged[device] = left = min(size, sizes[device] - exports.removed[device], now)
            if (less := min(size, now) - left) > 0:
                self._driver.dispatch(e.UnleasedMemory(name, device, now - less))
        if not any(exports.charged.values()) and not any(exports.removed.values()):
            self._forget(exports)

    def _bound_removed(self) -> None:
        """Forget who left least of those that were removed, when there are too many copies."""
        removed = [one for one in self._all_left() if not one.looked_at_with]
        copies = sum(max(len(one.copies), 1) for one in removed)
        for one in sorted(removed, key=lambda one: one.removed.total()):
            if copies <= _MOST_REMOVED:
                return
            copies -= max(len(one.copies), 1)
            log.warning("%s left %d bytes behind, which show as of nobody now", one.container, one.removed.total())
            self._forget(one)

    def _forget(self, exports: Exports) -> None:
        self._left[exports.container].remove(exports)
        if not self._left[exports.container]:
            del self._left[exports.container]
        self._close(exports)

    def _all_left(self) -> list[Exports]:
        return list(chain.from_iterable(self._left.values()))

    def _close(self, exports: Exports) -> None:
        exports.is_closed = True
        exports.leave_room()
        self._tasks.start(in_daemon_thread(exports.close))

    # -- restarts of the scheduler ---------------------------------------------------------------------------

    def remember(self, process: Process, sizes: Mapping[str, int]) -> None:
        """Take up what a process told an earlier scheduler of, in bytes by device. It may connect again, or not."""
        self._earlier[process] = sizes

    def begin(self, session: Session, held: Mapping[str, int]) -> None:
        """Take what such a process has as open until it has told of all anew. `held`: what it uses, by device.

        Who holds nothing has executed another program, and has left what others have.
        """
        process = (session.container, session.pid, session.started)
        sizes = self._earlier.pop(process, {}) if self._earlier else {}
        if sizes and any(held.values()):
            self._begin(session.number, session.container).earlier = sizes
        elif sizes:
            self.restore(session.container, sizes, {})

    def end_recovery(self) -> None:
        """Charge with what those have left that did not connect again."""
        sums = defaultdict[str, Counter[str]](Counter)
        for (container, _pid, _started), sizes in self._earlier.items():
            sums[container].update(sizes)
        self._earlier.clear()
        for container, total in sums.items():
            self.restore(container, total, {})

    def restore(self, container: str, charged: Mapping[str, int], removed: Mapping[str, int]) -> None:
        """Charge with what processes left that an earlier scheduler knew of. In bytes by device.

        Nobody can tell any more what of it is closed: it is charged until samples show that nothing can be left.
        """
        total, kept = Counter(charged) + Counter(removed), Counter(removed)
        exports = Exports(container, most=total, charged=total - kept, removed=kept, earlier=total)
        for device, size in charged.items():
            account = self._driver.machine.account(container, device)
            if account is not None:
                self._driver.dispatch(e.UnleasedMemory(container, device, account.charged + size))
        self._follow_always(exports)
        self._follow(exports)

    def told(self) -> Mapping[int, Counter[str]]:
        """Return what living processes exported, in bytes by session and device."""
        return {number: exports.told() for number, exports in self._living.items()}

    def left(self) -> Mapping[str, tuple[Counter[str], Counter[str]]]:
        """Return what ended processes left, by container: in bytes by device, charged, and of removed volumes."""
        sums = dict[str, tuple[Counter[str], Counter[str]]]()
        for one in self._all_left():
            charged, removed = sums.setdefault(one.container, (Counter(), Counter()))
            charged.update(+one.charged)
            removed.update(+one.removed)
        return sums

    def charged(self, device: str) -> Counter[str]:
        """Return what containers are charged with on a device, in bytes."""
        sizes: Counter[str] = Counter()
        for one in self._all_left():
            sizes[one.container] += one.charged[device]
        return sizes

    def charged_of(self, container: str, device: str) -> Counter[int]:
        """Return the same of one container by the pids that its processes had; 0: it is not known."""
        sizes = Counter[int]()
        for one in self._left.get(container, ()):
            sizes[one.pid] += one.charged[device]
        return sizes

    def uncertain_of(self, container: str, device: str) -> int:
        """Return how many of these bytes may be gone, and nobody could tell."""
        return sum(one.uncertain(device) for one in self._left.get(container, ()))

    def stays(self, device: str) -> int:
        """Return the bytes of a device that ended processes left to others, and containers are charged with."""
        return sum(self.charged(device).values())

    def rows(self, device: str) -> tuple[Unlimited, ...]:
        """Return the same for administrators, by container, and what those left that were removed."""
        sums = sorted(self.left().items())
        charged = [(name, one[device], _WHY, True) for name, (one, _) in sums]
        removed = [(name, one[device], _WHY_REMOVED, False) for name, (_, one) in sums]
        rows = (row for row in charged + removed if row[1] > 0)
        return tuple(Unlimited(name, "", size, kept=why, is_charged=one) for name, size, why, one in rows)

    def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
