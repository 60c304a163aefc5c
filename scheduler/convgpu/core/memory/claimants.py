"""Safety over claimants: some containers never end, others claim as one.

The Banker's algorithm of `safety_check` regards each container by itself. Two kinds of containers make it stricter:
- the *backfilled*, which went past overdue allocations: nobody may be waiting for their ends while those wait, so their
  whole limits are set apart, as if the devices were smaller by them;
- *gangs*: their containers wait for each other, so none of them ends before all have their whole limits.
A state that is safe in this sense is safe in the other as well.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from convgpu.core.memory import bankers
from convgpu.core.memory.bankers import Claim, Sizes
from convgpu.core.memory.safety_check import SafetyCheck

Turn = tuple[float, int]  # of an allocation (WaitingAllocation.turn)


class Claimants:
    """Which holders are set apart, and which claim as one.

    Args:
        holders: the containers with a grant; the ledger's own.
        release: notes that on a container's devices others may be served.

    Attributes:
        gangs: gang of each container that has one.
    """

    def __init__(self, holders: Mapping[str, None], release: Callable[[str], None]) -> None:
        self._holders = holders
        self._release = release
        self._backfilled: dict[str, Turn] = {}  # by container, the last turn of those that it went past
        self._apart: list[str] = []  # those of them whose limits are set apart now
        self.gangs: dict[str, str] = {}

    @property
    def are_plain(self) -> bool:
        """Whether each container stands for itself and ends, so that plain safety is all there is to check."""
        return not self._apart and not self.gangs

    @property
    def has_backfilled(self) -> bool:
        """Whether any container went past overdue allocations, or is set apart."""
        return bool(self._backfilled or self._apart)

    def begin_holding(self, container: str, turn: Turn | None) -> None:
        """Note that a newcomer is about to be granted memory; `turn`: the last of the overdue that it goes past."""
        if turn is None:
            self._backfilled.pop(container, None)
        else:
            self._backfilled[container] = turn

    def set_apart(self, first: Turn | None) -> bool:
        """Set those apart that went past what still waits; `first`: the first turn of all that waits.

        Return whether they are others than before.
        """
        before, self._apart = self._apart, []
        if first is not None:
            self._apart = [n for n, turn in self._backfilled.items() if first <= turn and n in self._holders]
        return self._apart != before

    def forget_backfilled(self) -> None:
        """Prove nothing by claims that facts have changed. Who was refused for those may be served now."""
        self._backfilled.clear()
        for name in self._apart:
            self._release(name)
        self._apart = []

    def remove(self, container: str) -> None:
        """Forget a container."""
        self._backfilled.pop(container, None)
        self.gangs.pop(container, None)

    def is_apart(self, container: str) -> bool:
        """Return whether the limits of a container are set apart: not if it returned everything since they were."""
        return container in self._apart and container in self._holders

    def is_grant_safe(self, check: SafetyCheck, container: str, device: str, size: int) -> bool:
        """Return whether a grant leaves an order in which all holders end that are not set apart."""
        if self.are_plain:
            return True
        before = check.claim(container)
        granted, need = Counter(dict(before.granted)), Counter(dict(before.need))
        granted[device] += size
        need[device] -= size
        return self._left(check, self._apart, {container: _claim(granted, need)}) is not None

    def is_limit_safe(self, check: SafetyCheck, container: str, device: str, limit: int) -> bool:
        """Return the same for another limit of a holder that is not set apart."""
        claim = check.claim_with_limit(container, device, limit)
        return self.are_plain or self._left(check, self._apart, {container: claim}) is not None

    def can_all_end_beside(self, check: SafetyCheck, newcomers: Sequence[str]) -> bool:
        """Return whether all holders can end, even if the newcomers never do.

        The newcomers count as if they took their whole limits, and so do those that are set apart.
        """
        changed = {name: check.claim(name) for name in newcomers}
        return self._left(check, [*self._apart, *newcomers], changed) is not None

    def room_when_all_ended(self, check: SafetyCheck) -> dict[str, int]:
        """Return what will be free when all holders have ended but those set apart, which have their whole limits."""
        room = {device: size + check.usable[device] - check.free[device] for device, size in check.available.items()}
        for name in self._apart:
            if name not in self._holders:  # it returned everything since they were set apart
                continue
            claim = check.claim(name)
            for device, size in (*claim.granted, *claim.need):
                room[device] -= size
        return room

    def _left(self, check: SafetyCheck, apart: Sequence[str], changed: Mapping[str, Claim]) -> Mapping[str, int] | None:
        """Return what is free when all holders but `apart` have ended and those have their whole limits.

        None if one cannot end. `changed`: claims in place of those that containers have, or of newcomers.
        """
        free = dict(check.available)
        for name, claim in changed.items():
            _add(free, check.claim(name).granted, 1)
            _add(free, claim.granted, -1)
        for name in apart:
            if name in changed or name in self._holders:
                _add(free, (changed.get(name) or check.claim(name)).need, -1)
        others = self._others(check, apart, changed)
        return None if bankers.finish_feasible(free, others) else free

    def _others(self, check: SafetyCheck, apart: Sequence[str], changed: Mapping[str, Claim]) -> Sequence[Claim]:
        """Return the claims of those that are not set apart, about in the order in which they can end."""
        left_out = {*apart, *changed}
        added = [claim for name, claim in changed.items() if name not in apart]
        if not self.gangs:
            replaced = {id(check.claim(name)) for name in left_out}
            return [claim for claim in check.holder_claims() if id(claim) not in replaced] + added
        claims = {name: check.claim(name) for name in self._holders if name not in left_out}
        claims |= {name: claim for name, claim in changed.items() if name not in apart}
        return bankers.least_need_first(self._joint(claims, check.usable))

    def _joint(self, claims: Mapping[str, Claim], usable: Mapping[str, int]) -> list[Claim]:
        """Return the claims, those of each gang added up; a joint need is no more than what its devices have left."""
        gangs: dict[str, list[Claim]] = {}
        joint = []
        for name, claim in claims.items():
            if name in self.gangs:
                gangs.setdefault(self.gangs[name], []).append(claim)
            else:
                joint.append(claim)
        for members in gangs.values():
            granted, need = Counter[str](), Counter[str]()
            for claim in members:
                granted.update(dict(claim.granted))
                need.update(dict(claim.need))
            capped = {device: min(size, usable[device] - granted[device]) for device, size in need.items()}
            joint.append(_claim(granted, capped))
        return joint


def _add(free: dict[str, int], sizes: Sizes, sign: int) -> None:
    for device, size in sizes:
        free[device] += sign * size


def _claim(granted: Mapping[str, int], need: Mapping[str, int]) -> Claim:
    return Claim(tuple(granted.items()), tuple((device, size) for device, size in need.items() if size > 0))
