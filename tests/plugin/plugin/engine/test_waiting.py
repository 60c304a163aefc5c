"""Callers who wait for the Engine about one thing cost others nothing."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from socket import socketpair
from threading import Event, Thread

import pytest
from daemon import wait_until

from convgpu.authz.ports import EngineHolds
from convgpu.plugin.engine.waiting import Waiting

STUCK = "container " + "0a" * 32


@contextmanager
def waiting_for(waiting, *names):
    with ExitStack() as stack:
        yield [stack.enter_context(waiting.about(name)) for name in names]


def fail():
    raise KeyError


def asks(waiting, name):
    """Tell whether one may ask, and gets no answer."""
    try:
        with waiting.about(name):
            fail()
    except KeyError:
        return True
    except EngineHolds:
        return False


def test_eight_wait_for_one_container_and_others_are_asked_about():
    waiting = Waiting(patience=0.01)
    names = [STUCK] * 2 + [STUCK[:length] for length in range(11, 17)]
    with waiting_for(waiting, *names):
        others = (STUCK, STUCK[:30], STUCK[:11], "container web", "container " + "1b" * 32, "volume 0a")
        found = [asks(waiting, name) for name in others]
    assert found == [False, False, False, True, True, True]
    assert asks(waiting, STUCK) is True


def test_only_an_id_has_beginnings_that_name_it():
    waiting = Waiting(patience=0.01)
    with waiting_for(waiting, *["container a"] * 8):
        found = [asks(waiting, f"container {name}") for name in ("a", "app", "ab")]
    assert found == [False, True, False]


def test_whoever_finds_no_place_gets_that_of_the_latest_answer():
    waiting = Waiting(patience=0.01, places=3)
    mine, others = socketpair()

    def lose():
        with waiting.about(STUCK) as place, waiting.about("container b"), waiting.about("container c"):
            place.keep(mine)
            with waiting.about("container web"):
                # Its connection ends, and so does whoever reads from it.
                assert (place.lost, mine.recv(1)) == (True, b"")
            fail()

    with mine, others, pytest.raises(EngineHolds, match=r"has not answered about container 0a0a.* for 1 s"):
        lose()


def test_who_lost_the_place_before_the_connection_was_there():
    waiting = Waiting(patience=0.01, places=1)
    mine, others = socketpair()
    with mine, others, ExitStack() as stack:
        place = stack.enter_context(waiting.about(STUCK))
        with waiting.about("container web"):
            place.keep(mine)
            assert mine.recv(1) == b""


def test_silence_counts_from_the_first_question_whoever_asks_now():
    """Who asks about a held container all the time has no place that others want; the name is no way around that."""
    waiting = Waiting(patience=0.05, places=2)
    assert asks(waiting, STUCK)
    with waiting_for(waiting, "container web") as [web]:
        Event().wait(0.06)
        with waiting_for(waiting, STUCK[:20]) as [again]:
            assert asks(waiting, "container other")
            assert (web.lost, again.lost) == (False, True)


def test_an_answer_ends_the_silence():
    waiting = Waiting(patience=0.05, places=2)
    assert asks(waiting, STUCK)
    with waiting_for(waiting, STUCK):
        pass
    with waiting_for(waiting, "container web") as [web]:
        Event().wait(0.06)
        with waiting_for(waiting, STUCK) as [again]:
            assert asks(waiting, "container other")
            assert (web.lost, again.lost) == (True, False)


def test_nobody_loses_a_place_before_the_answer_is_late():
    waiting = Waiting(patience=60, places=2)
    done = []
    with waiting_for(waiting, "container a"):
        with waiting_for(waiting, "container b") as [place]:
            more = Thread(target=lambda: done.append(asks(waiting, "container web")))
            more.start()
            more.join(0.05)
            assert (done, place.lost) == ([], False)
        more.join(60)
        assert done == [True]


def test_one_more_waits_for_answers_that_are_not_late():
    waiting = Waiting(patience=60)
    done = []
    with waiting_for(waiting, *[STUCK] * 8):
        more = Thread(target=lambda: done.append(asks(waiting, STUCK)))
        more.start()
        with waiting_for(waiting, "container web"):
            pass  # an answer about another container: it waits on
        assert done == []
    more.join(60)
    assert done == [True]


def test_who_came_first_asks_first_and_did_not_wait_for_the_engine():
    waiting, order, threads = Waiting(patience=60), [], []

    def ask(number):
        with waiting.about(STUCK) as place:
            order.append((number, place.begun > released[0]))

    with waiting_for(waiting, *[STUCK] * 7):
        with waiting_for(waiting, STUCK):
            for number in range(5):
                threads.append(Thread(target=ask, args=(number,)))
                threads[-1].start()
                wait_until(lambda: sum(map(len, waiting._queues.values())) == len(threads), "it waits")
            released = [time.monotonic()]
        for thread in threads:
            thread.join(60)
    assert order == [(number, True) for number in range(5)]


def test_who_waits_for_room_loses_the_place_too():
    waiting = Waiting(patience=0.2, places=9)
    with waiting_for(waiting, *[STUCK] * 8), ThreadPoolExecutor(1) as pool:
        ninth = pool.submit(asks, waiting, STUCK)
        assert asks(waiting, "container web")
        assert ninth.result(60) is False


def test_nobody_waits_behind_late_answers():
    waiting = Waiting(patience=0.05)
    with waiting_for(waiting, *[STUCK] * 8):
        assert asks(waiting, STUCK) is False  # by now they are late
        with pytest.raises(EngineHolds, match="about container 0a0a"), waiting.about(STUCK):
            pass


def test_a_question_that_fails_leaves_room():
    waiting = Waiting(patience=0.01, places=2)
    for _ in range(30):
        with pytest.raises(KeyError), waiting.about(STUCK):
            raise KeyError
    assert asks(waiting, "container web") is True


def test_only_so_many_names_are_remembered():
    waiting = Waiting(patience=60, places=1)
    for number in range(1500):
        assert asks(waiting, f"container v{number}")
    assert len(waiting._silent) == 1024
