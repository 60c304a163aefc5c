"""What follows from what a look at the devices finds."""

import asyncio
from typing import Any

import pytest

from convgpu.daemon.audit.attributor import Unlimited
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.enforcement import Enforcement, Findings
from convgpu.daemon.audit.overuse import OveruseEnforcer, OveruseRules
from convgpu.daemon.audit.report import AuditReport
from convgpu.daemon.audit.unlimited import UnlimitedContainers

ROW = ("a", "gpu")
STOP = OveruseRules("stop", after=0.0)


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


class Told:
    """In place of the history, of the sessions and of who ends processes: there are none, and all is kept."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []

    def add(self, _kind: str, container: str, _cause: str, **fields: object) -> None:
        self.told.append((container, fields["reason"]))

    def of(self, _container: str) -> tuple[()]:
        return ()

    def end(self, *_order: object) -> None: ...


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


def test_who_is_ended_is_told_once_however_often_a_look_misses_it() -> None:
    """A container that kept looks from seeing its memory was told as ended twice within a second."""
    told: Any = Told()
    overuse = OveruseEnforcer(told, told, AuditReport(), STOP, told)
    unlimited = UnlimitedContainers(told, AuditReport(), STOP, told)
    unlimited.see("gpu", [Unlimited("b", "id", 5, frozenset({7}))])
    index = ProcessIndex({}, {}, {})
    for now, due in [(1.0, True), (1.2, False), (1.4, True), (6.3, True), (6.5, False), (12.0, True)]:
        overuse.stop({"a"} if due else set(), {ROW}, index, now)
        unlimited.stop({"id"} if due else set(), index, now)
    assert told.told == [("a", "overuse"), ("b", "unlimited")] * 2
