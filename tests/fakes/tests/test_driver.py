"""One process and the simulated driver. What it answers was compared with driver 580.159 on an H200."""

import pytest
from gpu_host import CONTEXT, GIB, MIB

SUCCESS = [0]
INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, NO_DEVICE, INVALID_DEVICE = 1, 2, 3, 100, 101
INVALID_CONTEXT, PRIMARY_CONTEXT_ACTIVE, CONTEXT_IS_DESTROYED = 201, 708, 709


@pytest.fixture
def host(make_host):
    return make_host(4 * GIB, 2 * GIB)


@pytest.fixture
def process(host):
    return host.process()


def test_nothing_works_before_cuinit(process) -> None:
    calls = [
        ("cuDeviceGetCount",),
        ("cuMemAlloc_v2", 1),
        ("cuMemAllocManaged", 1, 1),
        ("cuMemFree_v2", 0),
        ("cuCtxGetCurrent",),
        ("cuDevicePrimaryCtxRetain", 0),
        ("cuCtxCreate_v2", 0, 0),
    ]
    assert {call: process(*call)[0] for call in calls} == dict.fromkeys(calls, NOT_INITIALIZED)
    assert process("cuDriverGetVersion") == [0, 13000]
    assert process("cuInit", 1) == [INVALID_VALUE]


def test_without_the_file_devices_there_is_no_device(host, process) -> None:
    (host.directory / "devices").unlink()
    assert process("cuInit", 0) == [NO_DEVICE]


@pytest.mark.parametrize("line", ["GPU-0 1", "nonsense", "settle=1", "context_size=many", "oom_us=-1"])
def test_a_line_that_cannot_be_understood_is_named(host, line: str) -> None:
    with (host.directory / "devices").open("a") as devices:
        devices.write(f"# a comment\n{line}\n")
    popen = host.hold("1m")
    assert "devices:4: expected" in popen.communicate()[1]
    assert popen.returncode == 1


def test_devices_answer_what_the_file_says(host, process) -> None:
    process("cuInit", 0)
    assert process("cuDeviceGetCount") == [0, 2]
    assert [process("cuDeviceGet", n) for n in (0, 1)] == [[0, 0], [0, 1]]
    assert process("cuDeviceGet", 2)[0] == INVALID_DEVICE
    assert [process("cuDeviceTotalMem_v2", n) for n in (0, 1)] == [[0, 4 * GIB], [0, 2 * GIB]]
    assert process("cuDeviceTotalMem", 0) == [0, -1]  # UINT_MAX, read as int
    uuids = [uuid.removeprefix("GPU-").replace("-", "") for uuid in host.uuids]
    for variant in ("cuDeviceGetUuid", "cuDeviceGetUuid_v2"):
        assert [process(variant, n) for n in (0, 1)] == [[0, uuid] for uuid in uuids]
    assert process("cuDeviceGetName", 0) == [0, "Simulated GPU"]
    assert process("cuDeviceGetAttribute", 10, 0) == [0, 32]
    assert process("cuDeviceGetAttribute", 0, 0)[0] == INVALID_VALUE


@pytest.mark.parametrize(
    ("visible", "result", "order"),
    [
        ("1", 0, [1]),
        ("1,0", 0, [1, 0]),
        ("0,9,1", 0, [0]),
        ("{1},{0}", 0, [1, 0]),
        ("{1},0", 0, [1]),
        ("0,{1}", 0, [0]),
        ("GPU-0badcafe-0000-4000-8000-000000000002", 0, [1]),
        ("GPU-0badcafe", NO_DEVICE, []),
        ("GPU-", NO_DEVICE, []),
        ("", NO_DEVICE, []),
        ("-1", NO_DEVICE, []),
        ("9,0", NO_DEVICE, []),
        ("1,1", INVALID_DEVICE, []),
    ],
)
def test_visible_devices(host, visible: str, result: int, order: list[int]) -> None:
    process = host.process(CUDA_VISIBLE_DEVICES=visible.format(*host.uuids))
    assert process("cuInit", 0) == [result]
    if result != 0:
        assert process("cuDeviceGetCount")[0] == NOT_INITIALIZED
        return
    totals = [process("cuDeviceTotalMem_v2", n)[1] for n in range(process("cuDeviceGetCount")[1])]
    assert totals == [[4 * GIB, 2 * GIB][row] for row in order]


def test_calls_without_a_context(process) -> None:
    process("cuInit", 0)
    refused = [("cuMemAlloc_v2", 1), ("cuMemAlloc_v2", 0), ("cuMemGetInfo_v2",), ("cuCtxGetDevice",)]
    assert [process(*call)[0] for call in refused] == [INVALID_CONTEXT] * 4
    assert process("cuMemFree_v2", 0) == SUCCESS
    assert process("cuMemFree_v2", 0x7F1234560000) == [INVALID_VALUE]
    assert process("cuMemAllocManaged", 1, 0)[0] == INVALID_VALUE
    assert process("cuCtxPopCurrent_v2")[0] == INVALID_CONTEXT
    assert process("cuCtxPushCurrent_v2", 0) == [INVALID_VALUE]


@pytest.mark.parametrize(
    ("size", "counted"),
    [
        (1, 2 * MIB),
        (512, 2 * MIB),
        (100_000, 2 * MIB),
        (MIB - 1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 2 * MIB),
        (2 * MIB, 2 * MIB),
        (2 * MIB + 1, 4 * MIB),
        (GIB, GIB),
    ],
)
def test_an_allocation_takes_what_it_is_rounded_to(process, size: int, counted: int) -> None:
    process.start()
    before = process.free_memory()
    assert before == 4 * GIB - CONTEXT
    address = process.allocate(size)
    assert process.free_memory() == before - counted
    assert address >= 0x100000000000
    assert address % (2 * MIB if size > MIB else 512) == 0
    assert process("cuMemFree_v2", address) == SUCCESS
    assert process.free_memory() == before
    assert process.allocate(size) == address


@pytest.mark.parametrize(
    ("size", "count", "taken"),
    [(1, 9_000, 6 * MIB), (700 * 1024, 7, 8 * MIB), (MIB, 2, 2 * MIB), (MIB + 1, 2, 4 * MIB)],
)
def test_small_allocations_share_slabs(process, size: int, count: int, taken: int) -> None:
    process.start()
    before = process.free_memory()
    first, *others = process("many", size, count)
    assert before - process.free_memory() == taken
    for address in others:
        assert process("cuMemFree_v2", address) == SUCCESS
    assert before - process.free_memory() == 2 * MIB
    assert process("cuMemFree_v2", first) == SUCCESS
    assert process.free_memory() == before


def test_refused_allocations(process) -> None:
    process.start()
    free = process.free_memory()
    assert process("cuMemAlloc_v2", 0)[0] == INVALID_VALUE
    for size in (free + 1, 1 << 45, 2**64 - 1):
        assert process("cuMemAlloc_v2", size)[0] == OUT_OF_MEMORY
    assert process.free_memory() == free
    process.allocate(free)
    assert process.free_memory() == 0
    assert process("cuMemAlloc_v2", 1)[0] == OUT_OF_MEMORY


def test_only_a_live_address_can_be_freed(process) -> None:
    process.start()
    address = process.allocate(4 * MIB)
    assert process("cuMemFree_v2", address + 512) == [INVALID_VALUE]
    assert process("cuMemFree_v2", address) == SUCCESS
    assert process("cuMemFree_v2", address) == [INVALID_VALUE]
    assert process("cuMemFree_v2", 12345) == [INVALID_VALUE]


def test_addresses_are_unique(process) -> None:
    process.start()
    addresses = process("many", 4096, 10_000)
    assert len(set(addresses)) == 10_000


def test_pitch_and_managed(process) -> None:
    process.start()
    before = process.free_memory()
    result, _, pitch = process("cuMemAllocPitch_v2", 513, 4096, 4)
    assert (result, pitch, before - process.free_memory()) == (0, 1024, 4 * MIB)
    for width, height, element in ((100, 10, 3), (0, 1, 4), (1, 0, 4)):
        assert process("cuMemAllocPitch_v2", width, height, element)[0] == INVALID_VALUE
    assert process("cuMemAllocPitch_v2", 2**63, 2**63, 4)[0] == OUT_OF_MEMORY
    before = process.free_memory()
    assert [process("cuMemAllocManaged", 2 * MIB, flags)[0] for flags in (0, 1, 2, 3)] == [1, 0, 0, 1]
    assert before - process.free_memory() == 4 * MIB


def test_a_primary_context_takes_memory_while_it_is_retained(process) -> None:
    context = process.start()
    assert process("cuDevicePrimaryCtxRetain", 0) == [0, context]
    assert process.free_memory() == 4 * GIB - CONTEXT
    assert process("cuDevicePrimaryCtxSetFlags", 0, 4) == [PRIMARY_CONTEXT_ACTIVE]
    assert process("cuDevicePrimaryCtxSetFlags_v2", 0, 4) == SUCCESS
    assert process("cuDevicePrimaryCtxRelease_v2", 0) == SUCCESS
    assert process("cuDevicePrimaryCtxGetState", 0) == [0, 4, 1]
    process.allocate(GIB)
    assert process("cuDevicePrimaryCtxRelease_v2", 0) == SUCCESS
    assert process("cuDevicePrimaryCtxGetState", 0) == [0, 4, 0]
    assert process("cuDevicePrimaryCtxRelease_v2", 0) == [INVALID_CONTEXT]
    assert process("cuMemAlloc_v2", 1)[0] == CONTEXT_IS_DESTROYED
    assert process("cuDevicePrimaryCtxRetain", 0) == [0, context]
    assert process.free_memory() == 4 * GIB - CONTEXT


def test_a_reset_ends_the_context_and_keeps_its_references(process) -> None:
    context = process.start()
    address = process.allocate(GIB)
    assert process("cuDevicePrimaryCtxReset_v2", 0) == SUCCESS
    assert process("cuDevicePrimaryCtxGetState", 0) == [0, 0, 0]
    assert process("cuCtxGetCurrent") == [0, context]
    assert process("cuMemFree_v2", address) == [CONTEXT_IS_DESTROYED]
    assert process("cuCtxSetCurrent", context) == SUCCESS
    assert process("cuDevicePrimaryCtxRelease_v2", 0) == SUCCESS
    assert process("cuDevicePrimaryCtxRelease_v2", 0) == [INVALID_CONTEXT]
    assert process("cuDevicePrimaryCtxRetain", 0) == [0, context]
    assert process.free_memory() == 4 * GIB - CONTEXT
    assert process("cuMemFree_v2", address) == [INVALID_VALUE]


def test_created_contexts_stack_up_and_free_what_they_hold(process) -> None:
    primary = process.start()
    first = process("cuCtxCreate_v3", 0, 0, 0, 0)[1]
    result, second = process("cuCtxCreate_v4", 0, 0, 1)
    assert result == 0
    assert process("cuCtxGetDevice") == [0, 1]
    assert process.free_memory() == 2 * GIB - CONTEXT
    address = process.allocate(GIB)
    assert process("cuCtxPopCurrent_v2") == [0, second]
    assert process("cuCtxGetCurrent") == [0, first]
    assert process.free_memory() == 4 * GIB - 2 * CONTEXT
    assert process("cuMemFree_v2", address) == SUCCESS  # of another context, and another device
    assert process("cuCtxPushCurrent_v2", second) == SUCCESS
    process.allocate(GIB)
    assert process("cuCtxDestroy_v2", second) == SUCCESS
    assert process("cuCtxGetCurrent") == [0, first]
    assert process("cuCtxSetCurrent", second)[0] == CONTEXT_IS_DESTROYED
    assert process("cuCtxDestroy_v2", primary) == [INVALID_CONTEXT]
    assert process("nvml", 1)[1] == 0
    assert process("nvml", 0)[1] == 2 * CONTEXT


def test_a_context_that_does_not_fit_is_refused(make_host) -> None:
    process = make_host(CONTEXT + MIB).process()
    process.start()
    assert process("cuCtxCreate_v2", 0, 0)[0] == OUT_OF_MEMORY
    assert process.free_memory() == MIB


def test_a_forked_child_cannot_use_the_driver_and_takes_nothing_from_its_parent(process) -> None:
    process.start()
    process.allocate(GIB)
    calls = [["cuInit", 0], ["cuDeviceGetCount"], ["cuMemAlloc_v2", 1], ["cuCtxGetCurrent"]]
    assert [answer[0] for answer in process("fork", *calls)] == [NOT_INITIALIZED] * 4
    assert process("fork", ["cuDriverGetVersion"]) == [[0, 13000]]
    assert process.free_memory() == 3 * GIB - CONTEXT
    assert process("nvml", 0)[2] == {str(process.popen.pid): GIB + CONTEXT}


def test_a_child_forked_before_cuinit_can_use_the_driver(process) -> None:
    assert process("fork", ["cuInit", 0], ["cuDeviceGetCount"]) == [[0], [0, 2]]
    assert process("cuInit", 0) == SUCCESS


VARIANTS = [
    ("cuMemAlloc", 12000, 0, "cuMemAlloc_v2"),
    ("cuMemAlloc", 3020, 2, "cuMemAlloc_v2"),
    ("cuCtxCreate", 2000, 0, "cuCtxCreate"),
    ("cuCtxCreate", 11030, 0, "cuCtxCreate_v2"),
    ("cuCtxCreate", 12000, 0, "cuCtxCreate_v3"),
    ("cuCtxCreate", 13000, 0, "cuCtxCreate_v4"),
    ("cuDeviceTotalMem", 3010, 0, "cuDeviceTotalMem"),
    ("cuDeviceGetUuid", 11030, 0, "cuDeviceGetUuid"),
    ("cuDeviceGetUuid", 11040, 0, "cuDeviceGetUuid_v2"),
    ("cuDevicePrimaryCtxRelease", 10000, 0, "cuDevicePrimaryCtxRelease"),
    ("cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2"),
    ("cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
    ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
    ("cuMemcpyHtoD", 12000, 0, "cuMemcpyHtoD_v2"),
    ("cuMemcpyHtoD", 12000, 1, "cuMemcpyHtoD_v2"),
    ("cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds"),
    ("cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz"),
    ("cuLaunchKernel", 12000, 3, "cuLaunchKernel"),
]


@pytest.mark.parametrize(("name", "version", "flags", "variant"), VARIANTS)
def test_get_proc_address_finds_the_one_variant(process, name: str, version: int, flags: int, variant: str) -> None:
    address = process("address", variant)[1]
    assert process("cuGetProcAddress_v2", name, version, flags) == [0, address, 0]
    assert process("cuGetProcAddress", name, version, flags) == [0, address]


@pytest.mark.parametrize(
    ("name", "version", "flags", "answer"),
    [
        ("cuNoSuchCall", 12000, 0, [0, 0, 1]),
        ("cuMemAlloc_v2", 12000, 0, [0, 0, 1]),  # not a base name
        ("cuMemAllocManaged", 5000, 0, [0, 0, 2]),
        ("cuMemcpyHtoD", 6000, 2, [0, 0, 2]),  # its per-thread variant is newer
        ("cuMemAlloc", 13010, 0, [INVALID_VALUE, 0, 0]),  # newer than the driver
        ("cuMemAlloc", 12000, 4, [INVALID_VALUE, 0, 0]),
    ],
)
def test_get_proc_address_finds_nothing(process, name: str, version: int, flags: int, answer: list[int]) -> None:
    assert process("cuGetProcAddress_v2", name, version, flags) == answer
