"""No full collection by itself, and yet no cycle stays for good."""

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from convgpu.daemon.system.garbage_collection import INTERVAL, WHOLE_EVERY, GarbageCollection


class Cycle:
    def __init__(self) -> None:
        self.itself: Cycle | None = self


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def begin() -> Callable[[], None]:
    """Start collecting; return what lets one interval pass."""
    due: list[tuple[float, Callable[[], None]]] = []
    GarbageCollection(lambda seconds, call: due.append((seconds, call))).start()

    def pass_interval() -> None:
        (seconds, call) = due.pop()
        assert (seconds, due) == (INTERVAL, [])
        call()

    return pass_interval


def test_the_youngest_are_collected_early_and_all_others_never_by_themselves() -> None:
    young, _, _ = gc.get_threshold()
    begin()
    youngest, middle, oldest = gc.get_threshold()
    assert youngest < young
    assert min(middle, oldest) > 1_000_000
    assert gc.get_freeze_count() > 0


def test_a_new_cycle_is_collected_after_an_interval() -> None:
    pass_interval = begin()
    gone = weakref.ref(Cycle())
    pass_interval()
    assert gone() is None


def test_a_cycle_that_was_set_aside_is_collected_with_everything() -> None:
    pass_interval = begin()
    kept = Cycle()
    gone = weakref.ref(kept)
    pass_interval()
    del kept
    for _ in range(WHOLE_EVERY - 2):
        pass_interval()
    assert gone() is not None
    pass_interval()
    assert gone() is None
