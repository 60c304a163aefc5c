"""Few ask at once, who needs least first, and who has a turn for ever delays others for a moment only."""

from contextlib import ExitStack
from threading import Event, Thread

from daemon import wait_until

from convgpu.authz.subject.turns import Turns


def test_turns_go_in_the_order_of_arrival_and_of_size():
    turns, order, threads = Turns(2, 60), [], []

    def take(number, size):
        with turns.turn(size):
            order.append(number)

    with turns.turn(8):
        with turns.turn(8):
            for number, size in enumerate((2, 8, 2, 1, 8)):
                threads.append(Thread(target=take, args=(number, size)))
                threads[-1].start()
                wait_until(lambda: len(turns._queue) == len(threads), "it waits")
            assert order == []
        for thread in threads:
            thread.join(60)
    assert order == [3, 0, 2, 1, 4]
    with turns.turn(1), turns.turn(1):
        assert turns._free == 0
    assert turns._free == 2


def test_nobody_waits_for_those_who_never_end():
    turns, over = Turns(1, 0.01), Event()

    def take():
        with turns.turn(1):
            over.wait(60)

    held = Thread(target=take)
    held.start()
    wait_until(lambda: turns._free == 0, "it has its turn")
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(turns.turn(1))
    over.set()
    held.join(60)
    assert (turns._free, len(turns._queue)) == (1, 0)
