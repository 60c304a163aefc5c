"""Callers who wait for the Engine about one container leave room for all others."""

from contextlib import ExitStack, contextmanager
from threading import Thread

import pytest

from convgpu.authz.ports import EngineUnreachable
from convgpu.plugin.engine.waiting import Waiting

STUCK = "0a" * 32


@contextmanager
def waiting_for(waiting, *names):
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(waiting.about(name))
        yield


def asks(waiting, name):
    """Tell whether one may ask."""
    try:
        with waiting.about(name):
            return True
    except EngineUnreachable:
        return False


def test_eight_wait_for_one_container_and_others_are_asked_about():
    waiting = Waiting(patience=0.01)
    names = [STUCK, f"/{STUCK}", *(STUCK[:length] for length in range(1, 7))]
    with waiting_for(waiting, *names):
        found = [asks(waiting, name) for name in (STUCK, STUCK[:30], STUCK[:1], "web", "1b" * 32)]
    assert found == [False, False, False, True, True]
    assert asks(waiting, STUCK) is True


def test_only_an_id_has_beginnings_that_name_it():
    waiting = Waiting(patience=0.01)
    with waiting_for(waiting, *["a"] * 8):
        assert [asks(waiting, name) for name in ("a", "app", "ab")] == [False, True, False]


def test_whoever_waits_for_containers_leaves_room_for_who_names_none():
    waiting = Waiting(patience=0.01)
    with waiting_for(waiting, *(f"{number:02}" for number in range(24))):
        assert asks(waiting, "web") is False
    assert asks(waiting, "web") is True


def test_one_more_waits_for_answers_that_are_not_late():
    waiting = Waiting(patience=60)
    done = []
    with waiting_for(waiting, *[STUCK] * 8):
        more = Thread(target=lambda: done.append(asks(waiting, STUCK)))
        more.start()
        with waiting_for(waiting, "web"):
            pass  # an answer about another container: it waits on
        assert done == []
    more.join(60)
    assert done == [True]


def test_nobody_waits_behind_late_answers():
    waiting = Waiting(patience=0.05)
    with waiting_for(waiting, *[STUCK] * 8):
        assert asks(waiting, STUCK) is False  # by now they are late
        with (
            pytest.raises(EngineUnreachable, match="does not answer about containers such as 0a0a"),
            waiting.about(STUCK),
        ):
            pass


def test_a_question_that_fails_leaves_room():
    waiting = Waiting(patience=0.01)
    for _ in range(30):
        with pytest.raises(KeyError), waiting.about(STUCK):
            raise KeyError
    assert asks(waiting, STUCK) is True
