"""The porter leaves a minute after the last process whose memory could leave, whatever is said and in which order.

Its process, the machine, the registry and the loop are stand-ins: time passes when a test says so, and what the porter
says is what a test has it say.
"""

import os
import select
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from convgpu.daemon.residency import porter as module
from convgpu.daemon.residency.elastic_sessions import ElasticSessions
from convgpu.daemon.residency.host_pool import HostPool
from convgpu.daemon.residency.pool_files import PoolState
from convgpu.daemon.residency.porter import FIRST_PAUSE, RESTING, Porter, PorterFiles
from convgpu.protocol.residency import messages as m
from convgpu.protocol.residency.porter import PorterKind
from convgpu.protocol.uuids import uuid_text
from convgpu.protocol.wire import Mover

UUID = uuid_text(bytes(range(16)))
SIZE = 64 << 20
WAYS = ["nothing", "gone", "end", "pooled gone", "pooled end", *map(" ".join, permutations(["pooled", "gone", "end"]))]


class Clock:
    """As much of an event loop as the porter needs; nothing happens by itself."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, SimpleNamespace]] = []
        self._readers: dict[socket.socket, Callable[[], None]] = {}
        self.add_reader, self.remove_reader = self._readers.__setitem__, self._readers.pop

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Callable[..., None], *arguments: object) -> SimpleNamespace:
        handle = SimpleNamespace(call=lambda: call(*arguments))
        handle.cancel = lambda: setattr(handle, "call", lambda: None)
        self._timers.append((self.now + delay, handle))
        return handle

    def read(self) -> None:
        """Have all that was said read."""
        for control, reader in list(self._readers.items()):
            if select.select([control], [], [], 0)[0]:
                reader()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with what is due meanwhile."""
        end = self.now + seconds
        while self._timers and min(due for due, _ in self._timers) <= end:
            entry = min(self._timers, key=lambda timer: timer[0])
            self._timers.remove(entry)
            self.now = max(self.now, entry[0])
            entry[1].call()
        self.now = end


class Peer:
    """A porter's process, and its end of the control socket."""

    pid = 1

    def __init__(self, _command: Sequence[str], *, pass_fds: Sequence[int], stdin: int) -> None:
        del stdin
        self._control = socket.socket(fileno=os.dup(pass_fds[0]))
        self._control.setblocking(False)

    def say(self, kind: PorterKind, number: int, size: int = 0) -> None:
        self._control.send(struct.pack("=IIQQ", kind, 0, number, size))

    def has_to_end(self) -> bool:
        """Whether the scheduler has closed the socket: a porter ends then. What it was told is read, and forgotten."""
        try:
            while self._control.recv(4096):
                pass
        except BlockingIOError:
            return False
        return True

    def die(self) -> None:
        self._control.close()

    kill = die

    def wait(self, timeout: float | None = None) -> int:
        del timeout
        return 0


class World:
    """A scheduler with no process, and what it does with porters."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.peers: list[Peer] = []
        self.left_over = PoolState.GONE
        self._sessions: dict[int, SimpleNamespace] = {}
        self._children: list[subprocess.Popen[bytes]] = []
        account = SimpleNamespace(limit=SIZE)
        machine = SimpleNamespace(accounts=lambda _name: {UUID: account}, on_host=lambda *_: (0, 0))
        driver: Any = SimpleNamespace(dispatch=lambda _event: None, machine=machine)
        registry: Any = SimpleNamespace(by_number=self._sessions)
        pool = HostPool(64 * SIZE, {UUID: 64 * SIZE}, 1.0)
        self.elastic = ElasticSessions(driver, registry, pool, self.clock.time)
        files: Any = SimpleNamespace(path=Path("/tmp/pool"), give_back=lambda: self.left_over)
        files = PorterFiles(Path("/porter"), "", files)
        self.porter = Porter(cast("Any", self.clock), files, self.elastic.report, self.elastic.greet)
        self.elastic.use(self.porter)
        monkeypatch.setattr(module, "subprocess", SimpleNamespace(**(vars(subprocess) | {"Popen": self._start_peer})))

    def _start_peer(self, command: Sequence[str], **how: Any) -> Peer:
        self.peers.append(Peer(command, **how))
        return self.peers[-1]

    def begin(self, number: int) -> None:
        """Have a process come."""
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self._children.append(child)
        session: Any = SimpleNamespace(
            number=number, container=f"c{number}", rows=[UUID], is_elastic=True, pid=child.pid, started=1
        )
        session.connection = SimpleNamespace(send=lambda *_, **__: None)
        session.process = os.pidfd_open(child.pid)
        self._sessions[number] = session
        assert self.elastic.receive(session, m.Able(Mover.VMM))

    def finish(self, number: int) -> None:
        """End a process; its session ends later."""
        child = self._children[number - 1]
        child.communicate()

    def close(self, number: int) -> None:
        """End a session."""
        os.close(self._sessions.pop(number).process)

    def say(self, words: str, number: int) -> None:
        """Have the porter say something of a process, or the session of that end."""
        for word in words.split():
            if word == "pooled":
                self.peers[-1].say(PorterKind.POOLED, 0)
            elif word == "gone":
                self.peers[-1].say(PorterKind.GONE, number)
            elif word == "end":
                self.close(number)
            self.clock.read()

    def stop(self) -> None:
        for child in self._children:
            child.communicate()
        for number in list(self._sessions):
            self.close(number)
        self.porter.stop()
        for peer in self.peers:
            peer.die()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(monkeypatch)
    yield world
    world.stop()


def test_after_a_process_that_ended_before_there_was_a_pool_the_porter_leaves(world: World) -> None:
    """The pool was empty and stayed so, of which the porter says nothing; it kept 526 MiB of the GPU for ever."""
    world.begin(1)
    world.say("pooled", 1)
    world.clock.pass_time(1)
    world.finish(1)
    world.say("end gone", 1)
    world.clock.pass_time(RESTING - 1)
    assert not world.peers[0].has_to_end()
    world.clock.pass_time(1)
    assert world.peers[0].has_to_end()
    assert not world.porter.runs


@pytest.mark.parametrize("words", WAYS)
def test_whatever_is_said_after_an_end_the_porter_leaves(world: World, words: str) -> None:
    """Also where it says nothing: it may be stuck, or was never told of the process."""
    world.begin(1)
    world.finish(1)
    world.say(words, 1)
    world.clock.pass_time(RESTING)
    assert [peer.has_to_end() for peer in world.peers] == [True]


@pytest.mark.parametrize("words", WAYS)
@pytest.mark.parametrize("ends_before", [True, False])
def test_the_porter_after_one_that_was_killed_leaves(world: World, words: str, *, ends_before: bool) -> None:
    world.begin(1)
    if ends_before:
        world.finish(1)
    world.peers[0].die()
    world.clock.read()
    world.clock.pass_time(FIRST_PAUSE)
    world.finish(1)
    world.say(words, 1)
    assert not world.peers[1].has_to_end()
    world.clock.pass_time(RESTING)
    assert [peer.has_to_end() for peer in world.peers[1:]] == [True]


def test_the_porter_that_watched_over_what_an_earlier_scheduler_left_leaves(world: World) -> None:
    world.left_over = PoolState.HAS_COPIES
    world.porter.adopt()
    world.left_over = PoolState.GONE
    world.say("gone", 0)
    world.clock.pass_time(RESTING)
    assert [peer.has_to_end() for peer in world.peers] == [True]


def test_the_porter_stays_while_a_process_is_there_and_a_minute_longer(world: World) -> None:
    """One that came and went does not count, nor that it came when the porter was about to leave."""
    world.begin(1)
    world.finish(1)
    world.say("gone end", 1)
    world.clock.pass_time(RESTING / 2)
    world.begin(2)
    world.begin(3)
    world.finish(3)
    world.say("pooled gone end", 3)
    world.clock.pass_time(10 * RESTING)
    world.finish(2)
    world.say("end gone", 2)
    world.clock.pass_time(RESTING - 1)
    assert not world.peers[0].has_to_end()
    world.clock.pass_time(1)
    assert [peer.has_to_end() for peer in world.peers] == [True]
    world.begin(4)
    assert not world.peers[1].has_to_end()
