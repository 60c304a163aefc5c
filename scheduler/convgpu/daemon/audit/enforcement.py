"""Decides when containers are ended that hold more than they may: all of a device have one budget of time for that."""

import asyncio
import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from convgpu.core.audit.attribution import Kept
from convgpu.core.audit.overuse import OveruseBudget, OveruseRow
from convgpu.daemon.audit.attributor import Unlimited
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.keepers import Keepers
from convgpu.daemon.audit.overuse import OveruseEnforcer, OveruseRules
from convgpu.daemon.audit.unlimited import UnlimitedContainers


@dataclass(frozen=True, slots=True)
class Findings:
    """What a look found, as (container, device) unless said otherwise.

    Attributes:
        over: above its limit.
        takers: took, past the hook, what others were granted or have reserved.
        forgers: containers that are given no time above their limit.
    """

    over: AbstractSet[OveruseRow] = frozenset()
    takers: AbstractSet[OveruseRow] = frozenset()
    forgers: AbstractSet[str] = frozenset()


class Enforcement:
    """Lets others act on whoever has used too much for too long.

    Args:
        overuse: acts on containers above their limit.
        unlimited: acts on containers that have none.
        keepers: names who keeps what ended containers held.
        rules: say whether anybody is ended, and after how long.
    """

    def __init__(
        self, overuse: OveruseEnforcer, unlimited: UnlimitedContainers, keepers: Keepers, rules: OveruseRules
    ) -> None:
        self._overuse = overuse
        self._unlimited = unlimited
        self._keepers = keepers
        self._rules = rules
        self._budget = OveruseBudget(rules.after)
        self._stops = False

    def see(self, device: str, found: Sequence[Unlimited], left: Sequence[Kept]) -> None:
        """Take what a sample of a device shows: containers without a limit, and what ended ones left behind."""
        self._keepers.see(device, left)
        self._unlimited.see(device, found)

    def see_unlisted(self, device: str, size: int) -> None:
        """Take how many bytes of a device are in use for certain, and the driver lists nobody with them."""
        self._keepers.see_unlisted(device, size)

    async def enforce(self, found: Findings, index: ProcessIndex) -> None:
        """Judge by what a look found; `index`: of processes, as of then."""
        self._keepers.look(index)
        unpermitted, unjudged = await self._unlimited.judged(index)
        self._stops = self._rules.stops()
        if not self._stops:
            unpermitted, unjudged = set(), set()
        limited = found.over | found.takers
        now = asyncio.get_running_loop().time()
        # Who cannot end is told again, and takes none of the time of others.
        dying = {row for row in limited if self._stops and self._overuse.outlives(row[0])}
        fresh, due = self._budget.update((limited | unpermitted) - dying, now, unjudged, index.by_id)
        due |= dying
        self._overuse.tell(fresh & limited, found.over)
        self._unlimited.tell(fresh & unpermitted)
        expired = {name for name, _ in due & limited} | {name for name, _ in found.over if name in found.forgers}
        self._overuse.stop(expired if self._stops else frozenset(), found.over, index, now)
        self._unlimited.stop({own for own, _ in due & unpermitted}, index, now)

    @property
    def spent(self) -> set[str]:
        """The devices whose budget is spent."""
        return self._budget.spent

    @property
    def pause(self) -> float:
        """Seconds until devices whose budget is spent should be looked at again; infinite without any."""
        return self._budget.pause if self._stops else math.inf
