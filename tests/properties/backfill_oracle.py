"""The theorem of backfill, checked by trying everything instead of by the scheduler's own proofs."""

from collections.abc import Callable, Mapping
from itertools import combinations

from convgpu.core import events as e
from convgpu.core.memory.ledger import Ledger
from convgpu.policies.memory import WaitingAllocation

# Facts that end a proof; so does a limit that is raised or a container that is opened anew.
FACTS = (
    e.CapacityChanged,
    e.UnleasedMemory,
    e.SessionStarted,
    e.SessionReconnected,
    e.LimitsChanged,
    e.LimitsSet,
    e.TermsChanged,
)
MOST_HOLDERS = 8  # of which all subsets are tried


class BackfillOracle:
    """Newcomers that went past overdue requests. None of them may be waited for (docs/policies.md, Backfill)."""

    def __init__(self, ledger: Ledger, required: Callable[[WaitingAllocation], Mapping[str, int]]) -> None:
        self.accepted = 0  # requests, by the present event
        self._required = required
        self._ledger = ledger
        self._passed: dict[str, set[int]] = {}
        self._new: set[str] = set()

    def passed(self, container: str, request: int) -> None:
        """Take notice of a newcomer that was served before an overdue request."""
        self._passed.setdefault(container, set()).add(request)
        self._new.add(container)

    def check(self, event: e.Event, waiting: Mapping[int, WaitingAllocation]) -> None:
        """Check what is true after an event: nobody waits for those that went past."""
        if isinstance(event, FACTS) or self._ledger.targets:
            self._passed.clear()
        holders = self._ledger.holders
        self._passed = {
            name: {request for request in requests if request in waiting}
            for name, requests in self._passed.items()
            if name in holders and any(request in waiting for request in requests)
        }
        if self._passed:
            requests = set().union(*self._passed.values())
            self._check_bound({waiting[request].container for request in requests})
        if self.accepted == 1:
            for name in self._new & self._passed.keys():
                for request in self._passed[name]:
                    self._check_ends(name, waiting[request])
        self.accepted = 0
        self._new.clear()

    def _claim(self, name: str, device: str) -> int:
        account = self._ledger.accounts[name].get(device)
        return min(account.limit, self._ledger.usable[device]) if account else 0

    def _grant(self, name: str, device: str) -> int:
        account = self._ledger.accounts[name].get(device)
        return account.grant if account else 0

    def _check_bound(self, waiting: set[str]) -> None:
        """All others can end, and those that were passed can get their limits, if the backfilled never end."""
        work = dict(self._ledger.usable)
        others = [name for name in self._ledger.holders if name not in self._passed]
        for device in work:
            work[device] -= sum(self._claim(name, device) for name in self._passed)
            work[device] -= sum(self._grant(name, device) for name in others)
        while others:
            able = [
                name
                for name in others
                if all(
                    max(self._claim(name, device) - self._grant(name, device), 0) <= max(work[device], 0)
                    for device in work
                )
            ]
            assert able, f"{others} cannot end before {list(self._passed)}"
            for device in work:
                work[device] += self._grant(able[0], device)
            others.remove(able[0])
        for name in waiting - self._passed.keys():
            assert all(self._claim(name, device) <= work[device] for device in self._ledger.accounts[name]), name

    def _check_ends(self, newcomer: str, other: WaitingAllocation) -> None:
        """No set of holders ends so that the passed request fits its device without the newcomer only."""
        device, ledger = other.device, self._ledger
        holdings = [self._grant(name, device) for name in ledger.holders if name != newcomer]
        if len(holdings) > MOST_HOLDERS or device not in ledger.accounts[newcomer]:
            return
        free = ledger.free[device] + self._grant(newcomer, device)
        claim, size = self._claim(newcomer, device), self._required(other)[device]
        for count in range(len(holdings) + 1):
            for ended in combinations(holdings, count):
                room = free + sum(ended)
                assert room < size or room - claim >= size, f"{newcomer} delays {other}"
