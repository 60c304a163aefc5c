"""Virtual memory management: physical memory lives until it is both released and unmapped.

The results were seen on an H200 with driver 580.159, also where cuda.h says otherwise.
"""

import pytest
from cuda_structures import DEVICE, HOST, HOST_NUMA, access, allocation_properties, location
from gpu_host import CONTEXT, GIB, MIB, SIZE

SUCCESS = [0]
INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, INVALID_DEVICE, NOT_PERMITTED, NOT_SUPPORTED = 1, 2, 3, 101, 800, 801
GRANULE = 2 * MIB
READ_WRITE = 3
DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
ANYWHERE = (0, 0, 0)


def create(process, size: int, properties: str = allocation_properties()) -> int:
    result, handle = process("cuMemCreate", size, properties, 0)
    assert result == 0
    return handle


def reserve(process, size: int) -> int:
    result, address = process("cuMemAddressReserve", size, *ANYWHERE)
    assert result == 0
    assert address % GRANULE == 0
    return address


def device_use(process) -> int:
    return SIZE - CONTEXT - process.free_memory()


def test_the_granularity_is_two_mebibytes(process) -> None:
    for properties in (allocation_properties(), allocation_properties(HOST), allocation_properties(handle=1)):
        for option in (0, 1):
            assert process("cuMemGetAllocationGranularity", properties, option) == [0, GRANULE]
    assert process("cuMemGetAllocationGranularity", allocation_properties(), 2)[0] == INVALID_VALUE
    assert process("cuMemGetAllocationGranularity", "", 0)[0] == INVALID_VALUE


@pytest.mark.parametrize(
    ("size", "properties", "result"),
    [
        (0, allocation_properties(), INVALID_VALUE),
        (1, allocation_properties(), INVALID_VALUE),
        (GRANULE + 512, allocation_properties(), INVALID_VALUE),
        (GRANULE, "", INVALID_VALUE),
        (GRANULE, allocation_properties(type_=0), INVALID_VALUE),
        (GRANULE, allocation_properties(type_=2), INVALID_VALUE),
        (GRANULE, allocation_properties(0), INVALID_VALUE),
        (GRANULE, allocation_properties(DEVICE, 2), INVALID_DEVICE),
        (GRANULE, allocation_properties(DEVICE, -1), INVALID_DEVICE),
        (GRANULE, allocation_properties(handle=8), NOT_PERMITTED),
        (GRANULE, allocation_properties(handle=2), INVALID_VALUE),
        (GRANULE, allocation_properties(HOST, handle=1), INVALID_VALUE),
        (2**64 - GRANULE, allocation_properties(), OUT_OF_MEMORY),
        (SIZE, allocation_properties(), OUT_OF_MEMORY),
    ],
)
def test_refused_creations(process, size: int, properties: str, result: int) -> None:
    assert process("cuMemCreate", size, properties, 0)[0] == result
    assert device_use(process) == 0


def test_memory_is_counted_from_creation_to_release(process) -> None:
    handle = create(process, GIB)
    assert device_use(process) == GIB
    assert process("cuMemRelease", handle) == SUCCESS
    assert device_use(process) == 0
    assert process("cuMemRelease", handle) == [INVALID_VALUE]
    assert process("cuMemRelease", 4096) == [INVALID_VALUE]


def test_a_mapping_keeps_released_memory(process) -> None:
    address = reserve(process, 4 * GRANULE)
    handle = create(process, GRANULE)
    assert process("cuMemMap", address, GRANULE, 0, handle, 0) == SUCCESS
    assert process("cuMemMap", address + 2 * GRANULE, GRANULE, 0, handle, 0) == SUCCESS
    assert process("cuMemRelease", handle) == SUCCESS
    assert process("cuMemMap", address + GRANULE, GRANULE, 0, handle, 0) == [INVALID_VALUE]
    assert process("cuMemUnmap", address, GRANULE) == SUCCESS
    assert device_use(process) == GRANULE
    assert process("cuMemUnmap", address + 2 * GRANULE, GRANULE) == SUCCESS
    assert device_use(process) == 0
    assert process("cuMemAddressFree", address, 4 * GRANULE) == SUCCESS


def test_a_handle_keeps_unmapped_memory(process) -> None:
    address, handle = reserve(process, GRANULE), create(process, GRANULE)
    assert process("cuMemMap", address, GRANULE, 0, handle, 0) == SUCCESS
    assert process("cuMemUnmap", address, GRANULE) == SUCCESS
    assert device_use(process) == GRANULE
    assert process("cuMemMap", address, GRANULE, 0, handle, 0) == SUCCESS
    assert process("cuMemRelease", handle) == SUCCESS
    assert process("cuMemUnmap", address, GRANULE) == SUCCESS
    assert device_use(process) == 0


def test_a_retained_handle_is_the_same_and_counts(process) -> None:
    address, handle = reserve(process, 2 * GRANULE), create(process, 2 * GRANULE)
    assert process("cuMemMap", address, 2 * GRANULE, 0, handle, 0) == SUCCESS
    assert process("cuMemRetainAllocationHandle", address + GRANULE + 5) == [0, handle]
    assert process("cuMemRelease", handle) == SUCCESS
    assert process("cuMemRelease", handle) == SUCCESS
    assert process("cuMemRetainAllocationHandle", address) == [0, handle]  # though all were released
    assert process("cuMemUnmap", address, 2 * GRANULE) == SUCCESS
    assert device_use(process) == 2 * GRANULE
    assert process("cuMemRelease", handle) == SUCCESS
    assert device_use(process) == 0
    assert process("cuMemRetainAllocationHandle", address)[0] == INVALID_VALUE
    assert process("cuMemRetainAllocationHandle", process.allocate(GRANULE))[0] == INVALID_VALUE


def test_only_whole_mappings_are_unmapped(process) -> None:
    address = reserve(process, 8 * GRANULE)
    for offset in (0, 2, 4):
        handle = create(process, 2 * GRANULE)
        assert process("cuMemMap", address + offset * GRANULE, 2 * GRANULE, 0, handle, 0) == SUCCESS
        assert process("cuMemRelease", handle) == SUCCESS
    for start, granules in ((0, 1), (1, 1), (1, 2), (0, 3), (3, 5), (0, 0), (7, 2)):
        assert process("cuMemUnmap", address + start * GRANULE, granules * GRANULE) == [INVALID_VALUE]
    assert device_use(process) == 6 * GRANULE
    assert process("cuMemUnmap", address, 4 * GRANULE) == SUCCESS
    assert device_use(process) == 2 * GRANULE
    assert process("cuMemAddressFree", address, 8 * GRANULE) == [INVALID_VALUE]  # still mapped
    for _ in range(2):
        assert process("cuMemUnmap", address, 8 * GRANULE) == SUCCESS  # what is not mapped does not matter
        assert device_use(process) == 0


def test_refused_mappings(process) -> None:
    address, handle = reserve(process, 4 * GRANULE), create(process, 2 * GRANULE)
    assert process("cuMemMap", address + GRANULE, 2 * GRANULE, 0, handle, 0) == SUCCESS
    for start, size, offset, result in (
        (0, 2 * GRANULE, 0, INVALID_VALUE),
        (2 * GRANULE, 2 * GRANULE, 0, INVALID_VALUE),
        (4 * GRANULE, GRANULE, 0, INVALID_VALUE),
        (3 * GRANULE, 2 * GRANULE, 0, INVALID_VALUE),
        (512, GRANULE, 0, INVALID_VALUE),
        (0, 0, 0, INVALID_VALUE),
        (0, GRANULE, 0, NOT_SUPPORTED),  # a part
        (0, GRANULE, GRANULE, NOT_SUPPORTED),
        (0, 512, 0, NOT_SUPPORTED),
        (0, 3 * GRANULE, 0, NOT_SUPPORTED),
    ):
        assert process("cuMemMap", address + start, size, offset, handle, 0) == [result]
    assert process("cuMemMap", process.allocate(GRANULE), GRANULE, 0, handle, 0) == [INVALID_VALUE]
    assert process("cuMemMap", address, GRANULE, 0, 4096, 0) == [INVALID_VALUE]
    assert process("cuMemUnmap", address + GRANULE, 2 * GRANULE) == SUCCESS
    assert process("cuMemMap", address, 2 * GRANULE, 0, handle, 0) == SUCCESS


def test_reservations(process) -> None:
    first, second = reserve(process, GIB), reserve(process, GIB)
    assert abs(first - second) >= GIB
    assert device_use(process) == 0
    result, aligned = process("cuMemAddressReserve", GRANULE, GIB, 0, 0)
    assert (result, aligned % GIB) == (0, 0)
    for arguments in ((0, 0, 0, 0), (100, 0, 0, 0), (65536, 0, 0, 0), (GIB, 3, 0, 0), (GIB, 0, 0, 1)):
        assert process("cuMemAddressReserve", *arguments)[0] == INVALID_VALUE
    assert process("cuMemAddressReserve", 1 << 60, *ANYWHERE)[0] == OUT_OF_MEMORY
    assert process("cuMemAddressFree", first, GRANULE) == [INVALID_VALUE]
    assert process("cuMemAddressFree", first + GRANULE, GIB) == [INVALID_VALUE]
    assert process("cuMemAddressFree", first, GIB) == SUCCESS
    assert process("cuMemAddressFree", first, GIB) == [INVALID_VALUE]
    assert reserve(process, GIB) == first


def test_access_is_for_what_is_mapped(process) -> None:
    address, handle = reserve(process, 2 * GRANULE), create(process, GRANULE)
    assert process("cuMemSetAccess", address, GRANULE, access(READ_WRITE), 1) == [INVALID_VALUE]
    assert process("cuMemMap", address, GRANULE, 0, handle, 0) == SUCCESS
    assert process("cuMemGetAccess", location(DEVICE), address) == [0, 0]
    assert process("cuMemSetAccess", address, GRANULE, access(READ_WRITE), 1) == SUCCESS
    assert process("cuMemGetAccess", location(DEVICE), address + 1) == [0, READ_WRITE]
    assert process("cuMemSetAccess", address, GRANULE, access(READ_WRITE, 7), 1) == [INVALID_DEVICE]
    assert process("cuMemSetAccess", address, 2 * GRANULE, access(READ_WRITE), 1) == [INVALID_VALUE]
    assert process("cuMemFree_v2", address) == [INVALID_VALUE]
    assert process("cuMemFreeAsync", address, 0) == [INVALID_VALUE]


def test_memory_of_the_host_and_of_another_device(process) -> None:
    for properties in (allocation_properties(HOST), allocation_properties(HOST_NUMA)):
        create(process, SIZE * 4, properties)
    there = create(process, GIB, allocation_properties(DEVICE, 1))
    assert device_use(process) == 0
    assert process("nvml", 1)[1] == GIB
    assert process("cuMemRelease", there) == SUCCESS
    assert process("nvml", 1)[1] == 0


def test_no_context_is_needed(make_host) -> None:
    process = make_host(GIB).process()
    assert process("cuMemCreate", GRANULE, allocation_properties(), 0)[0] == NOT_INITIALIZED
    process("cuInit", 0)
    handle, address = create(process, GRANULE), reserve(process, GRANULE)
    assert process("cuMemMap", address, GRANULE, 0, handle, 0) == SUCCESS
    assert process("nvml", 0)[1] == GRANULE


def test_the_death_of_a_process_ends_its_memory(host) -> None:
    holder, observer = host.process(), host.process()
    holder.start()
    observer.start()
    create(holder, GIB)
    assert observer.free_memory() == SIZE - 2 * CONTEXT - GIB
    holder.kill()
    assert observer.free_memory() == SIZE - CONTEXT


def test_refused_exports_and_imports(process) -> None:
    handle = create(process, GRANULE)
    assert (
        process("cuMemExportToShareableHandle", handle, DESCRIPTOR, 0)[0] == INVALID_VALUE
    )  # not asked for when it was made
    assert process("cuMemExportToShareableHandle", 4096, DESCRIPTOR, 0)[0] == INVALID_VALUE
    assert process("cuMemImportFromShareableHandle", 9999, DESCRIPTOR)[0] == INVALID_VALUE
    assert process("cuMemImportFromShareableHandle", 0, DESCRIPTOR)[0] == INVALID_VALUE  # its stdin
    assert process("cuMemImportFromShareableHandle", 0, 2)[0] == INVALID_VALUE
