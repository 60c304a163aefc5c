"""What follows from what a look at the devices finds."""

import asyncio
from typing import Any

import pytest

from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.enforcement import Enforcement, Findings
from convgpu.daemon.audit.overuse import OveruseRules

ROW = ("a", "gpu")


class Enforcers:
    """In place of those who end containers: knows who was to be ended, and who cannot be."""

    def __init__(self, dying: set[str]) -> None:
        self.dying = dying
        self.ended: list[set[str]] = []

    def outlives(self, container: str) -> bool:
        return container in self.dying

    def tell(self, *_rows: Any) -> None: ...

    def look(self, _index: ProcessIndex) -> None: ...

    def stop(self, expired: set[str], *_rows: Any) -> None:
        self.ended.append(expired)

    async def judged(self, _index: ProcessIndex) -> tuple[set[Any], set[str]]:
        return set(), set()


@pytest.mark.parametrize(
    ("action", "dying", "spent", "ended"),
    [
        ("stop", set(), {"gpu"}, {"a"}),
        ("stop", {"a"}, set(), {"a"}),
        ("warn", {"a"}, {"gpu"}, set()),
    ],
)
def test_who_was_ended_and_cannot_end_takes_no_time_of_others(
    action: str, dying: set[str], spent: set[str], ended: set[str]
) -> None:
    """A stranger's container took minutes to end, and an innocent that was above its limit for 0.3 s was ended, too."""
    enforcers, others = Enforcers(dying), Enforcers(set())
    ports: Any = (enforcers, others, others)
    enforcement = Enforcement(*ports, OveruseRules(action, after=0.0))
    asyncio.run(enforcement.enforce(Findings(over={ROW}), ProcessIndex({}, {}, {})))
    assert (enforcement.spent, enforcers.ended) == (spent, [ended])
