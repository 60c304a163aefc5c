"""Whom the audit asks within PID namespaces, and what it makes of the answers; in real namespaces."""

import asyncio
import errno
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from contained_program import first_process

from convgpu.core.audit.attribution import MemorySample, Told
from convgpu.daemon.audit.doubts import namespaces
from convgpu.daemon.audit.doubts.namespaces import NamespaceQuestions
from convgpu.daemon.gpu.namespace_lists import NamespaceAnswer, NamespaceQuestion
from convgpu.daemon.gpu.nvml import DeviceError, UnnamedError
from convgpu.daemon.system.procfs import start_time

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")


class Devices:
    """Answers each question with what it was told to, or fails; keeps the questions."""

    def __init__(self, *answers: NamespaceAnswer | Exception) -> None:
        self.answers = list(answers)
        self.questions: list[Sequence[NamespaceQuestion]] = []
        self.most = 99  # questions for which there is time

    def used_inside(self, questions: Sequence[NamespaceQuestion]) -> list[NamespaceAnswer]:
        self.questions.append([one for one in questions if one.inner])
        answers = [self.answers.pop(0) for one in self.questions[-1][: self.most]]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return cast("list[NamespaceAnswer]", answers)


def open_namespaces() -> int:
    """Return how many descriptors of PID namespaces this process has."""
    links = Path("/proc/self/fd").iterdir()
    return sum(str(link.readlink()).startswith("pid:[") for link in links if link.is_symlink())


def doubt(pid: int, size: int) -> tuple[MemorySample, dict[str, dict[int, dict[int, bool]]]]:
    start = start_time(pid)
    return MemorySample("gpu", 99, 99, {pid: size}, starts={pid: start}, listed={pid: size}), {
        "gpu": {pid: {start: True}}
    }


def answer(pid: int, own: int, listed: int) -> NamespaceAnswer:
    return NamespaceAnswer({"gpu": {1: own}}, {"gpu": {pid: listed}})


def asking(devices: Devices) -> NamespaceQuestions:
    return NamespaceQuestions(cast("Any", devices))


async def see_the_end() -> tuple[NamespaceQuestions, MemorySample, dict[str, dict[int, dict[int, bool]]]]:
    """Return who saw a process that has ended since, what is listed of it then, and a doubt about it."""
    with first_process() as pid:
        questions = asking(Devices(answer(pid, 30, 80)))
        sample, doubts = doubt(pid, 80)
        await questions.ask([sample], {"gpu": {}})
    return questions, replace(sample, held={}, starts={}, listed={}, ended={pid: 80}), doubts


def test_what_is_told_is_asked_again_only_where_others_have_some_or_it_changed() -> None:
    async def run() -> None:
        with first_process() as pid:
            answers = [answer(pid, 30, 80), answer(pid, 80, 80), answer(pid, 90, 85)]
            devices = Devices(*answers)
            questions = asking(devices)
            sample, doubts = doubt(pid, 80)
            [start] = sample.starts.values()
            told = [(await questions.ask([sample], doubts))[0].told for _ in range(3)]
            assert told == [{pid: Told({start: 30}, 50)}, *[{pid: Told({start: 80}, 0)}] * 2]
            assert [[(one.inner, one.outer) for one in each] for each in devices.questions if each] == [
                [([1], [pid])]
            ] * 2
            grown, _ = doubt(pid, 90)
            assert (await questions.ask([grown], doubts))[0].told == {pid: Told({start: 90}, 0)}
            assert await questions.ask([grown], {}) == [grown]  # nobody is in doubt any more
            assert await questions.ask([], {}) == []
            questions.close()

    asyncio.run(run())


def test_who_has_ended_is_asked_about_as_long_as_somebody_has_its_memory() -> None:
    """Nobody was in doubt about it while it lived; and what is seen of another device is no reason to forget it."""

    async def run() -> None:
        questions, ended, doubts = await see_the_end()
        [(pid, [start])] = doubts["gpu"].items()
        await questions.ask([replace(ended, device="other", ended={})], {})
        assert (await questions.ask([ended], doubts))[0].told == {pid: Told({start: 30}, 50)}
        assert open_namespaces() == 1
        await questions.ask([ended], {})
        assert open_namespaces() == 0

    asyncio.run(run())


def test_of_many_namespaces_those_are_asked_that_were_not_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "_MOST", 8)

    async def run() -> None:
        with ExitStack() as stack:
            pids = [stack.enter_context(first_process()) for _ in range(9)]
            devices = Devices(*(answer(0, 0, 0) for _ in range(16)))
            questions = asking(devices)
            starts = {pid: start_time(pid) for pid in pids}
            held = {pid: 80 + row for row, pid in enumerate(pids)}
            sample = MemorySample("gpu", 99, 99, held, starts=starts, listed=held)
            doubts = {"gpu": {pid: {0: True, start: True} for pid, start in starts.items()}}
            for _ in range(2):
                await questions.ask([sample], doubts)
            first, second = ([one.outer[0] for one in each] for each in devices.questions)
            assert (first, second[0]) == (pids[:0:-1], pids[0])
            assert len(second) == 8
            questions.close()

    asyncio.run(run())


def test_who_is_ended_for_asking_says_so_and_who_fails_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        with first_process() as pid:
            trouble = NamespaceAnswer(trouble="it has ended")
            questions = asking(Devices(NamespaceAnswer(is_disturbed=True), DeviceError("no"), trouble))
            sample, doubts = doubt(pid, 80)
            [start] = sample.starts.values()
            found = [(await questions.ask([sample], doubts))[0].told for _ in range(3)]
            assert found == [{pid: Told({}, 0, {start})}, {}, {}]
            questions.close()

    asyncio.run(run())
    assert [record.getMessage() for record in caplog.records] == ["no"]


def test_a_driver_that_cannot_tell_is_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        with first_process() as pid:
            devices = Devices(UnnamedError("driver 560"))
            questions = asking(devices)
            sample, doubts = doubt(pid, 80)
            assert [(await questions.ask([sample], doubts))[0] for _ in range(2)] == [sample] * 2
            assert len(devices.questions) == 1
            questions.close()

    caplog.set_level("INFO")
    asyncio.run(run())
    text = "driver 560: what a program takes past the hook with the ID of a dead one can be nobody's"
    assert [record.getMessage() for record in caplog.records if record.name.endswith("namespaces")] == [text]


def test_nobody_is_asked_in_our_own_namespace_or_about_an_earlier_process() -> None:
    async def run() -> None:
        devices = Devices()
        questions = asking(devices)
        sample, doubts = doubt(os.getpid(), 80)
        assert await questions.ask([sample], doubts) == [sample]
        with first_process() as pid:
            sample, _ = doubt(pid, 80)
            assert await questions.ask([sample], {"gpu": {pid: {1: True}}}) == [sample]
        assert devices.questions == []

    asyncio.run(run())


def test_who_is_dead_is_asked_about_later_though_nobody_was_in_doubt_for_long() -> None:
    """Who keeps its memory can make more of it when the dead one's pid is another's at last."""

    async def run() -> None:
        questions, ended, doubts = await see_the_end()
        [(pid, [start])] = doubts["gpu"].items()
        for _ in range(3):
            await questions.ask([ended], {"gpu": {}}, {"gpu": {(pid, start)}})
        assert (await questions.ask([ended], doubts))[0].told == {pid: Told({start: 30}, 50)}
        questions.close()

    asyncio.run(run())


def test_of_whom_there_was_no_time_to_ask_what_was_told_last_is_said() -> None:
    async def run() -> None:
        with first_process() as one, first_process() as other:
            devices = Devices(answer(one, 30, 80), answer(other, 20, 80))
            questions = asking(devices)
            starts = {pid: start_time(pid) for pid in (one, other)}
            held = {one: 80, other: 70}
            sample = MemorySample("gpu", 99, 99, held, starts=starts, listed=held)
            doubts = {"gpu": {pid: {0: True, start: True} for pid, start in starts.items()}}
            await questions.ask([sample], doubts)
            devices.answers, devices.most = [answer(one, 40, 80)] * 2, 1
            for _ in range(2):
                [found] = await questions.ask([sample], doubts)
                assert found.told == {
                    one: Told({starts[one]: 40}, 40),
                    other: Told({}, unasked={starts[other]: 20}),
                }
                devices.answers = [answer(one, 40, 80)]
                questions._turns.clear()  # the same one again
            questions.close()

    asyncio.run(run())


def test_what_another_has_there_who_had_its_pid_is_taken_off_and_not_what_is_listed_with_that_ones() -> None:
    """The dead one of the place is listed with the ID of one that is elsewhere, who has more than it."""

    async def run() -> None:
        with first_process() as one, first_process() as elsewhere:
            answers = [
                NamespaceAnswer({"gpu": {1: 60}}, {"gpu": {one: 50, elsewhere: 90}}),
                NamespaceAnswer({"gpu": {1: 80}}, {"gpu": {elsewhere: 90}}),
            ]
            devices = Devices(*answers)
            questions = asking(devices)
            starts = {pid: start_time(pid) for pid in (one, elsewhere)}
            held = {one: 50, elsewhere: 90}
            sample = MemorySample("gpu", 999, 999, held, starts=starts, listed=held)
            await questions.ask([sample], {"gpu": {}})
            # A dead one of the first place had the second one's ID, and its own there was the first one's.
            questions._places[elsewhere, 5] = questions._places[one, starts[one]]
            remembered = {"gpu": {(elsewhere, 5)}}
            doubts = {"gpu": {elsewhere: {5: True, starts[elsewhere]: True}, one: {starts[one]: True}}}
            [found] = await questions.ask([sample], doubts, remembered)
            assert found.told[one] == Told({starts[one]: 50}, 0)  # 60 less the 10 of the dead one
            questions.close()

    asyncio.run(run())


def test_containers_are_asked_about_before_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "_MOST", 1)

    async def run() -> None:
        with first_process() as one, first_process() as other:
            devices = Devices(*(answer(0, 0, 0) for _ in range(3)))
            questions = asking(devices)
            starts = {pid: start_time(pid) for pid in (one, other)}
            held = {one: 10, other: 99}
            sample = MemorySample("gpu", 999, 999, held, starts=starts, listed=held)
            doubts = {"gpu": {pid: {0: False, starts[pid]: pid == one} for pid in starts}}
            for _ in range(3):
                await questions.ask([sample], doubts)
            assert [[question.outer for question in each] for each in devices.questions] == [[[one]]] * 3
            questions.close()

    asyncio.run(run())


def test_where_no_descriptors_are_left_nobody_is_asked_and_none_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        with first_process() as one, first_process() as other:
            devices = Devices()
            questions = asking(devices)
            starts = {pid: start_time(pid) for pid in (one, other)}
            held = dict.fromkeys(starts, 80)
            sample = MemorySample("gpu", 99, 99, held, starts=starts, listed=held)
            await questions.ask([sample], {})
            before, dup, made = open_namespaces(), os.dup, list[int]()

            def fail(descriptor: int) -> int:
                if made:
                    raise OSError(errno.EMFILE, "no descriptors")
                made.append(dup(descriptor))
                return made[0]

            monkeypatch.setattr(os, "dup", fail)
            doubts = {"gpu": {pid: {start: True} for pid, start in starts.items()}}
            assert await questions.ask([sample], doubts) == [sample]
            assert (open_namespaces(), len(made), devices.questions) == (before, 1, [])
            questions.close()

    asyncio.run(run())
