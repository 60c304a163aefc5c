"""Memory that one process opens in another is counted once, where it was allocated."""

import struct

import pytest
from cuda_structures import pool_properties
from gpu_host import CONTEXT, GIB, MIB

SUCCESS = [0]
INVALID_VALUE, INVALID_CONTEXT, MAP_FAILED, INVALID_HANDLE, UNKNOWN = 1, 201, 205, 400, 999
LAZY = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


@pytest.fixture
def host(make_host):
    return make_host(4 * GIB, 4 * GIB)


@pytest.fixture
def owner(host):
    process = host.process()
    process.start()
    return process


@pytest.fixture
def guest(host):
    process = host.process()
    process.start()
    return process


def test_opened_memory_is_counted_at_its_owner(owner, guest) -> None:
    address = owner.allocate(GIB)
    result, handle = owner("cuIpcGetMemHandle", address)
    assert result == 0
    result, opened = guest("cuIpcOpenMemHandle_v2", handle, LAZY)
    assert result == 0
    counts = {str(owner.popen.pid): GIB + CONTEXT, str(guest.popen.pid): CONTEXT}
    assert guest("nvml", 0)[1:] == [GIB + 2 * CONTEXT, counts]
    for free in ("cuMemFree_v2",), ("cuMemFreeAsync", 0):
        assert guest(free[0], opened, *free[1:]) == [INVALID_VALUE]
    assert guest("cuIpcCloseMemHandle", opened) == SUCCESS
    assert guest("cuIpcCloseMemHandle", opened) == [INVALID_VALUE]
    assert guest("nvml", 0)[1:] == [GIB + 2 * CONTEXT, counts]
    assert owner("cuMemFree_v2", address) == SUCCESS
    assert guest("nvml", 0)[1] == 2 * CONTEXT


def test_a_handle_opened_twice_gives_the_same_address_and_counts(owner, guest) -> None:
    handle = owner("cuIpcGetMemHandle", owner.allocate(MIB))[1]
    other = owner("cuIpcGetMemHandle", owner.allocate(MIB))[1]
    opened = guest("cuIpcOpenMemHandle_v2", handle, LAZY)[1]
    assert guest("cuIpcOpenMemHandle", handle, LAZY) == [0, opened]
    assert guest("cuIpcOpenMemHandle_v2", other, LAZY)[1] != opened
    assert guest("cuIpcCloseMemHandle", opened) == SUCCESS
    assert guest("cuIpcCloseMemHandle", opened) == SUCCESS
    assert guest("cuIpcCloseMemHandle", opened) == [INVALID_VALUE]


def test_new_memory_at_an_old_address_has_another_handle(owner) -> None:
    address = owner.allocate(4 * MIB)
    handles = [owner("cuIpcGetMemHandle", address)[1]]
    assert owner("cuMemFree_v2", address) == SUCCESS
    assert owner.allocate(4 * MIB) == address
    handles.append(owner("cuIpcGetMemHandle", address)[1])
    assert owner("cuIpcGetMemHandle", address)[1] == handles[1] != handles[0]


def test_refused_handles(owner, guest) -> None:
    address = owner.allocate(4 * MIB)
    handle = owner("cuIpcGetMemHandle", address)[1]
    pool = owner("cuMemPoolCreate", pool_properties())[1]
    ordered = owner("cuMemAllocFromPoolAsync", MIB, pool, 0)[1]
    for other in (0, address + 512, ordered):
        assert owner("cuIpcGetMemHandle", other)[0] == INVALID_VALUE
    assert owner("cuIpcOpenMemHandle_v2", handle, LAZY)[0] == INVALID_CONTEXT  # one's own
    assert guest("cuIpcOpenMemHandle_v2", handle, 0)[0] == INVALID_VALUE
    assert guest("cuIpcOpenMemHandle_v2", "00" * 64, LAZY)[0] == INVALID_VALUE
    assert guest("cuIpcCloseMemHandle", guest.allocate(MIB)) == [INVALID_VALUE]
    assert guest("cuCtxCreate_v2", 0, 1)[0] == 0
    assert guest("cuIpcOpenMemHandle_v2", handle, LAZY)[0] == MAP_FAILED  # of another device


def test_what_a_context_opened_is_closed_with_it(owner, guest) -> None:
    handle = owner("cuIpcGetMemHandle", owner.allocate(4 * MIB))[1]
    context = guest("cuCtxCreate_v2", 0, 0)[1]
    opened = guest("cuIpcOpenMemHandle_v2", handle, LAZY)[1]
    assert guest("cuCtxDestroy_v2", context) == SUCCESS
    assert guest("cuCtxGetCurrent")[0] == 0
    assert guest("cuIpcCloseMemHandle", opened) == [INVALID_VALUE]
    assert guest("nvml", 0)[1] == 2 * CONTEXT + 4 * MIB


def test_nobody_here_exports_external_memory(owner) -> None:
    def descriptor(kind: int, size: int) -> str:
        return struct.pack("i4xi12xQI64x4x", kind, 0, size, 0).hex()

    assert owner("cuImportExternalMemory", descriptor(1, MIB))[0] == UNKNOWN
    assert owner("cuImportExternalMemory", descriptor(1, 0))[0] == INVALID_VALUE
    assert owner("cuImportExternalMemory", descriptor(0, MIB))[0] == INVALID_VALUE
    assert owner("cuImportExternalMemory", "")[0] == INVALID_VALUE
    assert owner("cuDestroyExternalMemory", 4096) == [INVALID_HANDLE]
