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
    """Newcomers that went past overdue requests. Neither those nor any holder may wait for them (docs/policies.md)."""

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
            self._check_bound(waiting)
        if self.accepted == 1:
            for name in self._new & self._passed.keys():
                for request in self._passed[name]:
                    self._check_ends(name, waiting[request])
        self.accepted = 0
        self._new.clear()

    def _claim(self, name: str, device: str) -> int:
        """The most that it may be granted; what it is charged with is granted to nobody, and not usable."""
        account = self._ledger.accounts[name].get(device)
        return max(min(account.limit - account.charged, self._ledger.usable[device]), account.grant) if account else 0

    def _grant(self, name: str, device: str) -> int:
        account = self._ledger.accounts[name].get(device)
        return account.grant if account else 0

    def _check_bound(self, waiting: Mapping[int, WaitingAllocation]) -> None:
        """If those that went past never end, all others can, and then each of these requests gets its whole limits.

        For those that went past others only, and so are older than a request, that may well wait: they can end.
        """
        room = self._room_when_others_ended()
        for request in set().union(*self._passed.values()):
            name = waiting[request].container
            for device in self._ledger.accounts[name] if name not in self._passed else ():
                older = sum(self._claim(n, device) for n, requests in self._passed.items() if request not in requests)
                assert self._claim(name, device) <= room[device] + older, name

    def _room_when_others_ended(self) -> dict[str, int]:
        """Return what is free when all have ended that went past nobody, and those that did have their limits.

        Facts may have left a deficit, of which those that went past are not the cause: it is lent (invariant 2).
        """
        work = {device: size + self._ledger.deficit[device] for device, size in self._ledger.usable.items()}
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
        return work

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
