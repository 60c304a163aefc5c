"""The default stream of a thread takes queues with the first call that is given it, whatever that call does."""

from collections.abc import Callable

import pytest
from daemon import Daemon
from grown import CONTEXT, WORK, function_of, seen, usage
from hooked_program import INVALID_HANDLE, NOT_INITIALIZED, OUT_OF_MEMORY, SUCCESS, Program
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, open_session

Join = Callable[..., Program]
Start = Callable[..., Program]

FIRST = 8
"""So many lie in what the context took."""
STREAM = MIB // 2
WAYS = (
    *("launch", "twin", "ex", "fill", "fill-twin", "copy-twin", "event", "query-twin", "owner", "wait", "capture"),
    "occupancy",
)
LAUNCHES = ("launch", "twin", "ex", "capture", "occupancy")
BY_TURNS, STAYING, AT_ONCE = range(3)


class Threads:
    """A program with a context, whose threads use their default streams."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.context = program.call("retain 0").number
        assert program.call("release 0").code == SUCCESS
        self.function = function_of(program, "0 0 0")
        assert program.call(f"launchkernel {self.function} 0 0").code == SUCCESS
        self.buffer = program.call("alloc 4096").number

    def subject(self, way: str) -> int:
        return self.function if way in LAUNCHES else self.buffer

    def use(self, count: int, way: str, mode: int, other: int = 0) -> tuple[int, ...]:
        """Return how many were accepted, and how many refused."""
        words = (count, WAYS.index(way), mode, self.subject(way), self.context, other)
        return self.program.call(f"threads {' '.join(map(str, words))}").numbers

    def own(self, way: str) -> int:
        return self.program.call(f"ownstream {WAYS.index(way)} {self.subject(way)}").code


def fill(daemon: Daemon, program: Program, left: int = 6 * MIB) -> int:
    """Take all but so much of 2 GiB; return the address."""
    address = program.call(f"alloc {2 * GIB - usage(daemon) - left}")
    assert address.code == SUCCESS
    return address.number


@pytest.mark.parametrize("mode", [STAYING, AT_ONCE], ids=["one after the other", "at once"])
@pytest.mark.parametrize("way", WAYS)
def test_they_are_charged_and_at_the_limit_refused(daemon: Daemon, join: Join, way: str, mode: int) -> None:
    """A hundred threads took 54 MiB of a card above the limit, by any of these calls."""
    threads = Threads(join(daemon.container("a", memory="2g")))
    fill(daemon, threads.program)
    assert threads.use(40, way, mode) == (FIRST + 12, 20)
    seen(daemon, 2 * GIB + WORK)  # one step, which the first that was refused took and nobody can give back
    assert threads.program.call(f"alloc {2 * MIB}").code == OUT_OF_MEMORY


def test_what_is_owed_refuses_other_streams_until_it_is_paid(daemon: Daemon, join: Join) -> None:
    threads = Threads(join(daemon.container("a", memory="2g")))
    held = fill(daemon, threads.program)
    assert threads.use(40, "fill", STAYING) == (FIRST + 12, 20)
    assert threads.program.call("stream").code == OUT_OF_MEMORY  # though the threads have ended, and left theirs
    assert threads.use(8, "fill", STAYING) == (0, 8)
    assert threads.program.call(f"free {held}").code == SUCCESS
    assert threads.use(40, "fill", STAYING) == (40, 0)


def test_a_thread_has_what_one_before_it_left(daemon: Daemon, join: Join) -> None:
    threads = Threads(join(daemon.container("a", memory="2g")))
    before = usage(daemon)
    assert threads.use(100, "fill", BY_TURNS) == (100, 0)
    assert usage(daemon) == before
    for _batch in range(2):
        assert threads.use(40, "launch", STAYING) == (40, 0)
        assert usage(daemon) == before + (40 - FIRST) * STREAM
    seen(daemon, before + (40 - FIRST) * STREAM)


def test_each_context_has_its_own(daemon: Daemon, join: Join) -> None:
    threads = Threads(join(daemon.container("a", memory="4g")))
    other = threads.program.call("create4 0").number
    before = usage(daemon)
    assert threads.use(40, "query-twin", STAYING, other) == (40, 0)
    assert usage(daemon) == before + 2 * (40 - FIRST) * STREAM
    assert threads.use(40, "query-twin", STAYING, other) == (40, 0)
    assert usage(daemon) == before + 2 * (40 - FIRST) * STREAM
    assert threads.program.call(f"destroy {other}").code == SUCCESS
    seen(daemon, before - CONTEXT + (40 - FIRST) * STREAM)


def test_a_context_that_comes_anew_has_none(daemon: Daemon, join: Join) -> None:
    """Its handle is the same, and the thread had its stream in the one before."""
    program = join(daemon.container("a", memory="2g"))
    for _turn in range(2):
        threads = Threads(program)
        assert threads.own("fill") == SUCCESS
        fill(daemon, program)
        assert threads.use(FIRST - 1 + 12, "fill", STAYING) == (FIRST - 1 + 12, 0)
        assert threads.use(FIRST + 12, "fill", STAYING) == (FIRST - 1 + 12, 1)
        assert program.call("release 0").code == SUCCESS
        assert program.call("retain 0").code == SUCCESS


def test_a_green_context_has_none(daemon: Daemon, join: Join) -> None:
    """A thread that has its stream in the primary one passes there as fast as without a green one."""
    threads = Threads(join(daemon.container("a", memory="2g")))
    green = threads.program.call("newgreen 0").number
    before = usage(daemon)
    assert threads.own("fill") == SUCCESS
    assert threads.program.call(f"use {threads.program.call(f'fromgreen {green}').number}").code == SUCCESS
    assert threads.own("fill") == INVALID_HANDLE
    assert threads.program.call(f"use {threads.context}").code == SUCCESS
    assert threads.use(FIRST - 1 + 4, "fill", STAYING) == (FIRST - 1 + 4, 0)
    assert usage(daemon) == before + 4 * STREAM
    assert threads.program.call(f"destroygreen {green}").code == SUCCESS
    assert threads.own("fill") == SUCCESS


def test_a_capture_in_it_outlives_another_context(daemon: Daemon, join: Join) -> None:
    """All is forgotten when a context begins: asked again, the stream must not lose its capture."""
    threads = Threads(join(daemon.container("a", memory="4g")))
    program = threads.program
    assert program.call("capture 2").code == SUCCESS
    other = program.call("create4 0").number
    assert program.call(f"use {threads.context}").code == SUCCESS
    assert threads.own("fill") == SUCCESS
    assert program.call("endcapture 2").code == SUCCESS
    assert program.call(f"destroy {other}").code == SUCCESS


@pytest.mark.forks
@pytest.mark.parametrize("way", ["launch", "fill", "query-twin"])
def test_a_child_begins_anew(daemon: Daemon, join: Join, way: str) -> None:
    """The driver refuses it, as it does without the hook."""
    threads = Threads(join(daemon.container("a", memory="2g")))
    assert threads.program.call(f"forkstream {WAYS.index(way)} {threads.subject(way)}").numbers == (NOT_INITIALIZED,)
    assert threads.own(way) == SUCCESS


def test_who_uses_none_asks_for_nothing(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=4 * GIB)
    function = function_of(session.program, "0 0 0")
    for form in (0, 2, 4):
        assert session.program.call(f"launchkernel {function} {form} 0").code == SUCCESS
    assert session.peer.silent()


def test_a_known_stream_is_not_asked_for_again(daemon: Daemon, join: Join) -> None:
    """Without what other calls need, the stream of a thread that has it passes a full limit."""
    threads = Threads(join(daemon.container("a", memory="2g")))
    fill(daemon, threads.program)
    assert threads.own("launch") == SUCCESS
    assert threads.use(40, "launch", STAYING) == (FIRST - 1 + 12, 21)
    assert [threads.own(way) for way in WAYS] == [SUCCESS] * len(WAYS)


def test_a_known_stream_stays_known_when_other_contexts_end(daemon: Daemon, join: Join) -> None:
    """Asked again while a step is owed, a thread was refused its work in the stream that it had."""
    threads = Threads(join(daemon.container("a", memory="2g")))
    program = threads.program
    fill(daemon, program)
    assert threads.own("fill") == SUCCESS
    assert threads.use(40, "fill", STAYING) == (FIRST - 1 + 12, 21)
    assert program.call("retain 0").code == SUCCESS
    assert program.call("release 0").code == SUCCESS  # one reference of two
    assert threads.own("fill") == SUCCESS
    other = program.call("create4 1").number
    assert program.call(f"use {threads.context}").code == SUCCESS
    assert threads.own("fill") == SUCCESS
    assert program.call(f"destroy {other}").code == SUCCESS
    assert threads.own("fill") == SUCCESS


@pytest.mark.parametrize(("call", "stream"), [("freeasync", 2), ("freeasyncp", 0), ("freeasyncp", 2)])
def test_what_is_freed_in_one_that_cannot_be_had_is_freed(daemon: Daemon, join: Join, call: str, stream: int) -> None:
    """A program that could not have a thread's stream could not free in one either, and paid back nothing."""
    threads = Threads(join(daemon.container("a", memory="2g")))
    program = threads.program
    pooled = program.call("async 1048576 0")
    assert pooled.code == SUCCESS
    held = fill(daemon, program)
    assert threads.use(40, "fill", STAYING) == (FIRST + 12, 20)
    assert threads.own("fill") == OUT_OF_MEMORY
    assert program.call(f"{call} {pooled.number} {stream}").code == SUCCESS
    assert threads.own("fill") == OUT_OF_MEMORY
    assert program.call(f"{call} {held} {stream}").code == SUCCESS
    assert program.call("syncall").code == SUCCESS
    assert threads.own("fill") == SUCCESS
