"""What children keep of processes that ended just now, on a device whose every list is written down."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from convgpu.core import events as e
from convgpu.daemon.gpu import kept_memory
from convgpu.daemon.gpu.ending import Place
from convgpu.daemon.gpu.kept_memory import KeptMemory
from convgpu.daemon.gpu.nvml import DeviceError
from convgpu.daemon.sessions.lifecycle import SessionLifecycle
from convgpu.daemon.system.background_tasks import BackgroundTasks

GIB = 1 << 30


class Lists:
    """Lists processes, one list after the other, then the last one again and again.

    Attributes:
        asked: how often.
        noted: who ended, and where.
    """

    def __init__(self, *lists: Mapping[int, int] | None) -> None:
        self.lists, self.asked, self.noted = [*lists], 0, list[tuple[str, int]]()

    def note_ended(self, device: str, pid: int) -> None:
        self.noted.append((device, pid))

    async def ask(self, _device: str, _query: object) -> Mapping[int, int]:
        self.asked += 1
        listed = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        if listed is None:
            raise DeviceError("no answer")
        return listed


@pytest.fixture(autouse=True)
def states(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """What processes do by now, but end."""
    states: dict[int, str] = {}
    monkeypatch.setattr(kept_memory, "is_alive", lambda pid: states.get(pid) == "lives")
    monkeypatch.setattr(kept_memory, "is_exiting", lambda pid: states.get(pid) == "exits")
    monkeypatch.setattr(kept_memory, "_STEP", 0.002)
    return states


class Machine:
    """Container `a` is charged with so much of a device; `told` what may be kept."""

    def __init__(self, charged: int) -> None:
        self.size = charged
        self.told: list[tuple[str, str, int]] = []

    def charged(self, container: str, device: str) -> int:
        return self.size if (container, device) == ("a", "gpu") else 0

    def dispatch(self, event: e.MayBeKept) -> None:
        self.told.append((event.container, event.device, event.size))


def host(lists: Lists, charged: int = 0, left: int = 0) -> tuple[KeptMemory, Machine]:
    machine = Machine(charged)
    return KeptMemory(cast("Any", machine), cast("Any", lists), lambda *_: left, machine.dispatch), machine


def run(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(play())


def figures(kept: KeptMemory) -> tuple[int, int]:
    """What may be kept of container `a`, and what is for certain."""
    return kept.most("a", "gpu"), kept.certain("a", "gpu")


def test_what_the_driver_lists_of_a_dead_process_is_kept() -> None:
    async def play() -> None:
        kept, machine = host(lists := Lists({7: 3 * GIB}))
        kept.begin(7, "a", {"gpu": 2 * GIB, "other": 0})
        assert (figures(kept), lists.noted) == ((2 * GIB, 0), [("gpu", 7)])
        await kept.look("a", "gpu")
        assert (figures(kept), lists.asked) == ((2 * GIB, 2 * GIB), 2)
        await kept.look("a", "gpu")
        assert lists.asked == 3  # it is known
        lists.lists = [{7: GIB}]
        await kept.look("a", "gpu")
        assert figures(kept) == (GIB, GIB)
        lists.lists = [{}]
        await kept.look("a", "gpu")
        assert figures(kept) == (0, 0)
        assert machine.told == [("a", "gpu", size) for size in (2 * GIB, GIB, 0)]
        await kept.look("a", "gpu")
        assert lists.asked == 5  # and nobody is asked about nobody

    run(play)


@pytest.mark.parametrize(
    ("lists", "state", "asked"),
    [
        ([{8: GIB}], "", 1),
        ([{7: GIB}, {}], "", 2),  # for half a millisecond it may be listed still
        ([{7: GIB}], "lives", 1),  # it is another one by now
        ([{7: GIB}], "exits", 4),
        ([None], "", 1),
    ],
)
def test_what_is_free_soon_is_not(
    states: dict[int, str], lists: list[Mapping[int, int] | None], state: str, asked: int
) -> None:
    async def play() -> None:
        kept, _ = host(answers := Lists(*lists))
        states[7] = state
        kept.begin(7, "a", {"gpu": 2 * GIB})
        await kept.look("a", "gpu")
        may_be = 2 * GIB if lists == [None] else GIB if state == "exits" else 0  # nobody told; or it has it still
        assert figures(kept) == (may_be, 0)
        assert answers.asked == asked

    run(play)


def test_a_list_that_was_asked_for_before_the_end_says_nothing() -> None:
    async def play() -> None:
        kept, _ = host(Lists({7: 2 * GIB}))
        kept.begin(7, "a", {"gpu": 2 * GIB})
        one = kept._ended["a", "gpu"][7]
        begun = one.begun
        for asked, now, is_kept in ((1.0, 5.0, False), (2.0, 6.0, False), (5.0005, 7.0, False), (5.002, 7.0, True)):
            found = kept._follow(Place("a", "gpu"), {7: 2 * GIB}, begun + asked, begun + now)
            assert found == is_kept == one.is_kept

    run(play)


def test_nor_does_one_that_was_asked_for_before_it_took_its_memory() -> None:
    async def play() -> None:
        kept, _ = host(Lists({}))
        kept.begin(7, "a", {"gpu": 2 * GIB})
        begun = kept._ended["a", "gpu"][7].begun
        assert not kept._follow(Place("a", "gpu"), {}, begun - 0.1, begun + 0.1)
        assert figures(kept) == (2 * GIB, 0)

    run(play)


def test_of_two_with_one_pid_both_may_be_kept() -> None:
    async def play() -> None:
        kept, _ = host(Lists({7: 3 * GIB}))
        kept.begin(7, "a", {"gpu": 2 * GIB})
        kept.begin(7, "a", {"gpu": GIB})
        await kept.look("a", "gpu")
        assert figures(kept) == (3 * GIB, 3 * GIB)

    run(play)


@pytest.mark.parametrize(
    ("charged", "left", "beside"), [(0, 0, 2), (1, 0, 1), (2, 0, 0), (3, 0, 0), (2, 2, 2), (1, 2, 2)]
)
def test_what_the_audit_has_charged_counts_once(charged: int, left: int, beside: int) -> None:
    async def play() -> None:
        kept, machine = host(Lists({7: 2 * GIB}), left=left * GIB)
        kept.begin(7, "a", {"gpu": 2 * GIB})
        await kept.look("a", "gpu")
        machine.size = charged * GIB
        assert figures(kept) == (beside * GIB, beside * GIB)
        kept.tell_again()
        kept.tell_again()
        assert machine.told == [("a", "gpu", size * GIB) for size in ((2,) if beside == 2 else (2, beside))]
        machine.size = 0  # it was counted again
        kept.tell_again()
        assert machine.told[-1] == ("a", "gpu", 2 * GIB)

    run(play)


class Clock:
    """A loop's: `now`, and the timers that it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.timers = 0.0, list[tuple[float, Callable[[Place], None], Place]]()
        self._patch = monkeypatch

    def begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._patch.setattr(loop, "time", lambda: self.now)
        self._patch.setattr(loop, "call_at", lambda *timer: self.timers.append(timer))

    def pass_to_the_next(self) -> float:
        [(self.now, call, place)] = self.timers
        self.timers.clear()
        call(place)
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_it_is_the_audits_after_some_seconds(clock: Clock) -> None:
    async def play() -> None:
        clock.begin()
        kept, machine = host(Lists({7: 2 * GIB}))
        kept.begin(7, "a", {"gpu": 2 * GIB, "none": 0})
        kept.begin(0, "a", {"gpu": 2 * GIB})  # who is not seen by us
        clock.now = 4.0
        kept.begin(8, "a", {"gpu": 1})
        kept.begin(9, "b", {"gpu": 0})
        assert machine.told == [("a", "gpu", 2 * GIB), ("a", "gpu", 2 * GIB + 1)]
        for at, left in ((10.0, 1), (14.0, 0)):
            assert clock.pass_to_the_next() == at
            assert (machine.told[-1], figures(kept)) == (("a", "gpu", left), (left, 0))
        assert clock.timers == []

    run(play)


def test_who_has_the_pid_of_one_that_ended_before_is_forgotten_after_it(clock: Clock) -> None:
    async def play() -> None:
        clock.begin()
        kept, machine = host(Lists({}))
        for clock.now, pid in ((0.0, 7), (2.0, 8), (4.0, 7)):
            kept.begin(pid, "a", {"gpu": GIB})
        for at, left in ((10.0, 3), (12.0, 2), (14.0, 0)):
            assert (clock.pass_to_the_next(), figures(kept)[0]) == (at, left * GIB)
        assert machine.told[-1] == ("a", "gpu", 0)

    run(play)


def test_a_place_that_a_look_has_emptied_has_one_timer_and_is_told_of_once(clock: Clock) -> None:
    async def play() -> None:
        clock.begin()
        kept, machine = host(Lists({}))
        for second in (0.0, 1.0, 2.0):
            clock.now = second
            kept.begin(7, "a", {"gpu": GIB})
            clock.now = second + 0.5
            await kept.look("a", "gpu")
        assert clock.pass_to_the_next() == 10.0
        assert (len(machine.told), machine.told[-1], clock.timers) == (6, ("a", "gpu", 0), [])

    run(play)


def test_of_more_than_512_those_that_had_least_are_the_audits(clock: Clock) -> None:
    async def play() -> None:
        clock.begin()
        kept, _ = host(Lists({}))
        kept.begin(7, "a", {"gpu": GIB})
        for pid in range(10, 600):
            kept.begin(pid, "a", {"gpu": 1})
        assert (figures(kept), len(clock.timers)) == ((GIB + 511, 0), 1)

    run(play)


def test_what_was_charged_before_hides_nothing(clock: Clock) -> None:
    """What a first child keeps is charged and known no more; what a second one kept was taken for that."""

    async def play() -> None:
        clock.begin()
        kept, machine = host(Lists({7: 2 * GIB, 8: GIB}))
        kept.begin(7, "a", {"gpu": 2 * GIB})
        machine.size = 2 * GIB
        kept.tell_again()
        clock.now = 5.0
        kept.begin(8, "a", {"gpu": GIB})
        assert figures(kept)[0] == GIB
        clock.now = 12.0
        kept.tell_again()
        assert (figures(kept)[0], machine.told[-1]) == (GIB, ("a", "gpu", GIB))
        machine.size = GIB  # the first child has ended, and nothing else is charged yet
        kept.tell_again()
        assert figures(kept)[0] == GIB
        machine.size = 2 * GIB
        kept.tell_again()
        assert (figures(kept)[0], machine.told[-1]) == (0, ("a", "gpu", 0))

    run(play)


def test_it_is_the_audits_after_three_of_them(clock: Clock) -> None:
    async def play() -> None:
        clock.begin()
        machine, lists = Machine(0), Lists({})
        kept = KeptMemory(cast("Any", machine), cast("Any", lists), lambda *_: 0, machine.dispatch, audit=30.0)
        kept.begin(7, "a", {"gpu": GIB})
        assert clock.pass_to_the_next() == 90.0
        assert machine.told == [("a", "gpu", GIB), ("a", "gpu", 0)]

    run(play)


class Driver:
    """Notes what it is told. Container `a` runs."""

    def __init__(self) -> None:
        self.told = list[e.Event]()

    def dispatch(self, event: e.Event) -> None:
        self.told.append(event)


def test_who_settles_while_it_is_looked_is_looked_at_as_well(states: dict[int, str]) -> None:
    async def play() -> None:
        kept, _ = host(lists := Lists({7: GIB}))
        states[7] = "exits"
        lifecycle = cast("Any", SessionLifecycle).__new__(SessionLifecycle)
        lifecycle._driver, lifecycle._tasks, lifecycle._ended = Driver(), BackgroundTasks(), SimpleNamespace(kept=kept)
        lifecycle._settling, lifecycle._looking = {1: ("a", ("gpu", "other")), 2: ("a", ("gpu",))}, {}
        kept.begin(7, "a", {"gpu": GIB, "other": GIB})
        lifecycle.settle(1)
        while lists.asked < 4:
            await asyncio.sleep(0)
        kept.begin(8, "a", {"gpu": 5 * GIB})
        lifecycle.settle(2)
        lifecycle.settle(3)  # had nothing
        while lifecycle._tasks._tasks:
            await asyncio.wait(lifecycle._tasks._tasks)
        assert (figures(kept)[0], kept.most("a", "other")) == (GIB, GIB)
        assert (lifecycle._settling, lifecycle._looking) == ({}, {})
        assert lifecycle._driver.told == [e.SettlingEnded(number) for number in (1, 2, 3)]

    run(play)


def test_a_look_after_that_finds_nobody(clock: Clock) -> None:
    async def play() -> None:
        clock.begin()
        kept, _ = host(Lists({7: GIB}))
        kept.begin(7, "a", {"gpu": GIB})
        clock.now = 10.5
        await kept.look("a", "gpu")
        assert figures(kept) == (0, 0)

    run(play)
