"""A copy of any form waits while the process is stopped, also when its memory is out, and is right afterwards."""

import pytest
from elastic_process import Elastic
from scripted_session import MIB

from convgpu.protocol.residency import messages as r

PIECE = 64 * MIB
BYTE = 1
"""CU_AD_FORMAT_UNSIGNED_INT8."""
ROW = 32768
"""Bytes: what is copied by an array of one row."""

WITHOUT_ARRAYS = ["solid", "solidasync", "peer", "peerasync", "batch", "batch2", "solids", "solids2"]
FROM_ARRAYS = ["line", "flat", "flatasync"]


def filled(elastic: Elastic, array: int, size: int, value: int) -> int:
    """Return an allocation that is filled; the array holds as much of it as it can."""
    address = elastic.filled(size, value)
    elastic.call(f"copytoarray {address} 0 {ROW} 0 {array}")
    return address


@pytest.mark.parametrize("kind", [*WITHOUT_ARRAYS, *FROM_ARRAYS])
def test_a_copy_between_moved_ranges_waits_until_they_are_back(elastic: Elastic, kind: str) -> None:
    array = elastic.call(f"flat {ROW} 0 {BYTE} 1")
    size = ROW if kind in FROM_ARRAYS else PIECE + 2 * MIB  # over the border of two pieces
    source, target = filled(elastic, array, PIECE + 2 * MIB, 7), elastic.filled(PIECE + 2 * MIB, 1)
    stream = elastic.call("stream")
    elastic.drain(1)
    elastic.program.begin(f"copy{kind} {source} {target} {size} {stream} {array}")
    assert elastic.told() == r.Run(1)
    everything = 2 * (PIECE + 2 * MIB)
    elastic.move(r.Evict(1, 0, everything), 4)
    assert not elastic.program.returned()
    elastic.move(r.Restore(1, 0, everything), 4)
    assert not elastic.program.returned()
    elastic.order(r.Go(1))
    assert elastic.program.result().code == 0
    elastic.call("sync")
    assert elastic.call(f"compare {target} {size} 7") == 0
    assert elastic.call(f"compare {target + size} {PIECE + 2 * MIB - size} 1") == 0


def test_a_copy_to_an_array_waits_too(elastic: Elastic) -> None:
    array = elastic.call(f"flat {ROW} 0 {BYTE} 1")
    source, target = elastic.filled(4 * MIB, 7), elastic.filled(4 * MIB, 1)
    elastic.drain(1)
    elastic.program.begin(f"copytoarray {source} 0 {ROW} 0 {array}")
    assert elastic.told() == r.Run(1)
    elastic.move(r.Evict(1, 0, 8 * MIB), 2)
    elastic.move(r.Restore(1, 0, 8 * MIB), 2)
    elastic.order(r.Go(1))
    assert elastic.program.result().code == 0
    elastic.call(f"copyline 0 {target} {ROW} 0 {array}")
    assert elastic.call(f"compare {target} {ROW} 7") == 0


def test_a_batch_in_a_capture_passes_the_closed_gate_and_gets_the_drivers_answer(elastic: Elastic) -> None:
    source, target = elastic.filled(4 * MIB, 7), elastic.filled(4 * MIB, 1)
    stream = elastic.call("stream")
    elastic.call(f"capture {stream}")
    elastic.order(r.Stop(1, 10000))
    assert elastic.program.call(f"copybatch2 {source} {target} {MIB} {stream}").code == 900
    graph = elastic.call(f"endcapture {stream}")
    assert graph != 0
    elastic.stopped(1)
    elastic.order(r.Go(1))
    assert elastic.call(f"compare {target} {MIB} 1") == 0
