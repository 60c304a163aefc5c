"""Whose memory is charged, while its process takes long to end."""

from dataclasses import replace

import pytest

from convgpu.core.audit.attribution import TOLERATED, MemorySample
from convgpu.core.audit.listed import ListedProcesses

from .test_listed import A, facts_of

GIB = 1 << 30


@pytest.mark.parametrize(("counted", "is_excused"), [(3 * GIB, True), (2 * GIB, False)])
def test_who_takes_long_to_end_is_excused_for_what_the_limit_counts_anyway(counted: int, is_excused: bool) -> None:
    facts = replace(facts_of(1, owner=A), counted_of={1: counted}.__getitem__)
    processes, size = ListedProcesses(), 3 * GIB + TOLERATED
    processes.update(MemorySample("gpu", 16 * GIB, size, {1: size}, starts={1: 7}, listed={1: size}), facts, 0.0)
    for now, excused in ((0.5, True), (5.0, is_excused)):
        sample = MemorySample("gpu", 16 * GIB, size, {}, ended={1: size}, listed={}, exiting={1})
        [kept] = processes.update(sample, facts, now).kept
        assert kept.is_exiting is excused
