"""What the kernel tells of a process is asked beside the loop: who keeps it from telling keeps nobody else waiting."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from convgpu.daemon.hook_api import server as server_module
from convgpu.daemon.hook_api.server import HookServer
from convgpu.daemon.system.procfs import KernelFacts
from convgpu.daemon.transport import connection as connection_module
from convgpu.daemon.transport.connection import Connection
from convgpu.daemon.transport.shares import Shares
from convgpu.protocol import messages as m
from convgpu.protocol.messages import Message, pack
from convgpu.protocol.stream import MessageStream

OBSERVE = m.Observe(bytes(16), "")


class SlowLook:
    """A look at a process that waits until it may go on."""

    def __init__(self) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def __call__(self, _pid: int) -> KernelFacts:
        self.begun.set()
        self.goes_on.wait()
        return KernelFacts(7, [], None, [])


class Client:
    """A process that connects to a container's socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._stream = reader, writer, MessageStream()

    def send(self, *messages: Message) -> None:
        self._writer.write(b"".join(pack(message, number) for number, message in enumerate(messages, 1)))

    async def answer(self) -> tuple[int, Message] | None:
        """Return the next answer, None at the end of the connection."""
        while (found := self._stream.take()) is None:
            data = await self._reader.read(1 << 16)
            if not data:
                return None
            self._stream.feed(data)
        return found


@asynccontextmanager
async def serving(monkeypatch: pytest.MonkeyPatch, look: Callable[[int], KernelFacts]) -> AsyncIterator[Any]:
    """Return how to connect to a container of a server that asks `look`, and answers OBSERVE with what it found."""
    monkeypatch.setattr(connection_module, "look_at", look)
    monkeypatch.setattr(server_module, "observe", lambda *given: m.Observed(given[3].started if given[3] else 0, 0))
    loop, nothing, stub = asyncio.get_running_loop(), cast("Any", None), SimpleNamespace(declare=lambda *_: None)
    shares, peers = Shares(loop), SimpleNamespace(check=lambda *_: None)
    isolation = SimpleNamespace(shares=shares, peers=peers)
    server = HookServer(cast("Any", stub), nothing, nothing, nothing, nothing, nothing, cast("Any", isolation))
    opened = []

    async def connect(container: str) -> Client:
        ours, theirs = socket.socketpair()
        server.accept(container, ours)
        reader, writer = await asyncio.open_connection(sock=theirs)
        opened.append(writer)
        return Client(reader, writer)

    try:
        yield connect
    finally:
        server.close()
        for writer in opened:
            writer.close()
        shares.close()


def test_who_keeps_the_kernel_from_telling_keeps_no_other_container_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    look = SlowLook()

    async def play() -> None:
        async with serving(monkeypatch, look) as connect:
            slow, other = await connect("slow"), await connect("other")
            slow.send(OBSERVE, OBSERVE, m.Query(0))
            await asyncio.to_thread(look.begun.wait)
            other.send(m.Query(0))
            refused = await other.answer()
            assert refused is not None
            assert isinstance(refused[1], m.Failed)
            look.goes_on.set()
            answers = [await slow.answer() for _ in range(3)]
            assert answers[:2] == [(1, m.Observed(7, 0)), (2, m.Observed(7, 0))]
            assert answers[2] is not None
            assert isinstance(answers[2][1], m.Failed)  # in the order in which they came

    try:
        asyncio.run(play())
    finally:
        look.goes_on.set()


def test_a_process_is_asked_for_once_and_again_while_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [0, 0, 5]
    asked = []

    def look(pid: int) -> KernelFacts:
        asked.append(pid)
        return KernelFacts(told[len(asked) - 1], [], None, [])

    async def play() -> None:
        async with serving(monkeypatch, look) as connect:
            client = await connect("a")
            client.send(*[OBSERVE] * 5)
            assert [await client.answer() for _ in range(5)] == [
                (number, m.Observed(started, 0)) for number, started in enumerate([0, 0, 5, 5, 5], 1)
            ]

    asyncio.run(play())
    assert len(asked) == 3


def test_a_process_that_this_host_cannot_see_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(_pid: int) -> KernelFacts:
        raise AssertionError

    async def play() -> None:
        async with serving(monkeypatch, look) as connect:
            monkeypatch.setattr(Connection, "pid", property(lambda _: 0, lambda *_: None), raising=False)
            client = await connect("a")
            client.send(OBSERVE)
            assert await client.answer() == (1, m.Observed(0, 0))

    asyncio.run(play())


def test_a_fault_in_a_look_ends_its_connection_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(_pid: int) -> KernelFacts:
        if not failed:
            failed.append(True)
            raise MemoryError
        return KernelFacts(3, [], None, [])

    async def play() -> None:
        async with serving(monkeypatch, look) as connect:
            first, second = await connect("a"), await connect("a")
            first.send(OBSERVE)
            refused = await first.answer()
            assert refused is not None
            assert isinstance(refused[1], m.Failed)
            assert await first.answer() is None
            second.send(OBSERVE)
            assert await second.answer() == (1, m.Observed(3, 0))

    failed = list[bool]()
    asyncio.run(play())


def test_who_goes_while_it_is_looked_at_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    look = SlowLook()

    async def play() -> None:
        async with serving(monkeypatch, look) as connect:
            gone = await connect("a")
            gone.send(OBSERVE)
            await asyncio.to_thread(look.begun.wait)
            gone._writer.close()
            look.goes_on.set()
            later = await connect("a")
            later.send(OBSERVE)
            assert await later.answer() == (1, m.Observed(7, 0))

    try:
        asyncio.run(play())
    finally:
        look.goes_on.set()
