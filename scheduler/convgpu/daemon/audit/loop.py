"""The audit, at random: samples all devices, compares them with the ledger, and lets the ledger follow."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from random import SystemRandom

from convgpu.core import events as e
from convgpu.core.audit.attribution import Attribution, MemorySample, is_significant, lasting
from convgpu.core.audit.claimed import ClaimedOveruse
from convgpu.core.audit.overuse import OveruseRow, TakenReserves, excess_of, next_look
from convgpu.core.memory.account import AccountView
from convgpu.core.memory.snapshot import LedgerSnapshot
from convgpu.daemon.audit.attributor import Attributor, Leases
from convgpu.daemon.audit.capacity import Capacities
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.enforcement import Enforcement, Findings
from convgpu.daemon.audit.report import AuditReport
from convgpu.daemon.audit.sampling import DeviceSampler
from convgpu.daemon.gpu.settling import MAX_SETTLING_TIME
from convgpu.daemon.machine_driver import MachineDriver

log = logging.getLogger(__name__)


class Audit:
    """Compares what NVML counts with the ledger. `start` lets it run at intervals until it is closed.

    Args:
        sampler: asks NVML.
        driver: of the machine, which learns of unleased memory.
        attributor: finds the owners of memory.
        capacities: follow what is found.
        enforcement: acts on containers above their limit, and on those that have none.
        followers: are called after each audit.
        report: gets what is found.
    """

    def __init__(
        self,
        sampler: DeviceSampler,
        driver: MachineDriver,
        attributor: Attributor,
        capacities: Capacities,
        enforcement: Enforcement,
        followers: Sequence[Callable[[], None]],
        report: AuditReport,
    ) -> None:
        self._sampler = sampler
        self._driver = driver
        self._attributor = attributor
        self._capacities = capacities
        self._enforcement = enforcement
        self._followers = followers
        self._report = report
        self._outliving = capacities.outliving
        self._before: dict[str, Attribution] = {}
        self._pids: dict[str, AbstractSet[int]] = {}  # in the last sample of each device
        self._charged: dict[str, set[str]] = defaultdict(set)  # containers with unleased memory, by device
        self._taken = TakenReserves()
        self._claimed = ClaimedOveruse()
        self._claims: dict[str, tuple[float, Counter[str]]] = {}  # by device, when it was looked last
        self._unsettled_since: dict[str, float] = {}  # of devices where something settled at each audit
        self._found = Findings()  # in the last audit
        self._random = SystemRandom()
        self._task: asyncio.Task[None] | None = None

    def start(self, interval: float) -> None:
        """Audit from now on, at random, at least every `interval` seconds."""
        self._task = asyncio.get_running_loop().create_task(self._run(interval))

    async def _run(self, interval: float) -> None:
        while True:
            try:
                await self._wait(next_look(interval, self._random.random()))
                if not self._driver.machine.recovering:
                    await self.audit()
            except Exception:  # a fault here must neither end the scheduler nor the audit
                log.exception("the audit failed; the next one comes within %g s", interval)

    async def _wait(self, seconds: float) -> None:
        """Wait for the next audit; look meanwhile at devices whose budget for overuse is spent."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while (left := until - clock()) > 0:
            often = self._enforcement.pause
            pause = next_look(often, self._random.random()) if often < left else left
            await asyncio.sleep(pause)
            if pause < left:
                await self._look()

    async def audit(self, *, at_once: bool = False) -> None:
        """Audit all devices once. `at_once`: unleased memory is charged without a second sample that confirms it."""
        unsettled = self._unsettled()
        samples, leases = await self.sample({row.uuid for row in self._capacities.rows})
        # What follows is of one moment: nothing awaits any more, until containers without a limit are looked for.
        unsettled |= self._unsettled()
        index, ledger = self._attributor.index(), self._driver.machine.snapshot()
        takers = set() if at_once else self._find_takers(ledger)  # what is there before the first grant took nothing
        over: set[OveruseRow] = set()
        forgers: set[str] = set()
        for sample in samples:
            self._note_health(sample)
            if sample.error is None:
                self._capacities.measure(sample)
            self._see(sample, index)
            if sample.held is not None:
                attribution = self._attributor.attribute(sample, leases, index)
                is_settled = self._is_settled(sample.device, unsettled)
                self._follow(sample.device, attribution, is_settled=is_settled)
                forged = self._attributor.forgers(sample.device)
                forgers |= forged
                unleased = self._find_unleased(sample.device, attribution, forged, at_once=at_once)
                accounts = ledger.on(sample.device)
                self._charge(sample.device, unleased, accounts)
                over |= self._find_overuse(sample, index, attribution, accounts)
                self._before[sample.device] = attribution
        for follow in self._followers:
            follow()
        self._found = Findings(over, takers, forgers)
        await self._enforcement.enforce(self._found, index)

    async def _look(self) -> None:
        """See who is above a limit now on devices whose budget for that is spent; nothing else follows from it."""
        spent = self._enforcement.spent
        samples, leases = await self.sample(spent)
        index, ledger = self._attributor.index(), self._driver.machine.snapshot()
        over = {row for row in self._found.over if row[1] not in spent}
        for sample in samples:
            self._see(sample, index)
            attribution = self._attributor.attribute(sample, leases, index)
            over |= self._find_overuse(sample, index, attribution, ledger.on(sample.device))
        self._found = replace(self._found, over=over)
        await self._enforcement.enforce(self._found, index)

    def _see(self, sample: MemorySample, index: ProcessIndex) -> None:
        """Show the enforcement who has no limit, and what was left behind."""
        self._attributor.note_dead(sample, index)
        self._claims[sample.device] = sample.answered, self._attributor.claimed(sample, index)[0]
        found, left = self._attributor.without_limit(sample, index), self._attributor.left_behind(sample, index)
        self._enforcement.see(sample.device, found, left)

    async def sample(self, devices: AbstractSet[str]) -> tuple[list[MemorySample], Leases]:
        """Return samples of devices, and what processes could have on them meanwhile."""
        before = self._attributor.leases({pid for pids in self._pids.values() for pid in pids})
        rows = [row.uuid for row in self._capacities.rows if row.uuid in devices]
        samples = await self._attributor.learn(await self._sampler.take(rows, self._attributor.index))
        self._pids |= {sample.device: (sample.held or {}).keys() for sample in samples}
        now = self._attributor.leases({pid for pids in self._pids.values() for pid in pids})
        return samples, now | {key: max(size, now.get(key, 0)) for key, size in before.items()}

    def _unsettled(self) -> set[str]:
        """Return the devices on which memory of ended processes settles."""
        return {row.uuid for row in self._capacities.rows if self._driver.machine.settling(row.uuid)}

    def _is_settled(self, device: str, unsettled: AbstractSet[str]) -> bool:
        """Say whether memory without an owner stays.

        What settles, does so for ten seconds at most. Then it is no matter that more does: who ends one process after
        another would keep what is there from being seen.
        """
        now = asyncio.get_running_loop().time()
        if device not in unsettled:
            self._unsettled_since.pop(device, None)
            return True
        return now - self._unsettled_since.setdefault(device, now) > MAX_SETTLING_TIME

    def _note_health(self, sample: MemorySample) -> None:
        """Log a change of a device's health once; at the second error in a row nothing more is granted there."""
        health, before = sample.error or "ok", self._report.health.get(sample.device, "ok")
        if health != before:
            log.log(logging.ERROR if sample.error else logging.INFO, "device %s: %s", sample.device, health)
        elif sample.error is not None:
            self._capacities.lose(sample.device, sample.error)
        self._report.health[sample.device] = health

    def _follow(self, device: str, attribution: Attribution, *, is_settled: bool) -> None:
        """Let the capacity follow an attribution."""
        self._report.seen[device] = attribution.seen
        # Whose memory without an owner is only matters when there is more of it than before.
        if is_settled and self._capacities.is_more(device, attribution):
            is_settled = self._attributor.are_all_listed(device, self._pids[device])
        before = self._before.get(device)
        self._capacities.follow(device, attribution, before, is_settled=is_settled)
        if is_settled and self._capacities.is_all_held(device, attribution, before):
            self._outliving.see_none(device)
        lasting_size = min(attribution.unattributed, before.unattributed) if before is not None and is_settled else 0
        own = self._capacities.least[device]
        self._enforcement.see_unlisted(device, max(lasting_size - own, 0))
        self._attributor.claims.see_unlisted(device, max(lasting_size - own, 0), own)

    def _find_unleased(
        self, device: str, attribution: Attribution, forgers: AbstractSet[str], *, at_once: bool
    ) -> Mapping[str, int]:
        """Return the unleased memory of containers: what this sample shows, or what the one before confirms."""
        if at_once:
            return attribution.unleased
        before = self._before.get(device)
        confirmed = lasting(before.unleased, attribution.unleased) if before is not None else {}
        return confirmed | {name: size for name, size in attribution.unleased.items() if name in forgers}

    def _find_overuse(
        self,
        sample: MemorySample,
        index: ProcessIndex,
        attribution: Attribution,
        accounts: Mapping[str, AccountView],
    ) -> set[OveruseRow]:
        """Return the (container, device) that hold more than their limit and what is tolerated, or say that they do.

        What its hook accounts for, what its ended processes left to others, and what it is charged with beside that, is
        kept from others together, whether or not it is there: a program that freed past the hook kept twice its limit
        from them. What was left may be listed as well, for the dead process while a child of it has the driver open, or
        for who imported it; or may be gone and nobody tells: that counts no more than there is beside what is listed.
        There may be memory of others that is nobody's, so what is listed for the dead who exported it is taken for it.
        Who would not be above it without what a search of the dead found, is so when the next search finds it, too.
        """
        device, over, doubtful = sample.device, dict[str, int](), dict[str, int]()
        claims, of_dead = self._attributor.claimed(sample, index)
        listed = self._attributor.left_and_listed(sample, index)
        left = self._outliving.charged(device)
        least = {name: max(left[name] - attribution.imported.get(name, 0) - listed[name], 0) for name in left}
        # Among what is managed, and among what is held but for what counts as imported.
        told = sum(sample.imported.values())
        counted = max(left.total() - told - listed.total(), 0) + told - sum(attribution.imported.values())
        beside = attribution.unheld - self._capacities.least[device] - attribution.managed + counted
        lacks = max(sum(least.values()) - beside, 0)
        for name, account in accounts.items():
            # What was charged may be gone by now.
            past = min(account.charged - left[name], attribution.unleased.get(name, 0))
            kept = max(least.get(name, 0) - min(lacks, self._outliving.uncertain_of(name, device)), 0)
            claimed = self._attributor.used(name, device) + kept + past if past > 0 else 0
            size = max(attribution.seen.get(name, 0), claimed)
            excess = excess_of(size, account.limit, attribution.tolerated.get(name, 0))
            if excess > 0:
                over[name] = size
                doubtful |= {name: of_dead[name] + excess} if excess <= claims[name] else {}
        certain = {(name, device) for name in over if name not in doubtful}
        rows = certain | self._claimed.judge(device, doubtful, sample.answered, self._attributor.claims.await_found)
        self._report.over[device] = {name: over.get(name, attribution.seen.get(name, 0)) for name, _ in rows}
        return rows

    def _find_takers(self, ledger: LedgerSnapshot) -> set[OveruseRow]:
        """Return the (container, device) that took, past the hook, what others were granted or have reserved."""
        takers: set[OveruseRow] = set()
        for device in ledger.devices:
            left = self._outliving.charged(device)  # it was leased before
            accounts = ledger.on(device).items()
            charges = ((name, max(one.charged - left[name], self._found_again(device, name))) for name, one in accounts)
            charged = {name: size for name, size in charges if size > 0}
            lacks = self._driver.machine.is_reserved_taken(device)
            before = self._before.get(device)
            tolerated = before.tolerated if before is not None else {}
            kept = self._driver.machine.may_be_kept(device)
            takers |= {(name, device) for name in self._taken.find(device, charged, tolerated, kept, lacks=lacks)}
        return takers

    def _found_again(self, device: str, name: str) -> int:
        """Return what a search found of a container in the last look, and a later one, too.

        Whoever asks for memory has it counted again, and who hands it from one dead process to the next is charged
        with none of it then.
        """
        at, claims = self._claims.get(device, (0.0, Counter[str]()))
        return min(claims[name], self._attributor.claims.found_since(name, device, at) or 0) if claims[name] else 0

    def _charge(self, device: str, unleased: Mapping[str, int], accounts: Mapping[str, AccountView]) -> None:
        """Charge containers with their unleased memory, or with none any more."""
        left = self._outliving.charged(device)
        for container in (self._charged[device] | unleased.keys()) & accounts.keys():
            size = unleased.get(container, 0) + left.get(container, 0)
            if is_significant(accounts[container].charged, size):
                self._driver.dispatch(e.UnleasedMemory(container, device, size))
        self._charged[device] = set(unleased)

    def close(self) -> None:
        """Stop the audit."""
        if self._task is not None:
            self._task.cancel()
