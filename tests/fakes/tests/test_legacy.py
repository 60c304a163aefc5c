"""The forms of CUDA 2: sizes and addresses of 32 bits."""

import pytest
from gpu_host import CONTEXT, GIB, MIB

SUCCESS = [0]
INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT, NOT_FOUND = 1, 2, 201, 500
SIZE = 16 * GIB


@pytest.fixture
def process(make_host):
    process = make_host(SIZE).process()
    process("cuInit", 0)
    assert process("cuMemAlloc", MIB)[0] == INVALID_CONTEXT
    process.start()
    return process


def device_use(process) -> int:
    return SIZE - CONTEXT - process.free_memory()


@pytest.mark.parametrize("free", ["cuMemFree", "cuMemFree_v2"])
def test_old_memory_has_low_addresses_and_counts(process, free: str) -> None:
    result, address = process("cuMemAlloc", 3 * MIB)
    assert result == 0
    assert 0 < address < 2**31
    assert device_use(process) == 4 * MIB
    assert process("cuMemGetAddressRange", address) == [0, address, 3 * MIB]
    assert process(free, address) == SUCCESS
    assert process(free, address) == [INVALID_VALUE]
    assert device_use(process) == 0
    assert process("cuMemAlloc", 3 * MIB) == [0, address]


def test_old_memory_with_a_pitch(process) -> None:
    result, _, pitch = process("cuMemAllocPitch", 513, 4096, 4)
    assert (result, pitch, device_use(process)) == (0, 1024, 4 * MIB)
    assert process("cuMemAllocPitch", 513, 4096, 3)[0] == INVALID_VALUE
    assert process("cuMemAllocPitch", 65536, 65536, 4)[0] == OUT_OF_MEMORY
    assert process("cuMemAlloc", 0)[0] == INVALID_VALUE


def test_low_addresses_run_out(process) -> None:
    addresses = []
    while (answer := process("cuMemAlloc", 512 * MIB))[0] == 0:
        addresses.append(answer[1])
        assert len(addresses) <= 8
    assert answer[0] == OUT_OF_MEMORY
    assert device_use(process) == len(addresses) * 512 * MIB >= 3 * GIB


def test_sizes_beyond_32_bits_are_the_most_that_they_can_say(process) -> None:
    assert process("cuMemGetInfo") == [0, -1, -1]  # UINT_MAX, read as int


def test_old_memory_ends_with_its_context(process) -> None:
    context = process("cuCtxCreate_v2", 0, 0)[1]
    address = process("cuMemAlloc", 512 * MIB)[1]
    assert process("cuCtxDestroy_v2", context) == SUCCESS
    assert process("cuMemFree", address) == [INVALID_VALUE]
    assert process("cuMemAlloc", 512 * MIB) == [0, address]


def test_the_range_of_an_address(process) -> None:
    address = process.allocate(3 * MIB)
    assert process("cuMemGetAddressRange_v2", address) == [0, address, 3 * MIB]
    assert process("cuMemGetAddressRange_v2", 12345)[0] == NOT_FOUND


@pytest.mark.parametrize("name", ["cuMemAlloc", "cuMemAllocPitch", "cuMemFree", "cuMemGetInfo"])
def test_get_proc_address_finds_the_old_form_for_old_programs(process, name: str) -> None:
    for version, variant in ((2000, name), (3010, name), (3020, f"{name}_v2"), (13000, f"{name}_v2")):
        assert process("cuGetProcAddress_v2", name, version, 0) == [0, process("address", variant)[1], 0]
