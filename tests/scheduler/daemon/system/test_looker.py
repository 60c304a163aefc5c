"""Looks beside the event loop."""

import asyncio
import threading
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, TypeVar

import pytest

from convgpu.daemon.system.processes.looker import Looker

_MOST: Final = 20.0  # seconds for what takes milliseconds
T = TypeVar("T")


def run(play: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(play, _MOST))


def test_who_asks_for_many_looks_does_not_delay_those_of_another() -> None:
    goes_on, answers, asked = threading.Event(), list[object](), ["many"] * 20 + ["other"] * 2

    async def play() -> None:
        loop = asyncio.get_running_loop()
        looker, all_answered = Looker(loop), loop.create_future()

        def answer(found: object) -> None:
            answers.append(found)
            if len(answers) == len(asked):
                all_answered.set_result(None)

        def look(number: int) -> int:
            goes_on.wait()
            return number

        for number, owner in enumerate(asked):
            looker.ask(owner, partial(look, number), answer)
        goes_on.set()
        await all_answered
        assert not looker._waiting

    try:
        run(play())
    finally:
        goes_on.set()
    assert answers[:4] == [0, 20, 1, 21]
    assert answers[4:] == list(range(2, 20))  # each owner's in order


def test_where_no_thread_can_be_started_the_loop_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> list[int | None]:
        loop = asyncio.get_running_loop()
        looker, first, second = Looker(loop), loop.create_future(), loop.create_future()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            looker.ask("a", lambda: 1, first.set_result)
        looker.ask("a", lambda: 2, second.set_result)  # there are threads again
        return [await first, await second]

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    assert run(play()) == [1, 2]


def test_a_look_that_fails_is_answered_and_the_next_one_taken(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> int:
        raise MemoryError

    async def play() -> list[int | None]:
        loop = asyncio.get_running_loop()
        looker, first, second = Looker(loop), loop.create_future(), loop.create_future()
        looker.ask("a", fail, first.set_result)
        looker.ask("a", lambda: 2, second.set_result)
        return [await first, await second]

    assert run(play()) == [None, 2]
    assert "could not be looked at" in caplog.text
