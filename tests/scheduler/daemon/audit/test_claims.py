"""Who is above its limit only by what a search of the dead found, by the search after the look; figures are set."""

import asyncio
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from audit_parts import GIB, Cards, Parts

from convgpu.core import events as e
from convgpu.core.audit.attribution import ALL, Owner


class Unseen:
    """Searches have found so much of dead processes of `a`; the one after the look tells `then`."""

    def __init__(self, size: int, then: int | None) -> None:
        self.size, self.then = size, then

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
            parts.attributor._unseen = Unseen(size, then)
            parts.attributor.see_unlisted("one", 5 * GIB, GIB // 2)
            cards.used_bytes["one"] = 5 * GIB + GIB // 2
            for _ in range(3):
                await parts.audit.audit()
            over = parts.report.over["one"]
            assert (over.keys() == {"a"}) is is_over
            assert all(size == 5 * GIB for size in over.values())

    asyncio.run(check())
