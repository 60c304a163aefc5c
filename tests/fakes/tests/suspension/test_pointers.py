"""Attributes of addresses, as an H200 with driver 580.159 gave them for cuMemAlloc and for virtual memory."""

import pytest
from cuda_structures import access, allocation_properties
from gpu_host import GIB, MIB

INVALID_VALUE, NOT_FOUND = 1, 500
PIECE = 64 * MIB
NAMES = {
    1: "context", 2: "type", 8: "managed", 9: "ordinal", 10: "legacy-ipc", 11: "start", 12: "size", 13: "mapped",
    14: "handle-types", 16: "access", 18: "mapping-size", 19: "mapping-base",
}  # fmt: skip


@pytest.fixture
def process(make_host):
    process = make_host(4 * GIB).process()
    process.context = process.start()
    return process


def attributes(process, address: int) -> dict[str, int]:
    answers = {name: process("cuPointerGetAttribute", number, address) for number, name in NAMES.items()}
    return {name: value for name, (result, value) in answers.items() if result == 0}


def test_memory_of_cumemalloc_is_its_contexts(process) -> None:
    address = process.allocate(PIECE)
    assert attributes(process, address + 4096) == {
        "context": process.context, "type": 2, "managed": 0, "ordinal": 0, "legacy-ipc": 1, "start": address,
        "size": PIECE, "mapped": 1, "handle-types": 0, "access": 3, "mapping-size": PIECE, "mapping-base": address,
    }  # fmt: skip
    assert process("cuMemGetAddressRange_v2", address + 4096) == [0, address, PIECE]
    assert process("cuIpcGetMemHandle", address)[0] == 0


def test_virtual_memory_is_nobodys_and_by_pieces(process) -> None:
    address = process("cuMemAddressReserve", 3 * PIECE, 0, 0, 0)[1]
    for piece in range(2):
        handle = process("cuMemCreate", PIECE, allocation_properties(handle=1), 0)[1]
        assert process("cuMemMap", address + piece * PIECE, PIECE, 0, handle, 0) == [0]
    assert process("cuMemSetAccess", address, 2 * PIECE, access(3), 1) == [0]
    second = address + PIECE
    assert attributes(process, second + 4096) == {
        "context": 0, "type": 2, "managed": 0, "ordinal": 0, "legacy-ipc": 0, "start": address, "size": 3 * PIECE,
        "mapped": 1, "handle-types": 1, "access": 3, "mapping-size": PIECE, "mapping-base": second,
    }  # fmt: skip
    buffers = [process("cuPointerGetAttribute", 7, at)[1] for at in (address, second)]
    assert buffers[0] != buffers[1]
    assert process("cuMemGetAddressRange_v2", second + 4096) == [0, second, PIECE]
    assert process("cuIpcGetMemHandle", address)[0] == INVALID_VALUE
    assert attributes(process, second + PIECE) == {}
    assert process("cuMemGetAddressRange_v2", second + PIECE)[0] == NOT_FOUND


def test_memory_of_the_host_and_addresses_of_nothing(process) -> None:
    buffer = process("cuMemHostAlloc", 4096, 0)[1]
    assert attributes(process, buffer) == {"type": 1, "ordinal": 0}
    assert attributes(process, 4096) == {}
    assert process("cuPointerGetAttribute", 0, buffer)[0] == INVALID_VALUE
    assert process("cuPointerSetAttribute", 1, 6, process.allocate(512)) == [0]
