"""Stream-ordered memory: what pools reserve, keep and give back."""

import pytest
from cuda_structures import DEVICE, HOST, HOST_NUMA, MANAGED, location, pool_properties
from gpu_host import CONTEXT, GIB, MIB

SUCCESS = [0]
INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, INVALID_DEVICE, NOT_SUPPORTED = 1, 2, 3, 101, 801
INVALID_CONTEXT, INVALID_HANDLE, CONTEXT_IS_DESTROYED = 201, 400, 709
THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH = 4, 5, 6, 7, 8
STEP = 32 * MIB
SIZE = 4 * GIB


@pytest.fixture
def process(make_host):
    process = make_host(SIZE, SIZE).process()
    process.start()
    return process


@pytest.fixture
def pool(process) -> int:
    return process("cuDeviceGetDefaultMemPool", 0)[1]


def take(process, size: int, stream: int = 0) -> int:
    result, address = process("cuMemAllocAsync", size, stream)
    assert result == 0
    return address


def reserved_and_used(process, pool: int) -> tuple[int, int]:
    return tuple(process("cuMemPoolGetAttribute", pool, attribute)[1] for attribute in (RESERVED, USED))


def device_use(process) -> int:
    return SIZE - CONTEXT - process.free_memory()


@pytest.mark.parametrize(
    ("size", "used", "reserved"),
    [
        (1, 512, STEP),
        (MIB, MIB, STEP),
        (STEP, STEP, STEP),
        (STEP + 1, STEP + 512, STEP + 2 * MIB),
        (GIB, GIB, GIB),
    ],
)
def test_a_pool_grows_in_steps(process, pool: int, size: int, used: int, reserved: int) -> None:
    address = take(process, size)
    assert reserved_and_used(process, pool) == (reserved, used)
    assert device_use(process) == reserved
    assert process("cuMemFreeAsync", address, 0) == SUCCESS
    assert reserved_and_used(process, pool) == (reserved, 0)
    assert process("cuStreamSynchronize", 0) == SUCCESS
    assert reserved_and_used(process, pool) == (0, 0)
    assert device_use(process) == 0


def test_small_allocations_share_a_step_and_use_what_was_freed(process, pool: int) -> None:
    addresses = [take(process, 8 * MIB) for _ in range(4)]
    assert len(set(addresses)) == 4
    assert reserved_and_used(process, pool) == (STEP, STEP)
    assert process("cuMemFreeAsync", addresses[1], 0) == SUCCESS
    assert process("cuMemFreeAsync", addresses[2], 0) == SUCCESS
    assert take(process, 16 * MIB) == addresses[1]  # the two neighbours as one
    fifth = take(process, 1)
    assert reserved_and_used(process, pool) == (2 * STEP, STEP + 512)
    assert process("cuMemFreeAsync", fifth, 0) == SUCCESS
    assert process("cuCtxSynchronize") == SUCCESS
    assert reserved_and_used(process, pool) == (STEP, STEP)


@pytest.mark.parametrize("free", ["cuMemFree_v2", "cuMemFreeAsync"])
def test_either_free_takes_either_address(process, pool: int, free: str) -> None:
    ordered, plain = take(process, 8 * MIB), process.allocate(GIB)
    stream = (0,) if free == "cuMemFreeAsync" else ()
    assert process(free, ordered, *stream) == SUCCESS
    assert reserved_and_used(process, pool) == (STEP, 0)  # cuMemFree does not synchronise for a pool's memory
    assert process(free, plain, *stream) == SUCCESS
    assert device_use(process) == (STEP if free == "cuMemFree_v2" else STEP + GIB)
    assert process(free, 0, *stream) == SUCCESS
    assert [process(free, address, *stream) for address in (ordered, plain, 12345)] == [[INVALID_VALUE]] * 3
    assert process("cuCtxSynchronize") == SUCCESS
    assert device_use(process) == 0


def test_the_release_threshold_is_kept(process, pool: int) -> None:
    assert process("cuMemPoolGetAttribute", pool, THRESHOLD) == [0, 0]
    assert process("cuMemPoolSetAttribute", pool, THRESHOLD, 40 * MIB) == SUCCESS
    addresses = [take(process, STEP) for _ in range(4)]
    for address in addresses:
        assert process("cuMemFreeAsync", address, 0) == SUCCESS
    assert reserved_and_used(process, pool) == (4 * STEP, 0)
    assert process("cuCtxSynchronize") == SUCCESS
    assert reserved_and_used(process, pool) == (2 * STEP, 0)
    assert process("cuMemPoolTrimTo", pool, STEP) == SUCCESS
    assert reserved_and_used(process, pool) == (STEP, 0)
    assert process("cuMemPoolTrimTo", pool, 2**64 - 1) == SUCCESS
    assert process("cuMemPoolTrimTo", pool, 0) == SUCCESS
    assert reserved_and_used(process, pool) == (0, 0)
    assert device_use(process) == 0


def test_marks_of_the_most_are_set_back_to_now(process, pool: int) -> None:
    marks = RESERVED_HIGH, USED_HIGH
    assert process("cuMemFreeAsync", take(process, 40 * MIB), 0) == SUCCESS
    assert process("cuCtxSynchronize") == SUCCESS
    take(process, MIB)
    assert [process("cuMemPoolGetAttribute", pool, mark) for mark in marks] == [[0, 40 * MIB], [0, 40 * MIB]]
    assert [process("cuMemPoolSetAttribute", pool, mark, 1) for mark in marks] == [[INVALID_VALUE]] * 2
    assert [process("cuMemPoolSetAttribute", pool, mark, 0) for mark in marks] == [SUCCESS] * 2
    assert [process("cuMemPoolGetAttribute", pool, mark) for mark in marks] == [[0, STEP], [0, MIB]]


def test_settings_of_a_pool(process, pool: int) -> None:
    assert [process("cuMemPoolGetAttribute", pool, reuse) for reuse in (1, 2, 3)] == [[0, 1]] * 3
    assert process("cuMemPoolSetAttribute", pool, 2, 0) == SUCCESS
    assert [process("cuMemPoolGetAttribute", pool, reuse) for reuse in (1, 2, 3)] == [[0, 1], [0, 0], [0, 1]]
    for attribute in (0, 99, RESERVED, USED):
        assert process("cuMemPoolSetAttribute", pool, attribute, 0) == [INVALID_VALUE]
    assert process("cuMemPoolGetAttribute", pool, 99)[0] == INVALID_VALUE
    assert process("cuMemPoolGetAttribute", 4096, USED)[0] == INVALID_VALUE


def test_refused_allocations(process, pool: int) -> None:
    free = process.free_memory()
    assert process("cuMemAllocAsync", 0, 0)[0] == INVALID_VALUE
    for size in (free + 1, 1 << 45, 2**64 - 1):
        assert process("cuMemAllocAsync", size, 0)[0] == OUT_OF_MEMORY
    assert reserved_and_used(process, pool) == (0, 0)
    process.allocate(free - 40 * MIB)
    take(process, 30 * MIB)
    assert process("cuMemAllocAsync", 4 * MIB, 0)[0] == OUT_OF_MEMORY  # 8 MiB are free, but no step
    take(process, 2 * MIB)
    assert reserved_and_used(process, pool) == (STEP, STEP)


@pytest.mark.parametrize("call", ["cuMemAlloc_v2", "cuMemAllocFromPoolAsync", "cuCtxCreate_v2"])
def test_what_pools_keep_unused_comes_before_a_refusal(process, pool: int, call: str) -> None:
    own = process("cuMemPoolCreate", pool_properties())[1]
    arguments = {"cuMemAlloc_v2": [GIB], "cuMemAllocFromPoolAsync": [GIB, own, 0], "cuCtxCreate_v2": [0, 0]}
    assert process("cuMemPoolSetAttribute", pool, THRESHOLD, 2**64 - 1) == SUCCESS
    assert process("cuMemFreeAsync", take(process, 2 * GIB), 0) == SUCCESS
    assert process("cuCtxSynchronize") == SUCCESS
    process.allocate(process.free_memory() - STEP)
    assert process(call, *arguments[call])[0] == 0
    assert reserved_and_used(process, pool) == (0, 0)


def test_streams(process) -> None:
    result, stream = process("cuStreamCreate", 1)
    assert result == 0
    address = take(process, MIB, stream)
    assert process("cuStreamQuery", stream) == SUCCESS
    assert process("cuMemFreeAsync_ptsz", address, 2) == SUCCESS
    assert device_use(process) == STEP
    assert process("cuStreamSynchronize_ptsz", stream) == SUCCESS
    assert device_use(process) == 0
    assert process("cuStreamCreate", 2)[0] == INVALID_VALUE
    assert process("cuStreamDestroy_v2", stream) == SUCCESS
    assert process("cuStreamDestroy_v2", stream) == [INVALID_HANDLE]
    assert process("cuStreamSynchronize", stream) == [INVALID_HANDLE]
    assert process("cuMemAllocAsync_ptsz", MIB, stream)[0] == INVALID_HANDLE
    assert process("cuMemFreeAsync", 0, stream) == [INVALID_HANDLE]


def test_calls_without_a_context(make_host) -> None:
    process = make_host(GIB).process()
    assert process("cuMemAllocAsync", 1, 0)[0] == NOT_INITIALIZED
    process("cuInit", 0)
    calls = ("cuMemAllocAsync", 1, 0), ("cuMemFreeAsync", 0, 0), ("cuStreamSynchronize", 0), ("cuStreamCreate", 0)
    assert [process(*call)[0] for call in calls] == [INVALID_CONTEXT] * 4
    assert process("cuDeviceGetDefaultMemPool", 0)[0] == 0
    assert process("cuDeviceGetDefaultMemPool", 1)[0] == INVALID_DEVICE


def test_the_current_pool_of_a_device(process, pool: int) -> None:
    result, own = process("cuMemPoolCreate", pool_properties())
    assert result == 0
    assert process("cuDeviceGetMemPool", 0) == [0, pool]
    assert process("cuDeviceSetMemPool", 1, own) == [INVALID_VALUE]
    assert process("cuDeviceSetMemPool", 0, own) == SUCCESS
    assert process("cuDeviceGetMemPool", 0) == [0, own]
    take(process, MIB)
    assert [reserved_and_used(process, one) for one in (pool, own)] == [(0, 0), (STEP, MIB)]
    assert process("cuMemGetMemPool", location(DEVICE), 1) == [0, own]
    assert process("cuMemGetDefaultMemPool", location(DEVICE), 1) == [0, pool]
    assert process("cuMemSetMemPool", location(DEVICE), 1, pool) == SUCCESS
    assert process("cuMemGetMemPool", location(HOST), 1)[0] == NOT_SUPPORTED
    assert process("cuDeviceGetMemPool", 0) == [0, pool]
    assert process("cuMemPoolDestroy", pool) == [INVALID_VALUE]


def test_a_destroyed_pool_ends_with_its_last_allocation(process, pool: int) -> None:
    own = process("cuMemPoolCreate", pool_properties())[1]
    assert process("cuDeviceSetMemPool", 0, own) == SUCCESS
    first, second = take(process, MIB), take(process, 40 * MIB)
    assert process("cuMemPoolDestroy", own) == SUCCESS
    assert process("cuDeviceGetMemPool", 0) == [0, pool]
    assert process("cuMemPoolDestroy", own) == [INVALID_VALUE]
    assert process("cuMemAllocFromPoolAsync", MIB, own, 0)[0] == INVALID_VALUE
    assert device_use(process) == STEP + 40 * MIB
    assert process("cuMemFreeAsync", first, 0) == SUCCESS
    assert device_use(process) == STEP + 40 * MIB
    assert process("cuMemFree_v2", second) == SUCCESS
    assert device_use(process) == 0


def test_a_pool_of_another_device_and_of_the_host(process) -> None:
    there = process("cuMemPoolCreate", pool_properties(DEVICE, 1))[1]
    host = process("cuMemPoolCreate", pool_properties(HOST))[1]
    for pool in (there, host):
        assert process("cuMemAllocFromPoolAsync_ptsz", 40 * MIB, pool, 0)[0] == 0
        assert reserved_and_used(process, pool) == (40 * MIB, 40 * MIB)
    assert device_use(process) == 0
    assert process("nvml", 1)[1] == 40 * MIB


def test_a_pool_with_a_largest_size(process) -> None:
    pool = process("cuMemPoolCreate", pool_properties(most=64 * MIB))[1]
    assert process("cuMemAllocFromPoolAsync", 34 * MIB, pool, 0)[0] == 0
    assert process("cuMemAllocFromPoolAsync", MIB, pool, 0)[0] == OUT_OF_MEMORY
    assert process("cuMemAllocFromPoolAsync", 2**63, pool, 0)[0] == OUT_OF_MEMORY
    assert reserved_and_used(process, pool) == (34 * MIB, 34 * MIB)


@pytest.mark.parametrize(
    ("properties", "result"),
    [
        ("", INVALID_VALUE),
        (pool_properties(DEVICE, 2), INVALID_VALUE),
        (pool_properties(DEVICE, -1), INVALID_VALUE),
        (pool_properties(0), INVALID_VALUE),
        (pool_properties(type_=0), INVALID_VALUE),
        (pool_properties(type_=MANAGED), NOT_SUPPORTED),
        (pool_properties(handle=2), INVALID_VALUE),
        (pool_properties(HOST, handle=1), INVALID_VALUE),
        (pool_properties(handle=1), 0),
        (pool_properties(HOST_NUMA), 0),
    ],
)
def test_properties_of_a_pool(process, properties: str, result: int) -> None:
    assert process("cuMemPoolCreate", properties)[0] == result


def test_everything_in_pools_ends_with_the_last_context(process, pool: int) -> None:
    own = process("cuMemPoolCreate", pool_properties())[1]
    process("cuMemAllocFromPoolAsync", MIB, own, 0)
    address = take(process, GIB)
    assert process("cuMemPoolDestroy", own) == SUCCESS
    stream = process("cuStreamCreate", 0)[1]
    second = process("cuCtxCreate_v2", 0, 0)[1]
    assert process("cuDevicePrimaryCtxReset_v2", 0) == SUCCESS
    assert process("cuStreamSynchronize", stream) == [CONTEXT_IS_DESTROYED]
    assert device_use(process) == GIB + STEP
    assert process("cuCtxDestroy_v2", second) == SUCCESS
    assert process("nvml", 0)[1] == 0
    process.start()
    assert reserved_and_used(process, pool) == (0, 0)
    assert process("cuMemFreeAsync", address, 0) == [INVALID_VALUE]


PER_THREAD = ["cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemFreeAsync"]


@pytest.mark.parametrize("name", PER_THREAD)
def test_get_proc_address_finds_the_per_thread_twin(process, name: str) -> None:
    for flags, variant in ((0, name), (1, name), (2, f"{name}_ptsz")):
        assert process("cuGetProcAddress_v2", name, 11020, flags) == [0, process("address", variant)[1], 0]
    assert process("cuGetProcAddress_v2", name, 11010, 0) == [0, 0, 2]


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize(
    ("synchronise", "over"),
    [
        ([], False),
        ([("cuStreamQuery", "own")], False),
        ([("cuStreamSynchronize", "other")], False),
        ([("cuEventSynchronize", "before")], False),
        ([("cuEventRecord", "before", "own"), ("cuEventSynchronize", "before")], True),
        ([("cuStreamSynchronize", "own")], True),
        ([("cuCtxSynchronize",)], True),
    ],
)
def test_memory_freed_in_a_stream_is_the_devices_after_a_synchronisation(
    process, pool: int, pooled: bool, synchronise: list[tuple[str, ...]], over: bool
) -> None:
    """As on an H200 (driver 580.159): neither a query, nor another stream, nor a trim gives it back."""
    names = {name: process("cuStreamCreate", 1)[1] for name in ("own", "other")}
    names["before"] = process("cuEventCreate", 0)[1]
    address = process("cuMemAllocAsync", 64 * MIB, names["own"])[1] if pooled else process.allocate(64 * MIB)
    assert process("cuEventRecord", names["before"], names["own"]) == SUCCESS
    assert process("cuMemFreeAsync", address, names["own"]) == SUCCESS
    for call, *words in synchronise:
        assert process(call, *(names[word] for word in words)) == SUCCESS
    assert process("cuMemPoolTrimTo", pool, 0) == SUCCESS
    assert device_use(process) == (0 if over else 64 * MIB)
    assert process("cuCtxSynchronize") == SUCCESS
    assert device_use(process) == 0
