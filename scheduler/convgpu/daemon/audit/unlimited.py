"""Acts on containers without a limit, and programs of the host's, that use a device: ends what nothing permits."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final

from convgpu.core.audit.overuse import OveruseRow, Spells
from convgpu.daemon.audit.attributor import Unlimited
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.ends.survivors import Ender
from convgpu.daemon.audit.ends.terminate import Order
from convgpu.daemon.audit.overuse import OveruseRules
from convgpu.daemon.audit.report import AuditReport
from convgpu.daemon.storage.history import History
from convgpu.daemon.system.processes.daemon_threads import in_daemon_thread
from convgpu.daemon.system.procfs import processes, start_time
from convgpu.protocol import records
from convgpu.protocol.event_kinds import EventKind
from convgpu.protocol.requests import UnlimitedVerdict

log = logging.getLogger(__name__)

_FOUND: Final = "container %s holds %d bytes of %s, where it has no limit: give it a ConvGPU volume (convgpu run)"
_WARNING: Final = (
    "container %s uses %s without a limit, nothing permits it, and it is ended in %g s, or at once if others had "
    "that time there: start it with convgpu run, or permit its image in the rules of the site (docs/authorization.md)"
)
_STOPPED: Final = "container %s uses a GPU without a limit, and is ended: containers of its GPU did so for %g s"
_HOST_WARNING: Final = (
    "the host's program %s holds memory of that device, which its user may not open, and is ended in %g s, or at once "
    "if others had that time there (docs/authorization.md, Programs of the host)"
)
_HOST_STOPPED: Final = "the host's %s holds memory of a GPU that its user may not open, and is ended"
# Seconds for which a verdict stays that is about a container without memory now.
_REMEMBERED: Final = 60.0
# Seconds for which a container counts of which the plugin has not said yet whether it is permitted.
_UNJUDGED: Final = 5.0


class UnlimitedContainers:
    """Names each such container once, and ends those of which the plugin says that nothing permits them.

    Who is permitted, only the plugin knows: it asks for what was seen and judges it. Without a verdict, and with one
    about an earlier start of the container, nobody is ended.
    """

    def __init__(self, history: History, report: AuditReport, rules: OveruseRules, ender: Ender) -> None:
        self._history = history
        self._report = report
        self._rules = rules
        self._ender = ender
        self._found: dict[str, Sequence[Unlimited]] = {}  # by device
        self._starts: dict[str, tuple[AbstractSet[int], int]] = {}  # pids when it was looked for, and the first start
        self._verdicts: dict[str, UnlimitedVerdict] = {}
        self._seen: dict[str, tuple[float, float]] = {}  # when each was seen first, and last
        self._ended = Spells()

    def see(self, device: str, found: Sequence[Unlimited]) -> None:
        """Take what a sample of a device shows."""
        told = {one.name for one in self._found.get(device, ())}
        # Where nobody would be ended, what the host runs is nobody's concern.
        stops = self._rules.stops()
        found = [one for one in found if stops or not one.pid]
        for one in found:
            if one.name not in told and not one.pid:
                log.warning(_FOUND, one.name, one.size, device)
        self._found[device] = found

    def judge(self, verdicts: Iterable[UnlimitedVerdict]) -> None:
        """Take what the plugin says of containers; what it says late, of a start that is over, takes no other back."""
        for verdict in verdicts:
            _, started = self._starts.get(verdict.id, ((), None))
            if verdict.started != started or self._verdicts.get(verdict.id) == verdict:
                continue
            self._verdicts[verdict.id] = verdict
            if verdict.kept:
                log.info("%s, which has no limit, is not ended: %s", verdict.id, verdict.kept)

    async def judged(self, index: ProcessIndex) -> tuple[set[OveruseRow], set[str]]:
        """Return the (id, device) that nothing permits, and devices that somebody uses who is not judged yet."""
        rows = [(device, one) for device, found in self._found.items() for one in found if one.id]
        pids: dict[str, AbstractSet[int]] = {}
        for _, one in rows:
            pids[one.id] = pids.get(one.id, frozenset()) | one.pids
        hosts = {one.id: (one.pids, start_time(one.pid)) for _, one in rows if one.pid}
        await self._look_for_starts({own: pids[own] for own in pids.keys() - hosts.keys()}, index)
        self._starts |= hosts
        now = asyncio.get_running_loop().time()
        self._seen = {own: at for own, at in self._seen.items() if now - at[1] < _REMEMBERED}
        self._seen |= {own: (self._seen.get(own, (now, now))[0], now) for own in pids}
        self._verdicts = {own: verdict for own, verdict in self._verdicts.items() if own in self._seen}
        self._report.unlimited = {device: tuple(map(self._record, found)) for device, found in self._found.items()}
        unjudged = {
            device
            for device, one in rows
            if not one.pid
            and self._kept(one.id) is None
            and now - self._seen[one.id][0] < min(_UNJUDGED, self._rules.after)
        }
        return {(one.id, device) for device, one in rows if self._kept(one.id) == ""}, unjudged

    def tell(self, fresh: AbstractSet[OveruseRow]) -> None:
        """Say of which (id, device) it is known since now that nothing permits it."""
        hosts = {one.id for found in self._found.values() for one in found if one.pid}
        for own, device in sorted(fresh):
            if own in hosts:
                log.warning(_HOST_WARNING, own, self._rules.after)
            else:
                log.warning(_WARNING, own, device, self._rules.after)

    def stop(self, due: AbstractSet[str], index: ProcessIndex, now: float) -> None:
        """End containers, by their ids; `now`: seconds on any clock."""
        fresh = self._ended.begun(due, now)
        seen = {one.id: one for found in self._found.values() for one in found}
        for own in sorted(due):
            if pid := seen[own].pid:
                log.warning(_HOST_STOPPED, own)
                is_still = partial(_is_still, index, self._starts[own][1])
                self._ender.end(f"the host's {own}", Order(is_still, index.container_of, partial(_only, pid)))
                continue
            if own in fresh:
                log.warning(_STOPPED, own, self._rules.after)
                self._history.add(EventKind.STOPPED, seen[own].name, "audit", reason="unlimited")
            self._ender.end(f"container {own}", Order(partial(_is_in, index, own), index.container_of))

    async def _look_for_starts(self, pids: Mapping[str, AbstractSet[int]], index: ProcessIndex) -> None:
        """Learn when containers started, where other processes of them use devices than before."""
        self._starts = {own: known for own, known in self._starts.items() if known[0] == pids.get(own)}
        fresh = pids.keys() - self._starts.keys()
        if fresh:
            starts = await in_daemon_thread(lambda: _first_starts(fresh, index))
            self._starts |= {own: (pids[own], start) for own, start in starts.items()}

    def _record(self, one: Unlimited) -> records.Unlimited:
        _, started = self._starts.get(one.id, ((), 0))
        return records.Unlimited(one.name, one.id, one.size, started, self._kept(one.id), one.pid)

    def _kept(self, own: str) -> str | None:
        """Return why a container is not ended; empty: it may be; None: nobody has judged this start of it."""
        verdict, known = self._verdicts.get(own), self._starts.get(own)
        return verdict.kept if verdict and known and verdict.started == known[1] else None


def _first_starts(ids: AbstractSet[str], index: ProcessIndex) -> dict[str, int]:
    """Return when the oldest process of each container started, in clock ticks since boot; reads all of /proc."""
    starts: dict[str, int] = {}
    for pid in processes():
        own = index.container_of(pid)
        if own in ids and own is not None and (start := start_time(pid)):
            starts[own] = min(start, starts.get(own, start))
    return starts


def _only(pid: int) -> list[int]:
    return [pid]


def _is_in(index: ProcessIndex, container: str, pid: int) -> bool:
    return index.container_of(pid) == container


def _is_still(index: ProcessIndex, started: int, pid: int) -> bool:
    """Say whether a process of the host's is the one that was judged."""
    return index.container_of(pid) is None and start_time(pid) == started
