"""Who is above a limit for too long, and who took what others lack: tables of the pure part."""

import math
from collections.abc import Callable
from random import Random

import pytest

from convgpu.core.audit.attribution import TOLERATED
from convgpu.core.audit.overuse import OveruseBudget, TakenReserves, excess_of

GIB, MIB = 1 << 30, 1 << 20


@pytest.mark.parametrize(
    ("size", "limit", "tolerated", "is_above"),
    [
        (526 * MIB + TOLERATED, 526 * MIB, TOLERATED, False),
        (526 * MIB + TOLERATED + 1, 526 * MIB, TOLERATED, True),
        (2 * GIB + 1, 2 * GIB, 0, True),
        # What a stranger had in each of 23: one that ended with a session counts as if it had leased all of it.
        (490 * MIB, 256 * MIB, 245 * MIB, True),
        (384 * MIB, 256 * MIB, 245 * MIB, False),
    ],
)
def test_who_is_above_the_limit_by_more_than_is_tolerated(
    size: int, limit: int, tolerated: int, is_above: bool
) -> None:
    assert (excess_of(size, limit, tolerated) > 0) is is_above


def test_who_stays_above_the_limit_is_named_once_and_expires() -> None:
    budget = OveruseBudget(10.0)
    one, two, other = ("a", "gpu"), ("b", "gpu"), ("c", "other")
    assert budget.update({one}, 0.0) == ({one}, set())
    assert budget.update({one, two, other}, 9.9) == ({two, other}, set())
    assert (budget.spent, budget.pause) == (set(), math.inf)
    assert budget.update({one, two, other}, 10.0) == (set(), {one})  # the time of two was that of one
    assert (budget.spent, budget.pause) == ({"gpu"}, 0.2)
    assert budget.update({two, other}, 10.2) == (set(), {two})
    assert budget.update({other}, 10.4) == (set(), set())
    assert budget.pause == 0.5
    assert budget.update({one}, 10.6) == (set(), set())  # it was named 0.6 s before
    assert budget.update(set(), 10.8) == (set(), set())  # it was a moment
    assert budget.update({one}, 15.5) == (set(), set())
    assert budget.update(set(), 15.7) == (set(), set())
    assert budget.update({one}, 21.0) == ({one}, set())


def test_who_is_not_judged_yet_takes_time_and_is_not_ended() -> None:
    budget = OveruseBudget(10.0)
    assert budget.update(set(), 0.0, {"gpu"}) == (set(), set())
    assert budget.update({("a", "gpu")}, 10.0) == ({("a", "gpu")}, set())
    assert budget.update({("a", "gpu")}, 10.2) == (set(), {("a", "gpu")})


def test_who_took_what_others_lack_is_found_and_nobody_whose_memory_was_there_before() -> None:
    taken = TakenReserves()
    assert taken.find("gpu", {"late": 9 * GIB}, {}, {}, lacks=True) == set()  # a new scheduler knows of nobody
    assert taken.find("gpu", {"late": 9 * GIB, "a": 9 * GIB}, {}, {}, lacks=True) == {"a"}
    assert taken.find("gpu", {"late": 9 * GIB, "a": 9 * GIB}, {}, {}, lacks=False) == set()
    assert taken.find("gpu", {"late": 9 * GIB, "a": 9 * GIB}, {}, {}, lacks=True) == set()  # external memory came
    assert taken.find("gpu", {"a": 9 * GIB + TOLERATED}, {}, {}, lacks=True) == set()
    assert taken.find("gpu", {"a": 9 * GIB + TOLERATED + 1}, {}, {}, lacks=True) == {"a"}
    assert taken.find("gpu", {"a": 9 * GIB + TOLERATED + 1}, {"a": TOLERATED + 1}, {}, lacks=True) == set()
    assert taken.find("gpu", {"a": 9 * GIB + TOLERATED + 1}, {"a": 7}, {}, lacks=True) == {"a"}
    assert taken.find("gpu", {}, {}, {}, lacks=True) == set()
    assert taken.find("gpu", {"a": 9 * GIB}, {}, {}, lacks=True) == {"a"}  # it gave it back, and took it again
    assert taken.find("other", {"a": 9 * GIB}, {}, {}, lacks=True) == set()


def test_what_children_keep_of_ended_processes_was_granted() -> None:
    """Others were granted it at once, and its container was ended for that."""
    taken = TakenReserves()
    assert taken.find("gpu", {"a": GIB}, {}, {"a": 3 * GIB}, lacks=False) == set()
    assert taken.find("gpu", {"a": 4 * GIB}, {}, {}, lacks=True) == set()
    assert taken.find("gpu", {"a": 4 * GIB}, {}, {}, lacks=True) == set()
    assert taken.find("gpu", {"a": 4 * GIB + TOLERATED + 1}, {}, {}, lacks=True) == {"a"}
    assert taken.find("gpu", {"a": 4 * GIB, "b": GIB}, {}, {}, lacks=True) == {"b"}
    assert taken.find("gpu", {"a": 0}, {}, {}, lacks=True) == set()
    assert taken.find("gpu", {"a": 3 * GIB}, {}, {}, lacks=True) == {"a"}  # they have ended by now


def test_who_goes_from_device_to_device_has_one_time_for_all() -> None:
    """By which a stranger held a card without a limit for 25 s on two, and would have for ever on six."""
    budget, due, now = OveruseBudget(10.0), set(), 0.0
    while not due and now < 60:
        _, due = budget.update({("a", f"gpu{int(now / 3) % 6}")}, now)
        now = min(now + 2.0, now + budget.pause)
    assert (due, now) == ({("a", "gpu3")}, pytest.approx(10.4))
    assert budget.spent == {"gpu0", "gpu1", "gpu2", "gpu3"}
    assert budget.update({("b", "gpu0")}, 10.6) == ({("b", "gpu0")}, set())
    assert budget.update({("b", "gpu0")}, 12.0) == (set(), set())  # another one's time is its own


def test_who_has_a_limit_on_one_device_and_none_on_another_has_one_time_as_well() -> None:
    budget, names = OveruseBudget(10.0), {"id": "volume", "other": "another"}
    for number in range(5):
        assert (
            budget.update({(("volume", "id")[number % 2], f"gpu{number % 2}")}, number * 2.0, known_as=names)[1]
            == set()
        )
    assert budget.update({("id", "gpu1")}, 10.0, known_as=names) == (set(), set())
    assert budget.update({("id", "gpu1")}, 10.2, known_as=names) == (set(), {("id", "gpu1")})
    assert budget.update({("other", "gpu1")}, 10.4, known_as=names) == ({("other", "gpu1")}, set())


def ends(who: Callable[[float], str], seconds: int, every: float = 2.0) -> dict[str, float]:
    """Return when each container is ended, in seconds.

    Args:
        who: the container that would be above its limit at a time, unless it was ended.
        seconds: of the story.
        every: seconds between audits.
    """
    budget, ended, now, audit = OveruseBudget(10.0), {}, 0.0, 0.0
    while now < seconds:
        over = {(who(now), "gpu")} if who(now) and who(now) not in ended else set()
        _, due = budget.update(over, now)
        ended |= {name: round(now, 1) for name, _ in due}
        audit = audit + every if now >= audit else audit
        now = min(audit, now + budget.pause)
    return ended


@pytest.mark.parametrize(
    ("burst", "pause", "every", "due"),
    [
        (99.0, 0.0, 2.0, 10.0),
        (8.0, 2.5, 2.0, 16.0),  # by which a stranger held six times its limit for most of the time
        (2.0, 2.0, 2.0, 28.2),
        (9.9, 9.9, 2.0, 22.0),
        (8.0, 30.0, 2.0, 82.0),
        (9.9, 60.0, 2.0, None),
        (2.0, 12.0, 2.0, None),
        (0.062, 0.938, 2.3, None),  # a moment each second, as the longest that was measured
        (0.062, 20.0, 10.0, None),
        (99.0, 0.0, 10.0, 10.0),
        (99.0, 0.0, 30.0, 30.0),
    ],
)
def test_pauses_do_not_undo_what_was_counted_but_moments_are_forgotten(
    burst: float, pause: float, every: float, due: float | None
) -> None:
    ended = ends(lambda now: "a" if now % (burst + pause) < burst else "", 100_000 if due is None else 100, every)
    assert ended == ({} if due is None else {"a": due})


@pytest.mark.parametrize(
    ("hold", "first", "above"), [(9.0, 10.2, 29), (4.0, 10.0, 23), (1.0, 10.2, 54), (0.5, 10.2, 79), (0.19, 0.0, 120)]
)
def test_a_ring_of_containers_has_one_budget(hold: float, first: float, above: int) -> None:
    """Each begins as the last one stops, for two minutes; `above`: seconds in which somebody was above the limit."""
    ended = ends(lambda now: f"{now // hold:.0f}", 120)
    slots = [(f"{number}", number * hold, (number + 1) * hold) for number in range(int(120 / hold))]
    took = sum(min(end, ended.get(name, end)) - start for name, start, end in slots)
    assert (min(ended.values(), default=0.0), round(took)) == (first, above)


def test_moments_of_honest_containers_beside_a_ring_end_none_of_them() -> None:
    random = Random(15)  # noqa: S311 - no secret
    budget, now, ended = OveruseBudget(10.0), 0.0, set()
    for _ in range(20_000):
        honest = {(f"honest{number}", "gpu") for number in range(10) if random.random() < 0.0031}
        _, due = budget.update({(f"{now // 9:.0f}", "gpu"), *honest}, now)
        ended |= {name for name, _ in due if name.startswith("honest")}
        now += budget.pause if budget.spent else 2.0
    assert (len(ended), now > 4_000) == (0, True)


def test_no_more_is_remembered_than_who_is_above_the_limit_and_what_was_overused() -> None:
    budget = OveruseBudget(10.0)
    for number in range(1000):
        budget.update({(f"c{number}", "gpu")}, number * 2.0)
    assert (len(budget._devices.running), len(budget._since), len(budget._spells._last)) == (1, 1, 3)
    assert len(budget._containers.running) == len(budget._places) == 6  # 2 s each, which are forgotten after 10
    budget.update(set(), 3000.0)
    budget.update(set(), 4000.0)
    assert (budget._devices.running, budget._containers.running, budget._places) == (set(), set(), {})
