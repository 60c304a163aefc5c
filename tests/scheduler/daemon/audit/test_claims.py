"""Who is above its limit only by what a search of the dead found, by the search after the look; figures are set."""

import asyncio
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from audit_parts import GIB, Cards, Parts

from convgpu.core import events as e
from convgpu.core.audit.attribution import ALL, Kept, MemorySample, Owner
from convgpu.core.audit.listed import Listing
from convgpu.daemon.audit.doubts.claims import Claims


class Unseen:
    """Searches have found so much of dead processes of `a`; the one after the look tells `then`."""

    def __init__(self, size: int, then: int | None) -> None:
        self.size, self.then = size, then
        self.hurried = 0

    def hurry(self) -> None:
        self.hurried += 1

    def follow(self, *_: object) -> None:
        pass

    def found(self, _device: str) -> Mapping[Owner, int]:
        return {Owner("a", "id"): self.size}

    def found_since(self, volume: str, device: str, since: float) -> int | None:
        assert (volume, device) == ("a", "one")
        assert since > 0
        return self.then


@pytest.mark.parametrize(
    ("size", "then", "is_over"),
    [
        (5 * GIB, 5 * GIB, True),
        (5 * GIB, GIB + 1, True),  # enough for it to be above
        (5 * GIB, GIB - 1, False),
        (5 * GIB, 0, False),  # it had been freed before the look
        (5 * GIB, None, False),  # no search has ended
        (ALL, None, True),  # it disturbs them
    ],
)
def test_what_a_search_found_counts_when_the_next_one_finds_it(
    tmp_path: Path, size: int, then: int | None, is_over: bool
) -> None:
    """Beside a neighbour's 5 GiB that are nobody's: four of five honest containers were ended."""

    async def check() -> None:
        cards = Cards()
        parts = Parts(cards, tmp_path)
        with closing(parts.store):
            for name in "ab":
                parts.driver.dispatch(e.ContainerCreated(name, {"one": 4 * GIB}))
                parts.driver.dispatch(e.ContainerStarted(name))
            parts.attributor.claims.unseen = unseen = Unseen(size, then)
            parts.attributor.claims.see_unlisted("one", 5 * GIB, GIB // 2)
            cards.used_bytes["one"] = 5 * GIB + GIB // 2
            for _ in range(3):
                await parts.audit.audit()
            over = parts.report.over["one"]
            assert (over.keys() == {"a"}) is is_over
            assert (unseen.hurried > 0) is (then is None and size < ALL)
            assert all(size == 5 * GIB for size in over.values())

    asyncio.run(check())


@pytest.mark.parametrize(("then", "takes"), [(2 * GIB, True), (None, False), (0, False)])
def test_what_is_counted_again_for_an_allocation_is_taken_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: int | None, takes: bool
) -> None:
    """Who hands it from one dead process to the next has none of it when it is asked about; the next search tells."""

    async def check() -> None:
        cards = Cards()
        parts = Parts(cards, tmp_path)
        with closing(parts.store):
            parts.driver.dispatch(e.ContainerCreated("a", {"one": 4 * GIB}))
            parts.driver.dispatch(e.ContainerStarted("a"))
            parts.attributor.claims.see_unlisted("one", 0, GIB // 2)
            lacks = [False]
            monkeypatch.setattr(parts.driver.machine, "is_reserved_taken", lambda _: lacks[0])
            await parts.audit.audit()
            parts.attributor.claims.unseen = Unseen(2 * GIB, then)
            cards.used_bytes["one"] += 2 * GIB
            for _ in range(2):
                await parts.audit.audit()
                parts.driver.dispatch(e.UnleasedMemory("a", "one", 0))  # somebody asked
                lacks[0] = True
            found = parts.audit._find_takers(parts.driver.machine.snapshot())
            assert (found == {("a", "one")}) is takes

    asyncio.run(check())


def test_what_others_look_at_is_not_noted() -> None:
    """Samples that its owner asked for, in which as much was listed for a moment, hid 14 GiB of 600 MiB."""
    claims = Claims(Unseen(5 * GIB, None), lambda *_: True)  # type: ignore[arg-type]
    claims.see_unlisted("one", 0, 0)
    sample = MemorySample("one", 16 * GIB, 5 * GIB, {})
    listed = Listing({}, {}, (Kept(7, 5 * GIB, Owner("a", "id"), is_left=False),))
    freed = Listing({}, {}, ())

    def added() -> int:
        return sum(one.size for one in claims.add(sample, freed, lambda: 0).kept)

    claims.add(sample, listed, lambda: 0)
    assert added() == 5 * GIB
    claims.note("one", listed.kept)
    assert added() == 0


def test_what_was_listed_counts_for_as_long_as_three_searches_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was freed is listed no more and found until then: it would be claimed from what is nobody's of others."""
    now = [100.0]
    monkeypatch.setattr("convgpu.daemon.audit.doubts.claims.time.monotonic", lambda: now[0])
    claims = Claims(Unseen(5 * GIB, None), lambda *_: True)  # type: ignore[arg-type]
    claims.see_unlisted("one", 0, 0)
    claims.note("one", [Kept(7, 3 * GIB, Owner("a", "id"), is_left=False)])
    claimed = []
    for now[0] in (101.4, 101.6):
        added = claims.add(MemorySample("one", 16 * GIB, 5 * GIB, {}), Listing({}, {}, ()), lambda: 0)
        claimed.append(sum(one.size for one in added.kept))
    assert claimed == [2 * GIB, 5 * GIB]
