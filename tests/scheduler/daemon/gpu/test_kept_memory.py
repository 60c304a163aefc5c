"""What children keep of processes that ended just now, on a device whose every list is written down."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from convgpu.core import events as e
from convgpu.daemon.gpu import kept_memory
from convgpu.daemon.gpu.kept_memory import KeptMemory
from convgpu.daemon.gpu.nvml import DeviceError

GIB = 1 << 30


class Lists:
    """Lists processes, one list after the other, then the last one again and again. `asked`: how often."""

    def __init__(self, *lists: Mapping[int, int] | None) -> None:
        self.lists, self.asked = [*lists], 0

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


def host(lists: Lists, charged: int = 0, left: int = 0, told: list[tuple[str, str, int]] | None = None) -> KeptMemory:
    """A container `a` with 4 GiB of a device."""
    account = SimpleNamespace(limit=4 * GIB, charged=charged)
    machine = SimpleNamespace(account=lambda *place: account if place == ("a", "gpu") else None)
    told = [] if told is None else told

    def dispatch(event: e.MayBeKept) -> None:
        told.append((event.container, event.device, event.size))

    return KeptMemory(cast("Any", machine), cast("Any", lists), lambda _: {"a": left}, dispatch)


def run(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(play())


def in_the_way(kept: KeptMemory, size: int, used: int = 0) -> tuple[bool, ...]:
    return tuple(one("a", "gpu", size, lambda: used) for one in (kept.may_be_in_the_way, kept.is_in_the_way))


def test_what_the_driver_lists_of_a_dead_process_is_in_the_way() -> None:
    async def play() -> None:
        told: list[tuple[str, str, int]] = []
        kept = host(lists := Lists({7: 3 * GIB}), told=told)
        kept.begin(7, "a", {"gpu": 2 * GIB})
        assert [in_the_way(kept, size, GIB) for size in (GIB, GIB + 1, 3 * GIB, 3 * GIB + 1)] == [
            (False, False), (True, False), (True, False), (False, False),
        ]  # fmt: skip
        await kept.look("a", "gpu")
        assert [in_the_way(kept, size, GIB) for size in (GIB, GIB + 1)] == [(False, False), (True, True)]
        assert lists.asked == 2
        await kept.look("a", "gpu")
        assert lists.asked == 3  # it is known
        lists.lists = [{7: GIB}]
        await kept.look("a", "gpu")
        assert [in_the_way(kept, size, GIB) for size in (2 * GIB, 2 * GIB + 1)] == [(False, False), (True, True)]
        lists.lists = [{}]
        await kept.look("a", "gpu")
        assert in_the_way(kept, 3 * GIB, GIB) == (False, False)
        assert told == [("a", "gpu", size) for size in (2 * GIB, GIB, 0)]

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
        kept = host(answers := Lists(*lists))
        states[7] = state
        kept.begin(7, "a", {"gpu": 2 * GIB})
        await kept.look("a", "gpu")
        assert in_the_way(kept, 3 * GIB + 1) == (state == "exits", False)
        assert answers.asked == asked

    run(play)


def test_a_list_that_was_asked_for_before_the_end_says_nothing() -> None:
    async def play() -> None:
        kept = host(Lists({7: 2 * GIB}))
        kept.begin(7, "a", {"gpu": 2 * GIB})
        rows = kept._ended["a", "gpu"][7]
        for asked, now, is_kept in ((1.0, 5.0, False), (2.0, 6.0, False), (5.0005, 7.0, False), (5.002, 7.0, True)):
            assert kept._follow(kept_memory.Place("a", "gpu"), {7: 2 * GIB}, asked, now) == is_kept == rows.is_kept

    run(play)


@pytest.mark.parametrize(("charged", "left", "is_in_the_way"), [(0, 0, True), (2, 0, False), (2, 2, True)])
def test_what_the_audit_has_charged_counts_once(charged: int, left: int, is_in_the_way: bool) -> None:
    async def play() -> None:
        kept = host(Lists({7: 2 * GIB}), charged=charged * GIB, left=left * GIB)
        kept.begin(7, "a", {"gpu": 2 * GIB})
        await kept.look("a", "gpu")
        assert in_the_way(kept, GIB, (2 - charged) * GIB) == (is_in_the_way, is_in_the_way)
        assert kept.kept("a", "gpu") == (2 * GIB if is_in_the_way else 0)

    run(play)


def test_it_is_the_audits_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, timers = [0.0], list[tuple[float, Callable[..., None], Any]]()

    async def play() -> None:
        loop, told = asyncio.get_running_loop(), list[tuple[str, str, int]]()
        monkeypatch.setattr(loop, "time", lambda: now[0])
        monkeypatch.setattr(loop, "call_at", lambda *timer: timers.append(timer))
        kept = host(Lists({7: 2 * GIB}), told=told)
        kept.begin(7, "a", {"gpu": 2 * GIB, "none": 0})
        kept.begin(0, "a", {"gpu": 2 * GIB})  # who is not seen by us
        now[0] = 4.0
        kept.begin(8, "a", {"gpu": 1})
        assert in_the_way(kept, 3 * GIB) == (True, False)
        for at, left in ((10.0, 1), (14.0, 0)):
            [(now[0], leave, place)] = timers
            timers.clear()
            leave(place)
            assert (now[0], told[-1]) == (at, ("a", "gpu", left))
        assert timers == []
        assert in_the_way(kept, 4 * GIB) == (False, False)
        for pid in range(10, 600):
            kept.begin(pid, "a", {"gpu": 1})
        assert (told[-1], len(timers)) == (("a", "gpu", 512), 1)

    run(play)
