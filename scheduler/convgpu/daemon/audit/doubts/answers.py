"""What is made of answers from within PID namespaces; pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from convgpu.core.audit.attribution import MemorySample, Told
from convgpu.daemon.gpu.namespace_lists import NamespaceAnswer

# What is told within namespaces, by inode; None: there was no time to ask there.
Answers = Mapping[int, NamespaceAnswer | None]
# A pid, and when its process started.
Process = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process is by itself: the inode of its PID namespace, and the pid that it has there."""

    inode: int
    pid: int


class Places:
    """Where processes are, by place and by pid.

    Args:
        places: by process.
    """

    def __init__(self, places: Mapping[Process, Place | None]) -> None:
        self.by_process = places
        self.pids: dict[Place, set[int]] = defaultdict(set)
        self.at: dict[int, set[Place | None]] = defaultdict(set)
        for (pid, _), place in places.items():
            self.at[pid].add(place)
            if place is not None:
                self.pids[place].add(pid)


class Answered:
    """What answers say of the processes of one device.

    Args:
        sample: of the device.
        answers: by namespace.
        places: of the processes.
    """

    def __init__(self, sample: MemorySample, answers: Answers, places: Places) -> None:
        self._sample = sample
        self._answers = answers
        self._places = places
        self._elsewhere: dict[Place, dict[int, int]] = {}

    def told(self, pid: int, starts: Iterable[int], before: Mapping[int, int]) -> Told | None:
        """Return what answers say of processes that have or had a pid; None: nothing.

        Args:
            pid: of all.
            starts: of those processes.
            before: what was told of them last.
        """
        own, least, device = dict[int, int](), list[int](), self._sample.device
        disturbed, unasked = set[int](), dict[int, int | None]()
        for start in starts:
            place = self._places.by_process.get((pid, start))
            if place is None or place.inode not in self._answers:
                continue
            answer = self._answers[place.inode]
            if answer is None:
                unasked[start] = before.get(start)
            elif answer.most is not None and device in answer.most:
                own[start] = self._held_at(place, pid)
                least.append(answer.least.get(device, {}).get(pid, 0))
            elif answer.is_disturbed:
                disturbed.add(start)
        others = max(min(least, default=0) - sum(own.values()), 0)
        return Told(own, others, disturbed, unasked) if own or disturbed or unasked else None

    def _held_at(self, place: Place, pid: int) -> int:
        """Return what is told of a place, but for what is listed of it with another pid, which it had on the host."""
        if place not in self._elsewhere:
            self._elsewhere[place] = {each: self._listed_of(place, each) for each in self._places.pids[place]}
        elsewhere = self._elsewhere[place]
        return max((self._told_at(place) or 0) - sum(elsewhere.values()) + elsewhere.get(pid, 0), 0)

    def _listed_of(self, place: Place, pid: int) -> int:
        """Return what is listed with a pid and can only be of this place; with one pid others may be listed, too."""
        theirs = [self._told_at(one) for one in self._places.at[pid] if one != place]
        if None in theirs:
            return 0  # it may all be theirs
        return max(self._sample.listed_with(pid) - sum(each or 0 for each in theirs), 0)

    def _told_at(self, place: Place | None) -> int | None:
        """Return the bytes that are told of a place; None: nothing is."""
        answer = self._answers.get(place.inode) if place is not None else None
        if place is None or answer is None or answer.most is None or self._sample.device not in answer.most:
            return None
        return answer.most[self._sample.device].get(place.pid, 0)
