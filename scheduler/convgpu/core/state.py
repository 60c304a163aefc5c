"""What the machine keeps: containers, sessions, settling memory, and the allocations without an answer."""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from convgpu.core import events as e
from convgpu.core.memory.account import Account
from convgpu.core.memory.ledger import Ledger
from convgpu.policies.memory.base import Policy, Waiting

SlotKey = tuple[int, str]  # the headroom of a session on a device


@dataclass(slots=True)
class Request:
    """An allocation without an answer. `deadline`: on the clock of the events. `paused`: the history knows of it."""

    asked: e.AllocationRequested
    view: Waiting
    deadline: float | None
    paused: bool = False

    @property
    def sequence(self) -> int:
        """Order in which it was asked for."""
        return self.view.sequence

    @property
    def container(self) -> str:
        """Its container."""
        return self.view.container


@dataclass(slots=True)
class Container:
    """`order`: containers are numbered as they come. `wait`: seconds, None for ever. `requests`: those that wait."""

    order: int
    wait: float | None
    priority: int = 0
    mounted: bool = False
    sessions: int = 0
    requests: dict[int, Request] = field(default_factory=dict)


class Queue:
    """The allocations without an answer, oldest first: all of them, and those of each device."""

    def __init__(self, devices: Iterable[str]) -> None:
        self._requests: dict[int, Request] = {}
        self._on: dict[str, dict[int, Request]] = {device: {} for device in devices}
        self._deadlines: list[tuple[float, int]] = []  # a heap; answered ones leave it when they come up

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())

    def __contains__(self, request: Request) -> bool:
        return request.sequence in self._requests

    def __getitem__(self, sequence: int) -> Request:
        return self._requests[sequence]

    def on(self, device: str) -> Iterable[Request]:
        """Return those that wait for the device, oldest first."""
        return self._on[device].values()

    def add(self, request: Request) -> None:
        """Add the youngest."""
        self._requests[request.sequence] = request
        self._on[request.asked.device][request.sequence] = request
        if request.deadline is not None:
            heapq.heappush(self._deadlines, (request.deadline, request.sequence))

    def remove(self, request: Request) -> None:
        """It has an answer, or nobody who waits for one."""
        del self._requests[request.sequence]
        del self._on[request.asked.device][request.sequence]

    def next_deadline(self) -> float | None:
        """Return the earliest time up to which one of them may wait."""
        while self._deadlines and self._deadlines[0][1] not in self._requests:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def late(self, now: float) -> Iterator[Request]:
        """Yield those that may not wait any longer; each has to be removed before the next."""
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            yield self._requests[self._deadlines[0][1]]


class State:
    """Everything that decisions are made from.

    Attributes:
        armed: the words (session, device) whose processes report what they free.
        ahead: by device, the sessions that were leased more than they asked for and not looked at since, in this order.
        fresh: requests that are not yet recorded as paused.
    """

    def __init__(
        self, capacity: Mapping[str, int], policy: Policy, starvation_timeout: float, *, recovering: bool
    ) -> None:
        self.ledger = Ledger(capacity)
        self.policy = policy
        self.starvation_timeout = starvation_timeout
        self.recovering = recovering
        self.drained: set[str] = set()
        self.containers: dict[str, Container] = {}
        self.sessions: dict[int, str] = {}
        self.queue = Queue(capacity)
        self.fresh: list[Request] = []
        self.settling: dict[str, dict[int, int]] = {device: {} for device in capacity}
        self.armed: dict[SlotKey, None] = {}
        self.ahead: dict[str, dict[int, None]] = {device: {} for device in capacity}
        self._arrivals = 0

    def arrive(self) -> int:
        """Return the number of the next container or allocation that comes."""
        self._arrivals += 1
        return self._arrivals

    def account(self, request: Request) -> Account:
        """Return the account that a request is about."""
        return self.ledger.accounts[request.container][request.asked.device]

    def enqueue(self, request: Request) -> None:
        """Let a request wait for its answer."""
        self.queue.add(request)
        self.containers[request.container].requests[request.sequence] = request
        self.fresh.append(request)
        self.ledger.touched[request.container] = None

    def dequeue(self, request: Request) -> None:
        """It waits no longer."""
        self.queue.remove(request)
        del self.containers[request.container].requests[request.sequence]

    def forget_requests(self, container: str, session: int) -> None:
        """Nobody waits for the answers to this session any more."""
        for request in list(self.containers[container].requests.values()):
            if request.asked.session == session:
                self.dequeue(request)

    def forget_word(self, session: int, device: str) -> None:
        """The page with its headroom is gone."""
        self.armed.pop((session, device), None)
        self.ahead[device].pop(session, None)

    def is_needed(self, device: str) -> bool:
        """Does anybody wait for memory of the device who could be given it?"""
        return device not in self.drained and any(True for _ in self.queue.on(device))

    @property
    def scarce(self) -> bool:
        """Does anybody wait whom freed memory could help? Then nothing of a grant is left idle."""
        return any(self.is_needed(device) for device in self.settling)
