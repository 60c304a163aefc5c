"""Which processes are remembered by their PIDs and starts, so that the driver can be asked about them later."""

from collections.abc import Mapping

from convgpu.core.audit.attribution import MemorySample, Owner
from convgpu.core.audit.listed import ListedProcesses, ProcessFacts

A = Owner("a", "id-a", has_session=True)
UNKNOWN = Owner(is_known=False)


def test_the_dead_and_who_had_their_pids_are_remembered_for_the_next_question() -> None:
    processes = ListedProcesses()

    def see(rows: Mapping[int, tuple[int, int]], now: float) -> tuple[dict[int, str | None], set[tuple[int, int]]]:
        held = {pid: size for pid, (start, size) in rows.items() if start}
        ended = {pid: size for pid, (start, size) in rows.items() if not start}
        starts = {pid: start for pid, (start, _) in rows.items() if start}
        sample = MemorySample("gpu", 100, 50, held, ended=ended, starts=starts, answered=now - 0.5, listed=held)
        replaced = processes.replaced(sample)
        yes = lambda _: True  # noqa: E731 - for five facts
        facts = ProcessFacts(lambda _: A, lambda *_: UNKNOWN, lambda _: None, yes, yes, yes, yes)
        processes.update(sample, facts, now)
        return replaced, processes.remembered("gpu")

    assert see({1: (7, 30)}, 0.0) == ({}, {(1, 7)})
    assert see({1: (9, 30)}, 2.0) == ({1: "a"}, {(1, 7), (1, 9)})
    assert see({1: (9, 30)}, 4.0) == ({1: None}, {(1, 7), (1, 9)})  # it was known to be dead
    assert see({1: (0, 30)}, 6.0) == ({}, {(1, 7), (1, 9)})
    assert see({}, 8.0) == ({}, set())
