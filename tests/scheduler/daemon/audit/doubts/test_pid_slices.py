"""Who is asked about within containers' PID namespaces; the namespaces are real, the driver is not."""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from contained_program import first_process
from daemon import wait_until

from convgpu.core.audit.attribution import Owner
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.doubts import pid_slices
from convgpu.daemon.audit.doubts.pid_slices import Looked, find_namespaces, look
from convgpu.daemon.gpu.namespace_lists import NamespaceAnswer, NamespaceQuestion

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")
A, B = Owner("a", "id"), Owner("b", "other")
INDEX = ProcessIndex({}, {"id": "a", "other": "b"}, {})


class Driver:
    """Tells what is held, in each namespace the same; has time for so many questions."""

    def __init__(self, *holding: Mapping[int, int], most: int = 99) -> None:
        self.holding = list(holding)  # by the search
        self.most = most
        self.questions: list[NamespaceQuestion] = []
        self.seen: set[int] = set()

    def search_inside(self, questions: Sequence[NamespaceQuestion]) -> list[NamespaceAnswer]:
        return [self._answer(question) for question in questions[: self.most]]

    def _answer(self, question: NamespaceQuestion) -> NamespaceAnswer:
        inode = os.fstat(question.namespace).st_ino
        if inode not in self.seen:
            self.seen.add(inode)
            return NamespaceAnswer(has_come=True)
        self.questions.append(question)
        asked = {*question.inner, *range(question.first, question.search)}
        return NamespaceAnswer({"gpu": {pid: size for pid, size in self.holding[0].items() if pid in asked}})


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """In which containers there are processes; on a host on which few began."""
    found = dict[int, str]()
    monkeypatch.setattr(pid_slices, "processes", lambda: list(found))
    monkeypatch.setattr(pid_slices, "containers_of", lambda pid: [found[pid]] if found[pid] else [])
    monkeypatch.setattr(pid_slices, "_most_pids", lambda: 100)
    return found


def search(driver: Driver, searches: int) -> Looked:
    looked = Looked({}, {}, [])
    for number in range(searches):
        known = {inode: (owner, looked.plans[inode]) for inode, owner in looked.owners.items()}
        looked = look(cast("Any", driver), INDEX, 1, known)
        if number < searches - 1 and len(driver.holding) > 1:
            driver.holding.pop(0)
    return looked


def dead(looked: Looked) -> list[Mapping[int, int]]:
    return [(told.sizes or {}).get("gpu", {}) for _, told in looked.told]


@contextmanager
def joined(first: int) -> Iterator[int]:
    """A process of ours in another one's PID namespace."""
    with subprocess.Popen(["nsenter", "--target", str(first), "--pid", "sleep", "60"]) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        try:
            wait_until(children.read_text, "it has begun")
            yield int(children.read_text())
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("holding", "found"),
    [
        # Twice, with what it has the last time; 1 lives.
        ([{1: 5, 5: 7}, {1: 5, 5: 8}], {5: 8}),
        ([{}, {5: 8}, {7: 8}], {}),  # each once: it may live by then
    ],
)
def test_who_is_found_twice_and_does_not_live_is_dead(
    places: dict[int, str], holding: Sequence[Mapping[int, int]], found: Mapping[int, int]
) -> None:
    with first_process() as pid:
        places[pid] = "id"
        looked = search(Driver(*holding), len(holding))
    assert (list(looked.owners.values()), dead(looked)) == ([A], [found])


def test_a_pass_asks_about_all_pids_in_an_order_of_chance_and_about_who_held_something_each_time(
    places: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pid_slices, "_SLICE", 4)
    monkeypatch.setattr(pid_slices, "_SECONDS", 0.0)
    driver = Driver({98: 7})
    with first_process() as pid:
        places[pid] = "id"
        search(driver, 1 + 2 * 25)
    ranges = [range(one.first, one.search) for one in driver.questions]
    for each in (ranges[:25], ranges[25:50]):
        assert sorted(pid for part in each for pid in part) == list(range(1, 100))
    assert ranges[:25] != sorted(ranges[:25], key=lambda part: part.start)
    since = next(number for number, part in enumerate(ranges) if 98 in part)
    assert [list(one.inner) for one in driver.questions] == [[]] * (since + 1) + [[98]] * (49 - since)


def test_pids_are_not_bounded_by_those_of_the_host() -> None:
    """A PID namespace of Linux 6.14 has 4,194,304 whatever the host has."""
    most = pid_slices._most_pids()
    begun = int(Path("/proc/stat").read_text().split("processes ")[1].split()[0])
    assert min(1 << 22, begun) <= most <= min(1 << 22, begun + 4096)


@pytest.mark.parametrize("other", ["other", "without a volume", ""])
def test_a_namespace_that_others_share_is_nobodys(places: dict[int, str], other: str) -> None:
    """Another container, with a volume or without, or a program of the host's: any of them can be who died."""
    with ExitStack() as stack:
        first = stack.enter_context(first_process())
        places[first] = "id"
        places[stack.enter_context(joined(first))] = other
        assert find_namespaces(INDEX, 1) == {}


def test_who_was_not_asked_for_longest_is_first_where_there_is_no_time_for_all(
    places: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pid_slices, "_SLICE", 50)
    driver = Driver({5: 7}, most=1)
    with first_process() as one, first_process() as other:
        places |= {one: "id", other: "other"}
        looked = search(driver, 1)
    assert [looked.owners[inode] for inode, _ in looked.told] in ([A, B, A, B], [B, A, B, A])


def test_no_descriptor_is_left_open_by_a_search_that_fails(
    places: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(pid: int) -> int | None:
        if opened:
            raise RuntimeError("can't start new thread")
        opened.append(os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY))
        return opened[0]

    opened = list[int]()
    monkeypatch.setattr(pid_slices, "open_pid_namespace", fail)
    with first_process() as one, first_process() as other:
        places |= {one: "id", other: "other"}
        with pytest.raises(RuntimeError):
            search(Driver({}), 1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])
