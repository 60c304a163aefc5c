"""Asking processes for their allocations, and following their calls: real ones, silent ones and liars."""

import struct
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from daemon import GIB, Daemon, Holder, Process, wait_until

from convgpu.client.scheduler import SchedulerRefused
from convgpu.daemon.sessions.call_tracer import CALLS
from convgpu.protocol.inspection.messages import UNKNOWN, List, Listed, ListedRow, Traced
from convgpu.protocol.messages import Message, Query, Usage, pack
from convgpu.protocol.wire import PageAble

ABLE, TRACE = 16, 64 + 32
"""Offsets in the page: what the process answers, and what it may report of the first device."""
MIB = 1 << 20


def listed(daemon: Daemon, most: int = 1000) -> list[dict]:
    return daemon.admin.request("allocations", name="a", most=most)["processes"]


def follow(daemon: Daemon, since: int = 0) -> dict:
    return daemon.admin.request("trace", name="a", since=since)


class Talker(Process):
    """A process that answers LIST as a test wants it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.hello()
        assert self._page is not None
        struct.pack_into("=I", self._page, ABLE, PageAble.LIST)

    def asked(self) -> tuple[int, List]:
        """Wait for the question."""
        [(request, message)] = self._stream.receive(self.socket.recv(65536))
        assert isinstance(message, List)
        return request, message

    def say(self, message: Message, request: int = 0) -> None:
        self.socket.sendall(pack(message, request))

    @property
    def credit(self) -> int:
        """How many calls of the first device may be reported; the top bit says that it is followed."""
        assert self._page is not None
        return int(struct.unpack_from("=I", self._page, TRACE)[0])


class Asking(threading.Thread):
    """An administrator who waits for an answer."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__()
        self._daemon = daemon
        self.processes: list[dict] = []
        self.took = 0.0

    def run(self) -> None:
        begin = time.monotonic()
        self.processes = listed(self._daemon)
        self.took = time.monotonic() - begin

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.join()


def test_a_real_process_lists_what_it_holds(daemon: Daemon) -> None:
    folder = daemon.container("a", memory="4g")
    [uuid] = [str(device["uuid"]) for device in daemon.state("a")["devices"]]
    with Holder(folder, "1g", "512m") as holder:
        wait_until(lambda: sum(one["count"] for one in listed(daemon)) == 3, "it holds both and a context")
        [process] = listed(daemon)
        assert (process["pid"], process["answer"]) == (holder.pid, "listed")
        rows = sorted((row["call"], row["size"], row["uuid"]) for row in process["allocations"])
        sizes = {"cuMemAlloc": (512 * MIB, GIB), "cuDevicePrimaryCtxRetain": (526 * MIB,)}
        assert rows == sorted((call, size, uuid) for call, every in sizes.items() for size in every)
        assert process["size"] == process["usage"] == GIB + 512 * MIB + 526 * MIB
        assert all(0 <= row["age"] < 60 and row["address"] for row in process["allocations"])
        assert holder.stdin is not None
        holder.stdin.close()


def test_who_does_not_answer_holds_nobody_up(daemon: Daemon) -> None:
    folder = daemon.container("a", memory="4g")
    old = Process(folder)
    old.hello()
    silent, honest = Talker(folder), Talker(folder)
    with Asking(daemon) as asking:
        request, question = honest.asked()
        honest.say(Listed(0, 1, 4096, (ListedRow(0x1000, 4096, 0, 5, "cuMemAlloc"),)), request)
        begin = time.monotonic()
        assert isinstance(honest.ask(Query(0)), Usage)
        answered = time.monotonic() - begin
    assert answered < asking.took
    assert question == List(1000 // 3)
    assert 1 < asking.took < 30
    assert [(one["pid"], one["answer"], one["count"]) for one in asking.processes] == [
        (old.pid, "unable", 0),
        (silent.pid, "silent", 0),
        (honest.pid, "listed", 1),
    ]


def test_a_liar_makes_no_long_answer(daemon: Daemon) -> None:
    """More rows than asked for, devices that there are not, text that moves the cursor, and parts without end."""
    liar = Talker(daemon.container("a", memory="4g"))
    row = ListedRow(1, 1 << 63, 77, UNKNOWN, "\x1b[2J\nno")
    with Asking(daemon) as asking:
        request, question = liar.asked()
        liar.say(Listed(1, 5, 5, (row,) * 60), request + 1)
        for _ in range(30):
            liar.say(Listed(1, 1 << 63, 1 << 63, (row,) * 64), request)
        liar.say(Listed(0, 1 << 63, 1 << 63), request)
        liar.say(Listed(0, 0, 0), request)
    [process] = asking.processes
    assert len(process["allocations"]) == question.most == 1000
    assert process["allocations"][0] == {
        "call": "\\x1b[2J\\nno",
        "uuid": "",
        "address": 1,
        "size": 1 << 63,
        "age": None,
    }
    assert isinstance(liar.ask(Query(0)), Usage)  # it is still served


def test_a_process_that_ends_meanwhile(daemon: Daemon) -> None:
    ending = Talker(daemon.container("a", memory="4g"))
    with Asking(daemon) as asking:
        ending.asked()
        ending.end()
    assert [one["answer"] for one in asking.processes] == ["silent"]
    assert listed(daemon) == []


@pytest.mark.parametrize("operation", ["allocations", "trace"])
def test_a_container_that_there_is_not(daemon: Daemon, operation: str) -> None:
    with pytest.raises(SchedulerRefused, match="no volume nobody"):
        daemon.admin.request(operation, name="nobody")


def test_calls_are_reported_while_somebody_asks(daemon: Daemon) -> None:
    talker = Talker(daemon.container("a", memory="4g"))
    talker.say(Traced(0, 1, "cuMemAlloc"))  # nobody follows
    assert talker.answer(talker.send(Query(0)))  # so that it has come before somebody does
    assert talker.credit == 0
    assert follow(daemon) == {"calls": [], "next": 0, "missed": 0}
    assert talker.credit == (1 << 31) + CALLS
    talker.say(Traced(0, 5 * MIB, "cuMemAlloc\n"))
    talker.say(Traced(9, 5 * MIB, "cuMemAlloc"))  # no such device
    assert talker.answer(talker.allocate(5 * GIB))
    seen = follow(daemon)
    assert [(call["sequence"], call["kind"], call["call"], call["size"]) for call in seen["calls"]] == [
        (0, "accepted", "cuMemAlloc\\n", 5 * MIB),
        (1, "rejected", "cuMemAlloc", 5 * GIB),
    ]
    assert {call["pid"] for call in seen["calls"]} == {talker.pid}
    assert seen["calls"][1]["reason"] == "limit"
    assert follow(daemon, since=seen["next"])["calls"] == []
    wait_until(lambda: talker.credit == 0, "it is let go")


def test_a_flood_is_only_counted(daemon: Daemon) -> None:
    talker = Talker(daemon.container("a", memory="4g"))
    follow(daemon)
    frame = pack(Traced(0, 4096, "cuMemAlloc"), 0)
    talker.socket.sendall(frame * (CALLS + 500))
    assert isinstance(talker.ask(Query(0)), Usage)
    seen = follow(daemon)
    assert (len(seen["calls"]), seen["missed"]) == (CALLS, 500)


def test_a_process_that_begins_later_reports_from_its_first_call(daemon: Daemon) -> None:
    folder = daemon.container("a", memory="4g")
    follow(daemon)
    with Holder(folder, "256m", "128m") as holder:
        calls: list[tuple[str, int]] = []

        def both() -> bool:
            calls.extend((call["call"], call["size"]) for call in follow(daemon, since=len(calls))["calls"])
            return len(calls) >= 3

        wait_until(both, "a context and both allocations")
        assert holder.stdin is not None
        holder.stdin.close()
    assert sorted(calls)[-2:] == [("cuMemAlloc", 128 * MIB), ("cuMemAlloc", 256 * MIB)]
