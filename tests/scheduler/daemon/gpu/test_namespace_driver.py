"""What a program within a PID namespace asks the kernel's driver."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import pytest

from convgpu.daemon.gpu import namespace_driver, namespace_program
from convgpu.daemon.gpu.namespace_driver import NamespaceDriver
from convgpu.daemon.gpu.namespace_lists import NamespaceAnswer


class Kernel:
    """A driver of two devices; keeps what it is asked."""

    devices = ("GPU-0", "GPU-1")

    def __init__(self, held: Mapping[int, int], lost: Sequence[str] = ()) -> None:
        self.sizes = dict(held)
        self.lost = lost
        self.searched: list[range] = []

    def search(self, uuid: str, pids: range) -> dict[int, int]:
        if uuid == "GPU-1":
            self.searched.append(pids)
        return self.held(uuid, pids)

    def held(self, uuid: str, pids: Iterable[int]) -> dict[int, int]:
        if uuid in self.lost:
            raise OSError(None, "status 0xf")
        return {pid: self.sizes[pid] for pid in pids if pid in self.sizes and uuid == "GPU-1"}


def driver(kernel: Kernel) -> NamespaceDriver:
    asked = cast("Any", object.__new__(NamespaceDriver))
    asked._kernel = kernel
    return cast("NamespaceDriver", asked)


def test_a_search_begins_anywhere_and_comes_around() -> None:
    kernel = Kernel({1: 7, 4999: 8, 5000: 9})
    assert driver(kernel).search(5000, 4500) == ({"GPU-0": {}, "GPU-1": {1: 7, 4999: 8}}, 5000)
    assert kernel.searched == [range(4500, 5000), range(1, 2000), range(2000, 4000), range(4000, 4500)]


def test_a_search_ends_when_its_time_is_over_and_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace_driver, "_SLICE", 0.0)
    kernel = Kernel({})
    searched = [driver(kernel).search(5000, first)[1] for first in (4500, 0, 2000)]
    assert (kernel.searched, searched) == ([range(4500, 5000), range(1, 2000), range(2000, 4000)], [500, 2000, 2000])


def test_a_lost_device_keeps_nobody_from_being_told_of_the_others() -> None:
    found = namespace_program._answer(driver(Kernel({5: 7}, ["GPU-0"])), [5], 99, 0)
    assert found == NamespaceAnswer({"GPU-1": {5: 7}}, searched=99)
    assert namespace_program._answer(driver(Kernel({5: 7}, Kernel.devices)), [5], 99, 0) == NamespaceAnswer()


def test_who_was_found_counts_with_what_it_had_then() -> None:
    """Those that were known are asked about at once. Who sees that frees its memory, and does not know its turn."""
    kernel = Kernel({5: 7, 6: 8})

    class Fleeing(Kernel):
        def held(self, uuid: str, pids: Iterable[int]) -> dict[int, int]:
            found = super().held(uuid, pids)
            if uuid == "GPU-1" and found:
                self.sizes.pop(max(found))
            return found

    kernel = Fleeing({5: 7, 6: 8})
    found = namespace_program._answer(driver(kernel), [6], 99, 50)
    assert found == NamespaceAnswer({"GPU-0": {}, "GPU-1": {5: 7, 6: 8}}, searched=99)
