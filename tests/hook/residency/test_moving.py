"""Memory leaves the device and comes back at the same addresses with the same contents, or does not leave."""

from elastic_process import Elastic
from scripted_porter import IN, OUT, Frame
from scripted_session import GIB, MIB

from convgpu.protocol.residency import messages as r

PIECE = 64 * MIB


def test_all_of_an_allocation_leaves_and_comes_back(elastic: Elastic) -> None:
    size = 2 * PIECE + 6 * MIB
    address = elastic.filled(size, 7)
    assert elastic.page.read(0) == 4 * GIB - size
    elastic.drain(1)
    pieces = [(address, PIECE), (address + PIECE, PIECE), (address + 2 * PIECE, 6 * MIB)]
    assert elastic.move(r.Evict(1, 0, size), 3) == [Frame(OUT, 0, piece, length) for piece, length in pieces]
    assert elastic.page.read(0) == 4 * GIB - size
    assert elastic.move(r.Restore(1, 0, size), 3) == [Frame(IN, 0, piece, length) for piece, length in pieces]
    elastic.order(r.Go(1))
    assert elastic.call(f"compare {address} {size} 7") == 0
    elastic.call(f"free {address}")
