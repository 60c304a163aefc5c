"""What a descriptor keeps of a device after its memory was freed, as seen on an H200 (docs/measurements.md)."""

import pytest
from cuda_structures import pool_properties
from gpu_host import CONTEXT, GIB, MIB, until

SUCCESS, INVALID_VALUE = [0], 1
RESERVED = 5
POSIX = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
SIZE = 4 * GIB


@pytest.fixture
def process(make_host):
    process = make_host(SIZE).process()
    process.start()
    return process


def use(process) -> int:
    return SIZE - CONTEXT - process.free_memory()


def test_a_dma_buf_keeps_all_of_its_allocation(process) -> None:
    address = process.allocate(64 * MIB)
    descriptor = process("cuMemGetHandleForAddressRange", address + MIB, 4096, 1, 0)[1]
    assert process("cuMemFree_v2", address) == SUCCESS
    again = process.allocate(64 * MIB)
    assert use(process) == 128 * MIB
    assert process("close", descriptor) == SUCCESS
    until(lambda: use(process), lambda used: used == 64 * MIB)
    assert process("cuMemFree_v2", again) == SUCCESS
    assert use(process) == 0


def test_a_dma_buf_of_a_small_allocation_keeps_the_page_that_it_shares(process) -> None:
    small = [process.allocate(64 << 10) for _ in range(4)]
    descriptor = process("cuMemGetHandleForAddressRange", small[0], 64 << 10, 1, 0)[1]
    for address in small:
        assert process("cuMemFree_v2", address) == SUCCESS
    assert use(process) == 2 * MIB
    assert process("close", descriptor) == SUCCESS
    until(lambda: use(process), lambda used: used == 0)


def fill(process, pool: int) -> int:
    address = process("cuMemAllocFromPoolAsync", 64 * MIB, pool, 0)[1]
    assert process("cuMemPoolExportPointer", address)[0] == 0
    assert process("cuMemFreeAsync", address, 0) == SUCCESS
    assert process("cuStreamSynchronize", 0) == SUCCESS
    return process("cuMemPoolGetAttribute", pool, RESERVED)[1]


@pytest.mark.parametrize("first", ["destroy", "close"])
def test_a_pool_keeps_what_it_exported_until_both_are_gone(process, first: str) -> None:
    pool = process("cuMemPoolCreate", pool_properties(handle=POSIX))[1]
    descriptor = process("cuMemPoolExportToShareableHandle", pool, POSIX, 0)[1]
    for _ in range(3):  # it is used again
        assert (fill(process, pool), use(process)) == (0, 64 * MIB)
    assert process("cuMemPoolTrimTo", pool, 0) == SUCCESS
    steps = {"destroy": ("cuMemPoolDestroy", pool), "close": ("close", descriptor)}
    assert process(*steps.pop(first)) == SUCCESS
    assert use(process) == 64 * MIB
    [last] = steps.values()
    assert process(*last) == SUCCESS
    until(lambda: use(process), lambda used: used == 0)


def test_a_pointer_of_a_pool_that_nobody_exported_is_not_exported(process) -> None:
    pool = process("cuMemPoolCreate", pool_properties(handle=POSIX))[1]
    address = process("cuMemAllocFromPoolAsync", 64 * MIB, pool, 0)[1]
    assert process("cuMemPoolExportPointer", address)[0] == INVALID_VALUE


def test_a_dma_buf_of_a_pools_memory_keeps_its_chunk_when_the_pool_has_given_it_up(process) -> None:
    """The pool does not use it again, as it does what it exported itself."""
    pool = process("cuMemPoolCreate", pool_properties(handle=POSIX))[1]
    descriptors = []
    for count in (1, 2):
        address = process("cuMemAllocFromPoolAsync", 64 * MIB, pool, 0)[1]
        descriptors.append(process("cuMemGetHandleForAddressRange", address, 4096, 1, 0)[1])
        assert process("cuMemFreeAsync", address, 0) == SUCCESS
        assert process("cuStreamSynchronize", 0) == SUCCESS
        assert (process("cuMemPoolGetAttribute", pool, RESERVED)[1], use(process)) == (0, count * 64 * MIB)
    assert process("cuMemPoolDestroy", pool) == SUCCESS
    assert use(process) == 128 * MIB
    for descriptor in descriptors:
        assert process("close", descriptor) == SUCCESS
    until(lambda: use(process), lambda used: used == 0)
