"""What contexts take, by the driver's own counts: of the process, and of the device."""

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest

from convgpu.daemon.gpu.context_sizes import UNKNOWN, ContextSizes
from convgpu.daemon.gpu.nvml import DeviceError, Devices
from convgpu.daemon.gpu.nvml_executor import NvmlExecutor

MIB = 1 << 20
CARD = "GPU-1"
CONTEXT = 518 * MIB


class Counts:
    """What NVML would say."""

    def __init__(self, held: dict[int, int], used: int) -> None:
        self.held, self.amount = held, used

    def used(self, _uuid: str) -> int:
        return self.amount

    def used_by(self, _uuid: str) -> Mapping[int, int]:
        if self.amount < 0:
            raise DeviceError("gone")
        return self.held


def contexts(counts: Counts, own: int = 0) -> ContextSizes:
    return ContextSizes(NvmlExecutor(cast("Devices", counts)), {CARD: own})


def held(learner: ContextSizes, pid: int) -> int | None:
    return asyncio.run(learner.held(CARD, pid))


def test_what_the_process_takes_beside_its_count_is_part_of_it() -> None:
    counts = Counts({7: CONTEXT}, CONTEXT + 9 * MIB + 600 * MIB)
    learner = contexts(counts, own=600 * MIB)
    assert learner.size(CARD, 1 << 40) == UNKNOWN
    assert asyncio.run(learner.measure(CARD, 7, UNKNOWN, 0)) == CONTEXT + 9 * MIB
    assert learner.size(CARD, 1 << 40) == CONTEXT + 9 * MIB
    counts.held = {7: CONTEXT + 100 * MIB}  # whatever others do now, it was learned
    assert asyncio.run(learner.measure(CARD, 7, CONTEXT + 9 * MIB, 60 * MIB)) == CONTEXT + 49 * MIB


def test_it_is_shared_by_all_contexts() -> None:
    counts = Counts({7: CONTEXT, 8: CONTEXT, 9: 4 * MIB}, 2 * CONTEXT + (4 + 18) * MIB)
    learner = contexts(counts)
    assert held(learner, 7) == CONTEXT + 9 * MIB
    counts.amount += 4096 * MIB  # managed memory
    assert asyncio.run(learner.unowned(CARD)) == 4096 * MIB


def test_many_small_processes_do_not_pass_memory_of_somebody_else_for_it() -> None:
    """With 300 of 2 MiB each and 4 GiB that was nobody's each context was charged with 13.6 MiB more."""
    counts = Counts({7: CONTEXT} | dict.fromkeys(range(8, 308), 2 * MIB), CONTEXT + (600 + 6 + 4096) * MIB)
    learner = contexts(counts)
    assert held(learner, 7) == CONTEXT
    assert asyncio.run(learner.unowned(CARD)) == (4096 + 6) * MIB
    counts.amount -= 4096 * MIB
    assert held(learner, 7) == CONTEXT + 6 * MIB


@pytest.mark.parametrize("beside", [-30 * MIB, 0, 17 * MIB, 4096 * MIB])
def test_what_is_more_or_less_than_that_is_somebody_elses(beside: int) -> None:
    """Memory that settles, or of a program that NVML does not name."""
    assert held(contexts(Counts({7: CONTEXT}, CONTEXT + beside)), 7) == CONTEXT


class Moving(Counts):
    """Process 8 takes 5 MiB after its count was asked for, and before the device's."""

    def used(self, _uuid: str) -> int:
        self.held = {7: CONTEXT, 8: 9 * MIB}
        return sum(self.held.values()) + 9 * MIB


def test_what_others_take_between_two_questions_is_not_learned() -> None:
    learner = contexts(Moving({7: CONTEXT, 8: 4 * MIB}, 0))
    assert held(learner, 7) == CONTEXT
    assert held(learner, 7) == CONTEXT + 9 * MIB


def test_a_process_that_the_driver_does_not_know_holds_nothing() -> None:
    assert held(contexts(Counts({7: CONTEXT}, CONTEXT + 9 * MIB)), 8) == 0
    assert held(contexts(Counts({7: CONTEXT}, -1)), 7) is None  # nobody can say


def test_the_least_that_a_context_takes_is_what_was_seen_last_and_no_more_than_any_card_takes() -> None:
    told: list[dict[str, int]] = []
    counts = Counts({7: CONTEXT}, CONTEXT)
    executor = NvmlExecutor(cast("Devices", counts))
    learner = ContextSizes(executor, {CARD: 0}, {CARD: 2 * CONTEXT}, lambda least: told.append(dict(least)))
    assert learner.size(CARD, 1 << 40) == UNKNOWN  # the charge of a first context is the careful one
    asyncio.run(learner.measure(CARD, 7, UNKNOWN, 0))
    asyncio.run(learner.measure(CARD, 7, CONTEXT, 0))
    assert told == [{CARD: CONTEXT}]
    counts.held, counts.amount = {7: 2 * UNKNOWN}, 2 * UNKNOWN
    other = ContextSizes(executor, {CARD: 0})
    asyncio.run(other.measure(CARD, 7, UNKNOWN, 0))
    assert (other.size(CARD, 1 << 40), other.least) == (2 * UNKNOWN, {CARD: UNKNOWN})


def test_what_a_program_says_of_less_than_a_context_is_not_believed_for_ever() -> None:
    """A process that has 2 MiB and no context says that it has one; it lasted until the scheduler ended."""
    counts = Counts({7: CONTEXT, 8: 2 * MIB}, CONTEXT + 2 * MIB)
    learner = contexts(counts)
    asyncio.run(learner.measure(CARD, 7, UNKNOWN, 0))
    asyncio.run(learner.measure(CARD, 8, CONTEXT, 0))
    sizes = []
    for _ in range(8):
        sizes.append(learner.size(CARD, 1 << 40))
        asyncio.run(learner.measure(CARD, 7, sizes[-1], 0))
    assert sizes == [2 * MIB] * 8
    assert (learner.size(CARD, 1 << 40), learner.least) == (CONTEXT, {CARD: CONTEXT})
