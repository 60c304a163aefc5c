"""A process that is killed at any step leaves no memory behind."""

from collections.abc import Callable

import pytest
from elastic_process import Elastic
from gpu_host import until
from scripted_porter import COPIED, FILLED, Frame, ScriptedPorter
from scripted_session import MIB

from convgpu.protocol.residency import messages as r

SIZE = 66 * MIB


def stopping(elastic: Elastic) -> None:
    elastic.call("hold 0 0")
    elastic.order(r.Stop(1, 10000))
    until(elastic.program.threads, lambda names: "convgpu-drain" in names)


def stopped(elastic: Elastic) -> None:
    elastic.drain(1)


def leaving(elastic: Elastic) -> None:
    stopped(elastic)
    elastic.order(r.Evict(1, 0, SIZE))
    elastic.porter.receive()


def half_out(elastic: Elastic) -> None:
    stopped(elastic)
    elastic.order(r.Evict(1, 0, SIZE))
    frame = elastic.porter.receive()
    elastic.porter.copy(frame)
    elastic.porter.send(Frame(COPIED, 0, frame.piece, frame.size))
    elastic.porter.receive()


def out(elastic: Elastic) -> None:
    stopped(elastic)
    elastic.move(r.Evict(1, 0, SIZE), 2)


def coming_back(elastic: Elastic) -> None:
    out(elastic)
    elastic.order(r.Restore(1, 0, SIZE))
    elastic.porter.receive()


def half_back(elastic: Elastic) -> None:
    out(elastic)
    elastic.order(r.Restore(1, 0, SIZE))
    frame = elastic.porter.receive()
    elastic.porter.copy(frame)
    elastic.porter.send(Frame(FILLED, 0, frame.piece, frame.size))
    elastic.porter.receive()


def waiting_at_the_gate(elastic: Elastic) -> None:
    out(elastic)
    elastic.program.begin("alloc 1000")
    assert elastic.told() == r.Run(1)


@pytest.mark.parametrize(
    "step", [stopping, stopped, leaving, half_out, out, coming_back, half_back, waiting_at_the_gate]
)
def test_a_killed_process_leaves_nothing_on_the_device(
    elastic: Elastic, porter: ScriptedPorter, step: Callable[[Elastic], None]
) -> None:
    before = elastic.porter.free_memory()
    elastic.filled(SIZE, 1)
    step(elastic)
    elastic.program.kill()
    assert elastic.peer.at_end()
    porter.close_carrier()  # as the porter does when the process's pidfd is readable
    assert until(porter.free_memory, lambda free: free > before) > before  # its context is gone too
