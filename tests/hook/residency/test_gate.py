"""While a process is stopped no submission reaches a device; what does not end in time makes it busy."""

from collections.abc import Callable

import pytest
from elastic_process import Elastic
from gpu_host import until
from hooked_program import NOT_INITIALIZED, SUCCESS, Result
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, row

from convgpu.protocol.residency import messages as r
from convgpu.protocol.wire import Outcome, PageFlag

SHORT = 200
"""Milliseconds in which something that never ends is waited for."""


def test_a_submission_waits_until_go_and_is_told_once(elastic: Elastic) -> None:
    address = elastic.filled(2 * MIB, 1)
    elastic.drain(1)
    elastic.program.begin(f"fill {address} {2 * MIB} 2")
    assert elastic.told() == r.Run(1)
    assert elastic.call("join", 1) == 0
    elastic.program.begin(f"fill {address} {MIB} 3", 1)
    elastic.order(r.Go(1))
    assert elastic.program.result() == Result(SUCCESS, ())
    assert elastic.program.result(1) == Result(SUCCESS, ())
    assert elastic.peer.silent()


def test_who_waits_when_the_process_stops_is_told_with_it(elastic: Elastic) -> None:
    """The kernel is let go only when the second thread waits at the gate."""
    address = elastic.filled(2 * MIB, 1)
    elastic.call("hold 0 0")
    elastic.call("join", 1)
    elastic.order(r.Stop(1, 10000))
    until(elastic.program.threads, lambda names: "convgpu-drain" in names)  # the gate is closed
    elastic.program.begin(f"fill {address} {MIB} 3", 1)
    elastic.program.wait_in_futex()
    elastic.call("let 0", 2)
    stopped = elastic.stopped(1)
    assert (stopped.outcome, stopped.waiting) == (Outcome.DRAINED, 1)
    elastic.order(r.Go(1))
    assert elastic.program.result(1).code == SUCCESS


def test_a_kernel_that_ends_in_time_is_waited_for(elastic: Elastic) -> None:
    elastic.call("hold 0 0")
    elastic.order(r.Stop(1, 10000))
    elastic.call("let 0", 1)
    stopped = elastic.stopped(1)
    assert (stopped.outcome, stopped.nanoseconds > 0) == (Outcome.DRAINED, True)


def test_a_program_that_never_drains_is_busy_and_goes_on(elastic: Elastic) -> None:
    address = elastic.filled(2 * MIB, 1)
    elastic.call("hold 0 0")
    stopped = elastic.stop(1, SHORT)
    assert (stopped.outcome, stopped.nanoseconds >= SHORT * 1e6) == (Outcome.BUSY, True)
    elastic.call(f"fillasync {address} {MIB} 2 0")
    assert elastic.stop(2, SHORT).outcome == Outcome.BUSY
    elastic.call("let 0", 1)
    elastic.drain(3)
    elastic.order(r.Go(3))
    assert elastic.call(f"compare {address} {MIB} 2") == 0


def test_a_capture_on_its_way_goes_on_and_is_waited_for(elastic: Elastic) -> None:
    address = elastic.filled(2 * MIB, 1)
    stream = elastic.call("stream")
    elastic.call(f"capture {stream}")
    assert elastic.stop(1, SHORT).outcome == Outcome.CAPTURING
    elastic.call(f"fillasync {address} {MIB} 2 {stream}")
    elastic.order(r.Stop(2, 10000))
    elastic.call(f"fillasync {address} {MIB} 3 {stream}")
    graph = elastic.call(f"endcapture {stream}")
    stopped = elastic.stopped(2)
    assert stopped.outcome == Outcome.DRAINED
    elastic.order(r.Go(2))
    executable = elastic.call(f"instantiate {graph} 1")
    assert elastic.call(f"compare {address} {MIB} 1") == 0
    elastic.call(f"launch {executable} {stream}")
    elastic.call("sync")
    assert elastic.call(f"compare {address} {MIB} 3") == 0


def test_a_capture_does_not_begin_while_the_process_is_stopped(elastic: Elastic) -> None:
    stream = elastic.call("stream")
    elastic.drain(1)
    elastic.program.begin(f"capture {stream}")
    assert elastic.told() == r.Run(1)
    elastic.order(r.Go(1))
    assert elastic.program.result().code == SUCCESS
    assert elastic.stop(2, SHORT).outcome == Outcome.CAPTURING


def test_a_capture_whose_stream_is_destroyed_is_over(elastic: Elastic) -> None:
    stream = elastic.call("stream")
    elastic.call(f"capture {stream}")
    elastic.call(f"destroystream {stream}")
    elastic.drain(1)


def submit_until_one_waits(elastic: Elastic, command: str, thread: int) -> None:
    """Submit until the gate is closed; another thread waits already."""
    program = elastic.program
    program.begin(command, thread)
    while until(lambda: program.returned(thread) or program.in_futex() == 2, bool):
        if program.returned(thread):
            assert program.result(thread).code == SUCCESS
            program.begin(command, thread)
        # Taken for closed too early, the capture would begin, and nothing drains.
        elif program.stands_in_futex(2):
            return


def watch(elastic: Elastic, _stream: int) -> None:
    """Let the mover see whether the process is idle."""
    elastic.order(r.Watch(1))


def leave_a_freed_range(elastic: Elastic, stream: int) -> None:
    """Free a range while a capture is on its way: the mover waits for the device after that."""
    address = elastic.call(f"alloc {66 * MIB}")
    elastic.call(f"capture {stream}")
    elastic.call(f"free {address}")
    elastic.call(f"endcapture {stream}")


@pytest.mark.parametrize("let_the_mover_wait", [watch, leave_a_freed_range])
def test_a_capture_that_waits_for_the_mover_does_not_delay_a_stop(
    elastic: Elastic, let_the_mover_wait: Callable[[Elastic, int], None]
) -> None:
    """The mover waits for a kernel, and a capture, which that would break, for the mover.

    The kernel is let go once the gate is closed.
    """
    address = elastic.filled(2 * MIB, 1)
    stream = elastic.call("stream")
    elastic.call("hold 0 0")
    let_the_mover_wait(elastic, stream)
    until(elastic.program.threads, lambda names: "convgpu-drain" in names)
    elastic.call("join", 1)
    elastic.call("join", 2)
    elastic.program.begin(f"capture {stream}", 1)
    elastic.program.wait_in_futex()
    elastic.order(r.Stop(1, 10000))
    submit_until_one_waits(elastic, f"fillasync {address} {MIB} 2 0", 2)
    elastic.call("let 0", 3)
    assert elastic.stopped(1).outcome == Outcome.DRAINED
    elastic.order(r.Go(1))
    assert elastic.program.result(1).code == SUCCESS
    assert elastic.program.result(2).code == SUCCESS


def test_a_step_lets_so_many_submissions_pass(elastic: Elastic) -> None:
    address = elastic.filled(2 * MIB, 1)
    elastic.drain(1)
    elastic.program.begin(f"fill {address} {MIB} 2")
    assert elastic.told() == r.Run(1)
    elastic.order(r.Step(1, 1))
    assert elastic.program.result().code == SUCCESS
    stopped = elastic.stopped(1)
    assert stopped == r.Stopped(1, Outcome.DRAINED, 0, stopped.nanoseconds)
    elastic.program.begin(f"fill {address} {MIB} 3")
    assert elastic.told() == r.Run(1)
    elastic.order(r.Go(1))
    assert elastic.program.result().code == SUCCESS


def test_an_older_order_is_ignored(elastic: Elastic) -> None:
    elastic.drain(5)
    elastic.order(r.Go(4))
    elastic.order(r.Stop(3, 1000))
    elastic.drain(6)


def test_what_takes_memory_waits_while_frees_and_questions_are_answered(elastic: Elastic) -> None:
    elastic.page.publish_limit(0, 4 * GIB, alone=True)
    large, small = elastic.filled(4 * MIB, 1), elastic.call("alloc 1000")
    elastic.drain(1)
    room = elastic.page.read(0)
    elastic.call(f"free {large}", 0)
    elastic.call(f"free {small}", 0)
    assert elastic.page.read(0) == room + 6 * MIB
    assert elastic.program.call("info").code == SUCCESS
    elastic.call("join", 1)
    elastic.program.begin("alloc 1000")
    assert elastic.told() == r.Run(1)
    elastic.program.begin(f"alloc {4 * MIB}", 1)
    elastic.program.wait_in_futex(2)
    elastic.order(r.Go(1))
    assert [elastic.program.result(thread).code for thread in (0, 1)] == [SUCCESS, SUCCESS]
    assert elastic.page.read(0) == room


@pytest.mark.forks
@pytest.mark.parametrize("flags", [0, PageFlag.ELASTIC])
def test_a_forked_child_does_not_wait_for_its_parents_gate(
    elastic: Elastic, scheduler: ScriptedScheduler, flags: int
) -> None:
    """It connects and gets the driver's own answer, and the parent stays stopped."""
    elastic.drain(1)
    elastic.program.begin("fork 4096")
    child, hello = scheduler.accept()
    assert hello.pid != elastic.program.pid
    child.welcome((row(),), flags)
    assert elastic.program.result().numbers == (NOT_INITIALIZED,)
    elastic.program.begin("alloc 4000000")
    assert elastic.told() == r.Run(1)
    elastic.order(r.Go(1))
    assert elastic.program.result().code == SUCCESS
