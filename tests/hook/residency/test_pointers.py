"""Of a backed range the answers are those of cuMemAlloc, on the device and out of it."""

from elastic_process import Elastic
from scripted_session import MIB

from convgpu.protocol.residency import messages as r

DEVICE_MEMORY, READ_WRITE = 2, 3
PIECE = 64 * MIB


def describe(elastic: Elastic, address: int) -> list[int | str]:
    values = elastic.program.call(f"describe {address}").values
    return [value if value.startswith("E") else int(value) for value in values]


def expected(elastic: Elastic, start: int, size: int, address: int, number: int) -> list[int | str]:
    """In the order of CUpointer_attribute; without a handle of the older IPC and RDMA, which it really lacks."""
    attributes = [elastic.context, DEVICE_MEMORY, address, "E1", "E1", 0, number, 0, 0, 0, start, size, 1, 0, 0]
    return [*attributes, READ_WRITE, 0, size, start, number, 0, start, size]


def test_every_address_of_a_range_belongs_to_it(elastic: Elastic) -> None:
    size = PIECE + 3 * MIB + 7
    start, other = elastic.call(f"alloc {size}"), elastic.call(f"alloc {size}")
    number = describe(elastic, start)[6]
    assert isinstance(number, int)
    assert describe(elastic, other)[6] == number + 1
    for address in (start, start + 1000, start + PIECE, start + size - 1):
        assert describe(elastic, address) == expected(elastic, start, size, address, number)
    assert describe(elastic, start + PIECE + 4 * MIB - 1)[-1] != size  # of the last granule, behind what was asked


def test_while_it_is_out_the_answers_are_the_same(elastic: Elastic) -> None:
    size = PIECE + 4 * MIB
    start = elastic.call(f"alloc {size}")
    before = [describe(elastic, start), describe(elastic, start + PIECE)]
    at_once = elastic.program.call(f"describeall {start + PIECE}")
    elastic.drain(1)
    elastic.move(r.Evict(1, 0, size), 2)
    assert [describe(elastic, start), describe(elastic, start + PIECE)] == before
    assert elastic.program.call(f"describeall {start + PIECE}") == at_once
    assert [0 if value == "E1" else value for value in before[1][:-2]] == list(at_once.numbers)


def test_a_cached_range_is_another_one(elastic: Elastic) -> None:
    address = elastic.call(f"alloc {4 * MIB}")
    number = describe(elastic, address)[6]
    elastic.call(f"free {address}")
    assert elastic.call(f"alloc {3 * MIB}") == address
    assert isinstance(number, int)
    assert describe(elastic, address) == expected(elastic, address, 3 * MIB, address, number + 1)
