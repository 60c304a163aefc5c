"""Asks within containers' PID namespaces about all pids that there may be, some of them at a time.

The driver looks at each of its clients for each pid: beside hundreds of programs all pids at once would take longer
than anybody waits. The order is of chance, so that nobody knows when a pid's turn comes.
"""

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Final

from convgpu.core.audit.attribution import Owner
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.gpu.namespace_lists import ENDED, MOST_NAMESPACES, NO_IDS, NamespaceAnswer, NamespaceQuestion
from convgpu.daemon.gpu.nvml import Devices
from convgpu.daemon.system.procfs import containers_of, namespace_pids, open_pid_namespace, processes, user_ids

# Pids of one question: 8 GPUs and 300 clients take some 2 s for them.
_SLICE: Final = 50_000
# Seconds after which a search goes on the next time.
_SECONDS: Final = 0.3
# Pids are given to so many more processes while we ask.
_MORE: Final = 4096
# All that there can be, in each namespace (PID_MAX_LIMIT, linux/threads.h): since Linux 6.14 the host's is not theirs.
_MOST_PIDS: Final = 1 << 22
_FORKS: Final = re.compile(r"^processes (\d+)$", re.MULTILINE)
_random: Final = SystemRandom()


@dataclass(slots=True)
class Plan:
    """What is to be asked about in a namespace.

    Attributes:
        left: the first pids of the slices that are left in this pass.
        held: the pids that held memory when they were asked about last.
        turn: the number of the last question.
    """

    left: list[int] = field(default_factory=list)
    held: set[int] = field(default_factory=set)
    turn: int = 0


@dataclass(frozen=True, slots=True)
class DeadTold:
    """What was told of the dead in a namespace.

    Attributes:
        asked: those who were asked about.
        sizes: bytes by device and pid, of those who held memory the last time, too, and do not live; None: nothing was.
        is_disturbed: whoever asked was ended or stopped there each time.
        trouble: why nothing was told.
    """

    asked: "Pids"
    sizes: Mapping[str, Mapping[int, int]] | None = None
    is_disturbed: bool = False
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Pids:
    """Some pids, and those from one to another."""

    some: AbstractSet[int]
    many: range

    def __contains__(self, pid: int) -> bool:
        return pid in self.some or pid in self.many


@dataclass(frozen=True, slots=True)
class Looked:
    """What a search saw.

    Attributes:
        owners: whose the namespaces are, by inode.
        plans: how to go on there.
        told: by inode, in the order of the questions.
    """

    owners: Mapping[int, Owner]
    plans: Mapping[int, Plan]
    told: Sequence[tuple[int, DeadTold]]


@dataclass(slots=True)
class Namespace:
    """The outermost PID namespace of a container.

    Attributes:
        owner: the container.
        descriptor: of the namespace.
        living: the pids of its processes there.
    """

    owner: Owner
    descriptor: int
    living: AbstractSet[int]


def look(devices: Devices, index: ProcessIndex, own: int, known: Mapping[int, tuple[Owner, Plan]]) -> Looked:
    """Search for some time in all containers; blocks.

    Args:
        devices: answer.
        index: tells the containers.
        own: the inode of our own PID namespace.
        known: whose each namespace was, and how to go on there.

    Raises:
        DeviceError: nobody answers.
        OSError: no descriptors are left.
        RuntimeError: no thread can be begun.
    """
    there = find_namespaces(index, own)
    try:
        most = _most_pids()
        plans = {inode: _plan(one.owner, known.get(inode), most) for inode, one in there.items()}
        told, turn, until = [], max((plan.turn for plan in plans.values()), default=0), time.monotonic() + _SECONDS
        again = {inode: sorted(plan.held) for inode, plan in plans.items()}  # asked about in each search
        while chosen := sorted((inode for inode in plans if plans[inode].left), key=lambda each: plans[each].turn):
            turn, chosen = turn + 1, chosen[:MOST_NAMESPACES]
            questions = [_question(there[each], again[each], plans[each].left[-1], most) for each in chosen]
            for inode, question, answer in zip(chosen, questions, devices.search_inside(questions), strict=False):
                plans[inode].turn = turn
                if not answer.has_come:
                    told.append((inode, _judge(plans[inode], there[inode], question, answer)))
                    again[inode] = []
            if time.monotonic() > until:
                break
        return Looked({inode: one.owner for inode, one in there.items()}, plans, told)
    finally:
        for one in there.values():
            os.close(one.descriptor)


def _plan(owner: Owner, known: tuple[Owner, Plan] | None, most: int) -> Plan:
    """Go on, or begin a new pass."""
    plan = Plan() if known is None or known[0] != owner else known[1]
    left = plan.left or list(range(1, most, _SLICE))
    if not plan.left:
        _random.shuffle(left)
    return Plan(list(left), set(plan.held), plan.turn)


def _question(there: Namespace, again: Sequence[int], first: int, most: int) -> NamespaceQuestion:
    return NamespaceQuestion(there.descriptor, again, [], first, min(first + _SLICE, most))


def _judge(plan: Plan, there: Namespace, question: NamespaceQuestion, answer: NamespaceAnswer) -> DeadTold:
    """Return what an answer says of the dead. Who is found the first time may live by now, and is only remembered."""
    asked = Pids(frozenset(question.inner), range(question.first, question.search))
    plan.left.pop()
    if answer.trouble == ENDED:
        return DeadTold(asked, {})
    if answer.is_disturbed or answer.most is None:
        return DeadTold(asked, None, answer.is_disturbed, answer.trouble)
    dead = {pid for pid in plan.held if pid in asked} - there.living
    plan.held = {pid for pid in plan.held if pid not in asked}
    plan.held |= {pid for rows in answer.most.values() for pid in rows}
    sizes = {device: {pid: rows[pid] for pid in dead if rows.get(pid)} for device, rows in answer.most.items()}
    return DeadTold(asked, sizes)


def find_namespaces(index: ProcessIndex, own: int) -> dict[int, Namespace]:
    """Return the namespaces of containers with a volume by their inodes, but for those that others share.

    Args:
        index: tells the containers.
        own: the inode of our own PID namespace.
    """
    rows: dict[str | int, dict[int, Sequence[int]]] = {}
    for pid in processes():
        # A runtime's own, on its way into a container, is in our namespace still.
        if len(pids := namespace_pids(pid)) > 1:
            container = index.outermost(containers_of(pid))
            if container is not None or user_ids(pid) != NO_IDS:  # else it is who asks for us
                rows.setdefault(container or pid, {})[pid] = pids  # each program of the host's is one by itself
    found, shared = dict[int, Namespace](), {own}
    try:
        for place, numbers in rows.items():
            container = place if isinstance(place, str) else None
            _find_one(Owner(index.by_id.get(container or ""), container), numbers, found, shared)
        for inode in shared & found.keys():
            os.close(found.pop(inode).descriptor)
    except BaseException:
        _close(found.values())
        raise
    return found


def _find_one(
    owner: Owner, numbers: Mapping[int, Sequence[int]], found: dict[int, Namespace], shared: set[int]
) -> None:
    """Add the outermost namespace of some processes to those that are found, or to the shared ones."""
    depth = min(len(pids) for pids in numbers.values())
    first = next(pid for pid, pids in numbers.items() if len(pids) == depth)
    if (descriptor := open_pid_namespace(first)) is None:
        return
    inode = os.fstat(descriptor).st_ino
    if owner.volume is None or inode in found or inode in shared:
        shared.add(inode)
        os.close(descriptor)
    else:
        found[inode] = Namespace(owner, descriptor, {pids[depth - 1] for pids in numbers.values()})


def _close(namespaces: Iterable[Namespace]) -> None:
    for one in namespaces:
        os.close(one.descriptor)


def _most_pids() -> int:
    """Return a number above all pids: as many processes as began since the machine did, at most (proc_stat(5))."""
    begun = _FORKS.search(Path("/proc/stat").read_text())
    return min(_MOST_PIDS, int(begun[1]) + _MORE) if begun else _MOST_PIDS
