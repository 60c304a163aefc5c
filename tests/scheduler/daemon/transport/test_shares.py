"""Turns of the event loop go by container, not by connection or by frame."""

import asyncio
import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import pytest

from convgpu.daemon.transport.connection import Connection, Listener
from convgpu.daemon.transport.shares import Shares
from convgpu.protocol import messages as m
from convgpu.protocol.messages import pack

Pairs = list[tuple[socket.socket, socket.socket]]


@pytest.fixture
def pairs() -> Iterator[Pairs]:
    """Pairs of connected sockets: a hundred of a container that floods, and the last of another one."""
    made = [socket.socketpair() for _ in range(101)]
    yield made
    for pair in made:
        for end in pair:
            end.close()


def run(turns: Callable[[asyncio.AbstractEventLoop], Awaitable[None]]) -> None:
    async def main() -> None:
        await turns(asyncio.get_running_loop())

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("not within a thousand turns of the loop")


def work(served: list[str], name: str) -> None:
    served.append(name)
    begun = time.perf_counter()
    while time.perf_counter() - begun < 0.0004:
        pass


def test_a_hundred_ready_connections_of_one_container_get_one_turn_before_another_container(pairs: Pairs) -> None:
    served: list[str] = []

    async def turns(loop: asyncio.AbstractEventLoop) -> None:
        shares = Shares(loop, budget=0)
        flooder, other = shares.of("flooder"), shares.of("other")
        for ours, theirs in pairs[:-1]:
            theirs.send(b"x")
            flooder.add_reader(ours.fileno(), partial(served.append, "flooder"))
        pairs[-1][1].send(b"x")
        other.add_reader(pairs[-1][0].fileno(), partial(served.append, "other"))
        await until(lambda: "other" in served)
        shares.close()

    run(turns)
    assert served.index("other") <= 2


def test_who_asks_now_and_then_waits_for_one_turn_and_not_for_those_of_all_that_flood(pairs: Pairs) -> None:
    served: list[str] = []
    floods = 40

    def flood() -> None:
        served.append("flooder")
        if len(served) == 2 * floods + 2:
            pairs[-1][1].send(b"x")

    async def turns(loop: asyncio.AbstractEventLoop) -> None:
        shares = Shares(loop, budget=0)
        for number, (ours, theirs) in enumerate(pairs[:-1]):
            theirs.send(b"x")
            shares.of(f"flooder {number % floods}").add_reader(ours.fileno(), flood)
        shares.of("other").add_reader(pairs[-1][0].fileno(), partial(served.append, "other"))
        await until(lambda: "other" in served)
        shares.close()

    run(turns)
    assert served.index("other") <= 2 * floods + 4


def test_who_asks_now_and_then_does_not_wait_for_all_that_come_again_after_their_turns(pairs: Pairs) -> None:
    """Each of them has one thing to do at a time, so none floods by what is left after its turn."""
    served: list[str] = []
    others, asked = 40, 170
    gone: list[int] = []  # comes again when the next one is served

    async def turns(loop: asyncio.AbstractEventLoop) -> None:
        def come_again(number: int) -> None:
            work(served, "other")
            pairs[number][0].recv(1)
            if len(served) == asked:
                pairs[-1][1].send(b"x")
            while gone:
                pairs[gone.pop()][1].send(b"x")
            gone.append(number)

        shares = Shares(loop)
        for number in range(others):
            pairs[number][1].send(b"x")
            shares.of(f"other {number}").add_reader(pairs[number][0].fileno(), partial(come_again, number))
        shares.of("seldom").add_reader(pairs[-1][0].fileno(), partial(served.append, "seldom"))
        await until(lambda: "seldom" in served)
        shares.close()

    run(turns)
    assert served.index("seldom") <= asked + 4


def test_a_long_step_costs_who_asked_for_it_a_few_rounds_and_not_its_whole_time(pairs: Pairs) -> None:
    """It may be no fault of theirs: the kernel, or a collection of garbage, can have stopped this process meanwhile."""
    served: list[str] = []

    def serve_long() -> None:
        served.append("long")
        if served.count("long") == 1:
            time.sleep(0.2)

    async def turns(loop: asyncio.AbstractEventLoop) -> None:
        shares = Shares(loop, budget=0)
        pairs[0][1].send(b"x")
        pairs[1][1].send(b"x")
        shares.of("long").add_reader(pairs[0][0].fileno(), serve_long)
        shares.of("flooder").add_reader(pairs[1][0].fileno(), partial(work, served, "flooder"))
        await until(lambda: served.count("long") == 2)
        shares.close()

    run(turns)
    assert served.count("flooder") <= 20


def test_connections_of_one_container_take_turns_with_each_other(pairs: Pairs) -> None:
    served: list[int] = []

    async def turns(loop: asyncio.AbstractEventLoop) -> None:
        shares = Shares(loop, budget=0)
        share = shares.of("a")
        for number, (ours, theirs) in enumerate(pairs[:40]):
            theirs.send(b"x")
            share.add_reader(ours.fileno(), partial(served.append, number))
        await until(lambda: len(served) >= 80)
        shares.close()

    run(turns)
    assert sorted(served[:40]) == sorted(served[40:80]) == list(range(40))


def test_frames_that_came_together_are_handled_in_turns_with_those_of_others(pairs: Pairs) -> None:
    handled: list[str] = []

    def take(name: str, _connection: Connection, request: int, _message: m.Message) -> None:
        handled.append(f"{name}{request}")

    async def turns(loop: asyncio.AbstractEventLoop) -> None:
        shares, names = Shares(loop, budget=0), ("flooder", "other")
        connections = [
            Connection(share, ours.dup(), partial(take, name), lambda _: None)
            for share, name, (ours, _) in zip(map(shares.of, names), names, pairs, strict=False)
        ]
        pairs[0][1].send(b"".join(pack(m.Freed(0), number) for number in range(50)))
        pairs[1][1].send(pack(m.Freed(0), 7))
        await until(lambda: len(handled) == 51)
        for connection in connections:
            connection.close()
        shares.close()

    run(turns)
    assert handled.index("other7") <= 2
    assert [name for name in handled if name != "other7"] == [f"flooder{number}" for number in range(50)]


def test_what_is_sent_while_frames_wait_is_handled_after_them(pairs: Pairs) -> None:
    handled: list[int] = []
    ours, theirs = pairs[0]

    def take(_connection: Connection, request: int, _message: m.Message) -> None:
        handled.append(request)
        if request == 1:
            theirs.send(pack(m.Freed(0), 3))

    async def turns(loop: asyncio.AbstractEventLoop) -> None:
        shares = Shares(loop, budget=0)
        share = shares.of("a")
        connection = Connection(share, ours.dup(), take, lambda _: None)
        theirs.send(pack(m.Freed(0), 1) + pack(m.Freed(0), 2))
        await until(lambda: len(handled) == 3)
        connection.close()
        shares.close()

    run(turns)
    assert handled == [1, 2, 3]


def test_a_connection_that_ends_while_its_frames_wait_handles_no_more_of_them(pairs: Pairs) -> None:
    handled: list[int] = []

    def take(_connection: Connection, request: int, _message: m.Message) -> None:
        handled.append(request)

    async def turns(loop: asyncio.AbstractEventLoop) -> None:
        shares = Shares(loop, budget=0)
        share = shares.of("a")
        connection = Connection(share, pairs[0][0].dup(), take, lambda _: None)
        pairs[0][1].send(b"".join(pack(m.Freed(0), number) for number in range(9)))
        await until(lambda: bool(handled))
        connection.close("enough")
        await until(lambda: not share._due)
        shares.close()

    run(turns)
    assert handled == [0]


def test_work_of_one_key_is_queued_once_until_it_is_done() -> None:
    done: list[str] = []

    async def turns(loop: asyncio.AbstractEventLoop) -> None:
        shares = Shares(loop, budget=0)
        share = shares.of("a")
        for _ in range(3):
            share.call_soon(partial(done.append, "freed"), key=1)
        share.call_soon(partial(done.append, "other"))
        await until(lambda: len(done) == 2)
        share.call_soon(partial(done.append, "again"), key=1)
        await until(lambda: len(done) == 3)
        shares.close()

    run(turns)
    assert done == ["freed", "other", "again"]


def test_an_error_of_one_callback_stops_no_others() -> None:
    done: list[str] = []

    async def turns(loop: asyncio.AbstractEventLoop) -> None:
        errors: list[object] = []
        loop.set_exception_handler(lambda _loop, context: errors.append(context["exception"]))
        shares = Shares(loop, budget=0)
        share = shares.of("a")
        share.call_soon(lambda: done.append(str(1 // 0)))
        share.call_soon(partial(done.append, "next"))
        await until(lambda: bool(done))
        assert [type(error) for error in errors] == [ZeroDivisionError]
        shares.close()

    run(turns)
    assert done == ["next"]


def test_a_share_that_is_removed_serves_nobody(pairs: Pairs) -> None:
    served: list[str] = []

    async def turns(loop: asyncio.AbstractEventLoop) -> None:
        shares = Shares(loop)
        share = shares.of("a")
        assert shares.of("a") is share
        pairs[0][1].send(b"x")
        share.add_reader(pairs[0][0].fileno(), partial(served.append, "x"))
        share.call_soon(partial(served.append, "work"))
        shares.remove("a")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert shares.of("a") is not share
        shares.close()

    run(turns)
    assert served == []


def test_connections_are_accepted_one_in_each_turn(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    turns_taken: list[str] = []
    clients: list[socket.socket] = []

    async def turns(loop: asyncio.AbstractEventLoop) -> None:
        shares = Shares(loop, budget=0)
        share, other = shares.of("a"), shares.of("b")
        listener = Listener(
            share, tmp_path / "s", 0o600, tmp_path, lambda sock: turns_taken.append("a") or sock.close()
        )
        for _ in range(20):
            client = socket.socket(socket.AF_UNIX)
            client.connect("s")
            clients.append(client)
        other.call_soon(partial(turns_taken.append, "b"))
        await until(lambda: len(turns_taken) == 21)
        listener.close()
        shares.close()

    run(turns)
    assert turns_taken.index("b") <= 2
    for client in clients:
        client.close()


class FullEpoll:
    """An epoll instance of a user who may register no more for a while."""

    def __init__(self, real: select.epoll) -> None:
        self._real = real
        self.is_full = True
        self.refused = 0

    def register(self, descriptor: int, mask: int) -> None:
        if self.is_full:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._real.register(descriptor, mask)

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


def test_what_the_kernel_does_not_register_is_served_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others of our user have used up what it may register (epoll_ctl(2): ENOSPC)."""
    monkeypatch.setattr("convgpu.daemon.transport.shares._AGAIN", 0.0)

    async def turns(loop: asyncio.AbstractEventLoop) -> None:
        shares, served = Shares(loop), list[str]()
        share = shares.of("a")
        full = FullEpoll(share._epoll)
        share._epoll = full  # type: ignore[assignment]
        with contextlib.ExitStack() as stack:
            pairs = [[stack.enter_context(end) for end in socket.socketpair()] for _ in range(2)]
            for name, (own, other) in zip(("kept", "removed"), pairs, strict=True):
                share.add_reader(own.fileno(), lambda name=name, own=own: served.append(name + own.recv(1).decode()))
                other.send(b"!")
            share.remove_reader(pairs[1][0].fileno())
            await until(lambda: full.refused >= 5)
            assert served == []
            full.is_full = False
            await until(lambda: served != [])
            assert served == ["kept!"]
            assert not share._unregistered
        shares.close()

    run(turns)
