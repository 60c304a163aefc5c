"""Asks NVML at intervals what everybody really holds, and lets the book follow."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from convgpu.core import events as e
from convgpu.core.attribution import NOISE, Found, Look, Overuse, attribute, is_news, lasting
from convgpu.daemon.audit.capacity import Capacities
from convgpu.daemon.audit.container_resolver import ContainerResolver, Members
from convgpu.daemon.audit.terminate import end_connected, end_members
from convgpu.daemon.gpu.nvml import DeviceError, Devices
from convgpu.daemon.gpu.nvml_executor import NvmlExecutor
from convgpu.daemon.gpu.settling import LONGEST
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.storage.history import History
from convgpu.daemon.storage.store import Store
from convgpu.daemon.system.procfs import is_alive

log = logging.getLogger(__name__)

# Containers whose figures are written at one look.
_TURN: Final = 100
# Seconds between looks for a refused call. A thousand such calls are to leave time for everybody else's.
_STEP: Final = 0.1
OVERUSE: Final = ("warn", "stop")

Lease = dict[tuple[int, str], int]


@dataclass(frozen=True, slots=True)
class Rules:
    """Seconds between looks (0: never), what is done to a container above its limit, and after how many seconds."""

    interval: float
    overuse: str
    after: float


@dataclass(slots=True)
class Findings:
    """What the last look found: bytes by device and container, and health by device."""

    seen: dict[str, Mapping[str, int]] = field(default_factory=dict)
    health: dict[str, str] = field(default_factory=dict)

    def seen_of(self, container: str, device: str) -> int | None:
        """Return what NVML counts for a container, None when it was not asked or cannot tell."""
        return self.seen[device].get(container, 0) if device in self.seen else None


class Audit:
    """Looks until it is closed.

    Args:
        belonging: tells whose processes are whose.
        capacities: follow what is found.
    """

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        asking: NvmlExecutor,
        driver: MachineDriver,
        sessions: SessionRegistry,
        history: History,
        belonging: ContainerResolver,
        capacities: Capacities,
        store: Store,
        rules: Rules,
    ) -> None:
        self.findings = Findings()
        self._loop = asyncio.get_running_loop()
        self._asking = asking
        self._driver = driver
        self._sessions = sessions
        self._history = history
        self._belonging = belonging
        self._capacities = capacities
        self._store = store
        self._rules = rules
        self._overuse = Overuse(rules.after)
        self._before: dict[str, Found] = {}
        self._pids: dict[str, AbstractSet[int]] = {}  # that NVML named last, by device
        # The last look for a refusal, by device; bytes that the book has free, and whether there is memory of nobody.
        self._refused: dict[str, tuple[Look, int, bool]] = {}
        self._charged: dict[str, set[str]] = defaultdict(set)  # containers, by device
        self._holdings: dict[tuple[str, str], tuple[int, int]] = {}
        self._turn: list[str] = []
        self._stopped: set[str] = set()
        self._task = self._loop.create_task(self._run()) if rules.interval else None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._rules.interval)
            try:
                await self.look()
            except Exception:  # a fault here must not end the scheduler, and not the audit either
                log.exception("the audit failed; the next one is in %g s", self._rules.interval)

    async def look(self, *, at_once: bool = False) -> None:
        """Look once at all devices and let the book follow; `at_once`: without a second look."""
        if self._driver.machine.recovering and not at_once:
            return
        known = {pid for pids in self._pids.values() for pid in pids}
        before = self._leases(known)
        noisy = self._settling()
        uuids = [one.uuid for one in self._capacities.rows]
        looks = await asyncio.gather(*(self._look_at(uuid) for uuid in uuids))
        noisy |= self._settling()
        members = self._belonging.members()
        self._pids = {look.device: (look.held or {}).keys() for look in looks}
        leases = self._leases({pid for pids in self._pids.values() for pid in pids})
        leases |= {key: max(size, leases.get(key, 0)) for key, size in before.items()}
        over: set[tuple[str, str]] = set()
        for look in looks:
            self._note_health(look)
            if look.error is None:
                self._capacities.see(look)
            if look.held is not None:
                found = self._attribute(look, leases, members)
                over |= self._book(look.device, found, quiet=look.device not in noisy, at_once=at_once)
        self._judge(over, members)
        self._keep_holdings()

    async def is_outside(self, device: str, size: int) -> bool:
        """Look at once at a device whose driver refused `size` bytes that were granted: is memory outside the reason?

        Then, or if there is room by now, they can be asked for again: the capacity follows. Else the book has room that
        the driver has not, and waiting would not help. Memory that is in no book yet is waited for here: it comes back
        (an ended program's), or the audit enters it, as memory outside or as a container's beyond its leases.
        """
        if not self._rules.interval:
            return False  # nobody would see that the memory has come back
        deadline = self._loop.time() + LONGEST
        try:
            while not self._driver.machine.recovering:
                verdict = self._judge_refusal(await self._look_at(device), size)
                if verdict is not None:
                    return verdict
                if self._loop.time() > deadline:
                    return False
                await asyncio.sleep(_STEP)
        except Exception:  # as in _run: the process must have its answer
            log.exception("whether memory outside is in the way is not known")
            return False
        return True  # it waits for the end of recovery

    def _judge_refusal(self, look: Look, size: int) -> bool | None:
        """Return what a look says of refused bytes; None while there is memory that may be somebody's or not."""
        device = look.device
        if look.error is not None or look.held is None:
            return False
        if look.total - look.used >= size:
            return True
        last = self._refused.get(device)
        if last is None or last[0] is not look:  # all who ask at a time are given the same look
            found = self._attribute(look, self._leases(look.held.keys()), self._belonging.members())
            self._capacities.follow(device, found, None, quiet=False)
            ledger = self._driver.machine.ledger
            charged = sum(account[device].charged for account in ledger.accounts.values() if device in account)
            free = ledger.capacity[device] - self._sessions.used_on(device) - charged
            is_more = self._capacities.is_more(device, found) or sum(found.beyond.values()) > charged + NOISE
            last = self._refused[device] = (look, free, is_more)
        _, free, is_more = last
        if size > free:
            return True
        return None if is_more else False

    async def _look_at(self, uuid: str) -> Look:
        try:
            return await self._asking.ask(uuid, look_at)
        except DeviceError as error:
            return Look(uuid, error=str(error))

    def _attribute(self, look: Look, leases: Lease, members: Members) -> Found:
        """Say who holds what; a container on a device that it has no limit on is as foreign there as anybody."""
        held, accounts = look.held or {}, self._driver.machine.ledger.accounts
        owners = {pid: members.volume_of(pid) for pid in held}
        # One that ended since NVML was asked has no owner any more, and is no foreigner; hence in this order.
        held = {pid: size for pid, size in held.items() if owners[pid] or is_alive(pid)}
        ours = {pid: name for pid, name in owners.items() if name and look.device in accounts.get(name, ())}
        lease = {pid: leases.get((pid, look.device), 0) for pid in ours if pid in members.by_pid}
        return attribute(look.used, held, lease, ours.get, self._managed(look.device, held))

    def _managed(self, device: str, held: Mapping[int, int]) -> int:
        """Return what processes with a session use beyond what the driver lists for them."""
        used: dict[int, int] = defaultdict(int)
        for session in self._sessions.by_number.values():
            if session.pid in held and device in session.rows:
                used[session.pid] += self._sessions.used_by(session, device)
        return sum(max(size - held[pid], 0) for pid, size in used.items())

    def _settling(self) -> set[str]:
        return {one.uuid for one in self._capacities.rows if self._driver.machine.settling(one.uuid)}

    def _leases(self, pids: AbstractSet[int]) -> Lease:
        """Return what is leased to these processes; of a thousand that are connected few use memory."""
        accounts = self._driver.machine.ledger.accounts
        return {
            (session.pid, uuid): accounts[session.container][uuid].leases.get(session.number, 0)
            for session in self._sessions.by_number.values()
            if session.pid in pids
            for uuid in session.rows
        }

    def _names_all(self, device: str) -> bool:
        """Does NVML name every process of ours that uses the device?"""
        return all(
            session.pid in self._pids[device]
            for session in self._sessions.by_number.values()
            if device in session.rows and self._sessions.used_by(session, device)
        )

    def _note_health(self, look: Look) -> None:
        """Say what is wrong, once; the second time it is no accident, and nothing more is granted there."""
        health, before = look.error or "ok", self.findings.health.get(look.device, "ok")
        if health != before:
            log.log(logging.ERROR if look.error else logging.INFO, "device %s: %s", look.device, health)
        elif look.error is not None:
            self._capacities.lose(look.device, look.error)
        self.findings.health[look.device] = health

    def _book(self, device: str, found: Found, *, quiet: bool, at_once: bool) -> set[tuple[str, str]]:
        """Charge what lies beyond leases, and return who is above the limit."""
        before = self._before.get(device)
        self._before[device] = found
        self.findings.seen[device] = found.seen
        # Memory that nobody holds is only looked into when there is more of it than before.
        quiet = quiet and (not self._capacities.is_more(device, found) or self._names_all(device))
        self._capacities.follow(device, found, before, quiet=quiet)
        beyond: Mapping[str, int] = lasting(before.beyond, found.beyond) if before is not None else {}
        if at_once:
            beyond = found.beyond
        accounts = self._driver.machine.ledger.accounts
        for container in (self._charged[device] | beyond.keys()) & accounts.keys():
            account, charge = accounts[container].get(device), beyond.get(container, 0)
            if account is not None and is_news(account.charged, charge):
                self._driver.dispatch(e.UnleasedMemory(container, device, charge))
        self._charged[device] = set(beyond)
        limits = {name: accounts[name][device].limit for name in found.seen if name in accounts}
        return {
            (name, device) for name, limit in limits.items() if found.seen[name] > limit + found.tolerated.get(name, 0)
        }

    def _judge(self, over: set[tuple[str, str]], members: Members) -> None:
        fresh, expired = self._overuse.look(over, self._loop.time())
        for container, device in sorted(fresh):
            size = self.findings.seen_of(container, device)
            log.warning("container %s holds %d bytes of %s, more than its limit", container, size, device)
            self._history.add("overused", container, "audit", uuid=device, size=size)
        if self._rules.overuse != "stop":
            return
        for container in sorted(expired):
            if container not in self._stopped:
                log.warning("container %s stayed above its limit for %g s and is ended", container, self._rules.after)
                self._history.add("stopped", container, "audit", reason="overuse")
            end_connected(session.process for session in self._sessions.of(container))
            self._loop.run_in_executor(None, end_members, members, container)
        self._stopped = expired

    def _keep_holdings(self) -> None:
        """Write what some containers hold, for people who look into the database; the others have their turn next."""
        ledger = self._driver.machine.ledger
        if not self._turn:
            self._turn = list({*ledger.holders, *(name for name, _ in self._holdings)})
        turn, self._turn = self._turn[:_TURN], self._turn[_TURN:]
        for name in turn:
            for device, account in ledger.accounts.get(name, {}).items():
                key, before = (name, device), self._holdings.pop((name, device), (0, 0))
                figures = (account.grant, self._sessions.used(name, device) + account.charged if account.held else 0)
                if figures != before:
                    self._store.set_holding(name, device, *figures)
                if any(figures):
                    self._holdings[key] = figures

    def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()


def look_at(devices: Devices, uuid: str) -> Look:
    """Ask NVML about one device; a driver that cannot tell who uses what is no reason to complain."""
    try:
        devices.check(uuid)
        total, used = devices.total(uuid), devices.used(uuid)
    except DeviceError as error:
        return Look(uuid, error=str(error))
    try:
        held = devices.used_by(uuid)
    except DeviceError:
        return Look(uuid, total, used)
    return Look(uuid, total, used, {pid: size for pid, size in held.items() if is_alive(pid)})
