"""Memory that graphs allocate: reserved at the first launch, kept for others, given back by trimming.

What is expected of launches, trimming and attributes was seen on an H200 with driver 580.159.
"""

import pytest
from cuda_structures import DEVICE, HOST, allocated_address, allocation_node, node, pool_properties
from gpu_host import CONTEXT, GIB, MIB

SUCCESS = [0]
INVALID_VALUE, OUT_OF_MEMORY, INVALID_HANDLE, ILLEGAL_STATE, NOT_SUPPORTED = 1, 2, 400, 401, 801
CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED = 900, 901
USED, USED_HIGH, RESERVED, RESERVED_HIGH = 0, 1, 2, 3
EMPTY, ALLOCATE, FREE, CONDITIONAL = 5, 10, 11, 13
WHILE, SWITCH = 1, 2
AUTO_FREE, UPLOAD = 1, 2
SIZE = 4 * GIB


@pytest.fixture
def process(make_host):
    process = make_host(SIZE, SIZE).process()
    process.start()
    return process


@pytest.fixture
def graph(process) -> int:
    result, graph = process("cuGraphCreate", 0)
    assert result == 0
    return graph


def allocate(process, graph: int, size: int, device: int = 0) -> int:
    result, _, parameters = process("cuGraphAddMemAllocNode", graph, 0, 0, allocation_node(size, device))
    assert result == 0
    return allocated_address(parameters)


def free(process, graph: int, address: int) -> None:
    assert process("cuGraphAddMemFreeNode", graph, 0, 0, address)[0] == 0


def instantiate(process, graph: int, flags: int = 0) -> int:
    result, instance = process("cuGraphInstantiateWithFlags", graph, flags)
    assert result == 0
    return instance


def reserved(process, device: int = 0) -> int:
    used, now = (process("cuDeviceGetGraphMemAttribute", device, attribute)[1] for attribute in (USED, RESERVED))
    assert used == now  # as on a card: it is what addresses of graphs are backed with
    return now


def device_use(process) -> int:
    return SIZE - CONTEXT - process.free_memory()


def test_the_first_launch_reserves_and_trimming_gives_back(process, graph: int) -> None:
    free(process, graph, allocate(process, graph, 63 * MIB))
    instance = instantiate(process, graph)
    assert device_use(process) == 0
    for _ in range(2):
        assert process("cuGraphLaunch", instance, 0) == SUCCESS
        assert reserved(process) == 64 * MIB
        assert device_use(process) == 64 * MIB
    assert process("cuCtxSynchronize") == SUCCESS
    assert process("cuGraphExecDestroy", instance) == SUCCESS
    assert process("cuGraphDestroy", graph) == SUCCESS
    assert device_use(process) == 64 * MIB
    assert process("cuDeviceGraphMemTrim", 0) == SUCCESS
    assert reserved(process) == 0
    assert device_use(process) == 0


def test_graphs_share_what_is_reserved(process) -> None:
    instances = []
    for size in (64 * MIB, 32 * MIB, 96 * MIB):
        graph = process("cuGraphCreate", 0)[1]
        free(process, graph, allocate(process, graph, size))
        instances.append(instantiate(process, graph))
    sizes = []
    for instance in instances:
        assert process("cuGraphLaunch_ptsz", instance, 0) == SUCCESS
        sizes.append(device_use(process))
    assert sizes == [64 * MIB, 64 * MIB, 96 * MIB]
    stream = process("cuStreamCreate", 0)[1]
    assert process("cuGraphLaunch", instances[0], stream) == SUCCESS
    assert device_use(process) == 96 * MIB


def test_nodes_one_after_the_other_need_the_most_at_a_time(process, graph: int) -> None:
    for size in (64 * MIB, 128 * MIB):
        free(process, graph, allocate(process, graph, size))
    first, second = allocate(process, graph, 64 * MIB), allocate(process, graph, 96 * MIB)
    free(process, graph, first)
    free(process, graph, second)
    assert process("cuGraphLaunch", instantiate(process, graph), 0) == SUCCESS
    assert device_use(process) == 160 * MIB


def test_allocations_of_a_launch_share_its_steps(process, graph: int) -> None:
    addresses = [allocate(process, graph, 20 * MIB) for _ in range(5)]
    assert process("cuGraphLaunch", instantiate(process, graph), 0) == SUCCESS
    for address in addresses:
        assert process("cuDeviceGraphMemTrim", 0) == SUCCESS
        assert device_use(process) == 128 * MIB
        assert process("cuMemFree_v2", address) == SUCCESS
    assert process("cuDeviceGraphMemTrim", 0) == SUCCESS
    assert device_use(process) == 0


def test_what_only_the_device_lacks_is_refused_at_the_launch(process, graph: int) -> None:
    allocate(process, graph, 256 * GIB)
    assert process("cuGraphLaunch", instantiate(process, graph), 0) == [OUT_OF_MEMORY]
    assert device_use(process) == 0


@pytest.mark.parametrize("how", ["cuMemFree_v2", "cuMemFreeAsync", "graph"])
def test_what_a_graph_does_not_free_lives_until_somebody_does(process, graph: int, how: str) -> None:
    address = allocate(process, graph, 64 * MIB)
    instance = instantiate(process, graph)
    assert process("cuMemFree_v2", address) == [INVALID_VALUE]  # not launched yet
    assert process("cuGraphLaunch", instance, 0) == SUCCESS
    assert reserved(process) == 64 * MIB
    assert process("cuGraphLaunch", instance, 0) == [INVALID_VALUE]
    assert process("cuDeviceGraphMemTrim", 0) == SUCCESS
    assert device_use(process) == 64 * MIB
    if how == "graph":
        other = process("cuGraphCreate", 0)[1]
        free(process, other, address)
        freeing = instantiate(process, other)
        assert process("cuGraphLaunch", freeing, 0) == SUCCESS
        assert process("cuGraphLaunch", freeing, 0) == [INVALID_VALUE]
        assert process("cuGraphAddMemFreeNode", graph, 0, 0, address)[0] == INVALID_VALUE
    else:
        assert process(how, address, *((0,) if how == "cuMemFreeAsync" else ())) == SUCCESS
    assert process("cuMemFree_v2", address) == [INVALID_VALUE]
    assert reserved(process) == 64 * MIB
    assert process("cuGraphLaunch", instance, 0) == SUCCESS
    assert device_use(process) == 64 * MIB


def test_a_launch_frees_what_the_last_one_left_if_asked(process, graph: int) -> None:
    allocate(process, graph, 64 * MIB)
    instance = instantiate(process, graph, AUTO_FREE)
    for _ in range(3):
        assert process("cuGraphLaunch", instance, 0) == SUCCESS
        assert reserved(process) == 64 * MIB


def test_live_memory_outlives_its_graph(process, graph: int) -> None:
    address = allocate(process, graph, 64 * MIB)
    instance = instantiate(process, graph)
    assert process("cuGraphLaunch", instance, 0) == SUCCESS
    assert process("cuGraphDestroy", graph) == SUCCESS
    assert process("cuGraphExecDestroy", instance) == SUCCESS
    assert process("cuGraphLaunch", instance, 0) == [INVALID_VALUE]
    assert device_use(process) == 64 * MIB
    assert process("cuMemFreeAsync", address, 0) == SUCCESS
    assert process("cuDeviceGraphMemTrim", 0) == SUCCESS
    assert device_use(process) == 0


def test_marks_of_the_most(process, graph: int) -> None:
    free(process, graph, allocate(process, graph, 64 * MIB))
    assert process("cuGraphLaunch", instantiate(process, graph), 0) == SUCCESS
    assert process("cuDeviceGraphMemTrim", 0) == SUCCESS
    marks = USED_HIGH, RESERVED_HIGH
    assert [process("cuDeviceGetGraphMemAttribute", 0, mark)[1] for mark in marks] == [64 * MIB] * 2
    assert [process("cuDeviceSetGraphMemAttribute", 0, mark, 1) for mark in marks] == [[INVALID_VALUE]] * 2
    assert [process("cuDeviceSetGraphMemAttribute", 0, mark, 0) for mark in marks] == [SUCCESS] * 2
    assert [process("cuDeviceGetGraphMemAttribute", 0, mark)[1] for mark in marks] == [0, 0]
    assert process("cuDeviceSetGraphMemAttribute", 0, USED, 0) == [INVALID_VALUE]
    assert process("cuDeviceGetGraphMemAttribute", 0, 4)[0] == INVALID_VALUE


def test_a_launch_or_an_upload_that_does_not_fit_is_refused(process, graph: int) -> None:
    address = allocate(process, graph, 2 * GIB)
    instance = instantiate(process, graph)
    held = process.allocate(2 * GIB)
    assert process("cuGraphUpload", instance, 0) == [OUT_OF_MEMORY]
    assert process("cuGraphLaunch", instance, 0) == [OUT_OF_MEMORY]
    assert device_use(process) == 2 * GIB
    assert process("cuMemFree_v2", held) == SUCCESS
    assert process("cuGraphUpload", instance, 0) == SUCCESS
    assert reserved(process) == 2 * GIB
    assert process("cuGraphLaunch", instance, 0) == SUCCESS
    assert reserved(process) == 2 * GIB
    assert process("cuMemFree_v2", address) == SUCCESS


def test_a_graph_allocates_on_any_device(process, graph: int) -> None:
    allocate(process, graph, GIB, 1)
    assert process("cuGraphLaunch", instantiate(process, graph), 0) == SUCCESS
    assert device_use(process) == 0
    assert reserved(process, 1) == GIB
    assert process("nvml", 1)[1] == GIB


def test_refused_nodes(process, graph: int) -> None:
    for parameters in (allocation_node(0), allocation_node(MIB, 2), allocation_node(MIB, handle=1)):
        assert process("cuGraphAddMemAllocNode", graph, 0, 0, parameters)[0] == INVALID_VALUE
    assert process("cuGraphAddMemAllocNode", graph, 0, 0, allocation_node(1 << 60))[0] == OUT_OF_MEMORY
    assert process("cuGraphAddMemAllocNode", 4096, 0, 0, allocation_node(MIB))[0] == INVALID_VALUE
    assert process("cuGraphAddMemAllocNode", graph, 0, 1, allocation_node(MIB))[0] == INVALID_VALUE
    assert process("cuGraphAddMemFreeNode", graph, 0, 0, process.allocate(MIB))[0] == INVALID_VALUE
    address = allocate(process, graph, MIB)
    free(process, graph, address)
    assert process("cuGraphAddMemFreeNode", graph, 0, 0, address)[0] == INVALID_VALUE
    assert process("cuGraphAddNode", graph, 0, 0, node(1, ""))[0] == NOT_SUPPORTED


def test_nodes_of_the_general_kind(process, graph: int) -> None:
    result, _, parameters = process("cuGraphAddNode", graph, 0, 0, node(ALLOCATE, allocation_node(64 * MIB)))
    assert result == 0
    address = allocated_address(parameters)
    assert process("cuGraphAddNode", graph, 0, 0, node(EMPTY, ""))[0] == 0
    result, handle, _ = process("cuGraphAddNode_v2", graph, 0, 0, 0, node(FREE, address.to_bytes(8, "little").hex()))
    assert result == 0
    assert process("cuGraphMemFreeNodeGetParams", handle) == [0, address]
    assert process("cuGraphLaunch", instantiate(process, graph), 0) == SUCCESS
    assert reserved(process) == 64 * MIB


def test_conditional_nodes_have_bodies(process, graph: int) -> None:
    """The driver makes and tells them; what they do is part of the graph."""
    result, condition = process("cuGraphConditionalHandleCreate", graph, 0, 0, 0)
    assert result == 0
    for kind, count, expected in ((WHILE, 2, INVALID_VALUE), (SWITCH, 0, INVALID_VALUE), (SWITCH, 3, 0)):
        words = condition.to_bytes(8, "little") + kind.to_bytes(4, "little") + count.to_bytes(4, "little")
        result, handle, parameters = process("cuGraphAddNode", graph, 0, 0, node(CONDITIONAL, words.hex() + "00" * 16))
        assert result == expected
    bodies = int.from_bytes(bytes.fromhex(parameters)[32:40], "little")
    assert bodies != 0
    assert process("cuGraphNodeGetType", handle) == [0, CONDITIONAL]
    assert process("cuGraphExecDestroy", instantiate(process, graph)) == SUCCESS
    assert process("cuGraphLaunch", instantiate(process, graph), 0) == [NOT_SUPPORTED]


def test_a_graph_with_memory_has_one_instance_at_a_time(process, graph: int) -> None:
    assert process("cuGraphAddEmptyNode", graph, 0, 0)[0] == 0
    for call in ("cuGraphInstantiate", "cuGraphInstantiate_v2"):
        assert process("cuGraphExecDestroy", process(call, graph, 0, 0, 0)[1]) == SUCCESS
    allocate(process, graph, MIB)
    instance = instantiate(process, graph)
    assert process("cuGraphInstantiateWithFlags", graph, 0)[0] == NOT_SUPPORTED
    assert process("cuGraphExecDestroy", instance) == SUCCESS
    result, instance, _ = process("cuGraphInstantiateWithParams", graph, "02" + "00" * 31)  # UPLOAD
    assert (result, device_use(process)) == (0, 32 * MIB)
    assert process("cuGraphExecDestroy", instance) == SUCCESS
    assert process("cuGraphExecDestroy", instance) == [INVALID_VALUE]


def test_capture_makes_nodes_of_allocations(process) -> None:
    stream = process("cuStreamCreate", 0)[1]
    other = process.allocate(2 * MIB)  # a capture would not bear it
    assert process("cuStreamBeginCapture_v2", stream, 0) == SUCCESS
    assert process("cuStreamIsCapturing", stream) == [0, 1]
    assert process("cuStreamBeginCapture_v2", stream, 0) == [ILLEGAL_STATE]
    address = process("cuMemAllocAsync", 40 * MIB, stream)[1]
    kept = process("cuMemAllocAsync_ptsz", 64 * MIB, stream)[1]
    assert process("cuMemFreeAsync", address, stream) == SUCCESS
    assert process("cuMemFreeAsync", other, stream) == [INVALID_VALUE]
    result, graph = process("cuStreamEndCapture", stream)
    assert (result, device_use(process)) == (0, 2 * MIB)
    assert process("cuStreamIsCapturing", stream) == [0, 0]
    assert process("cuStreamEndCapture", stream)[0] == ILLEGAL_STATE
    assert process("cuGraphLaunch", instantiate(process, graph), stream) == SUCCESS
    assert reserved(process) == 128 * MIB
    assert process("cuMemFreeAsync", kept, stream) == SUCCESS


def test_a_capture_that_is_disturbed_gives_no_graph(process) -> None:
    stream = process("cuStreamCreate", 0)[1]
    assert process("cuStreamBeginCapture_v2", 0, 0) == [CAPTURE_UNSUPPORTED]
    assert process("cuStreamBeginCapture_v2", stream, 3) == [INVALID_VALUE]
    assert process("cuStreamBeginCapture_v2", stream, 1) == SUCCESS
    host = process("cuMemPoolCreate", pool_properties(HOST))[1]
    there = process("cuMemPoolCreate", pool_properties(DEVICE, 1))[1]
    assert process("cuMemAllocFromPoolAsync", MIB, host, stream)[0] == NOT_SUPPORTED
    assert process("cuMemAllocFromPoolAsync", MIB, there, stream)[0] == 0
    assert process("cuStreamSynchronize", stream) == [CAPTURE_UNSUPPORTED]
    assert process("cuStreamIsCapturing", stream) == [0, 2]
    assert process("cuStreamEndCapture", stream) == [CAPTURE_INVALIDATED, 0]
    assert process("cuStreamBeginCapture_v2", stream, 1) == SUCCESS
    assert process("cuStreamDestroy_v2", stream) == SUCCESS
    assert process("cuStreamEndCapture", stream)[0] == INVALID_HANDLE


def test_memory_of_graphs_ends_with_the_last_context(process, graph: int) -> None:
    address = allocate(process, graph, 64 * MIB)
    instance = instantiate(process, graph)
    assert process("cuGraphLaunch", instance, 0) == SUCCESS
    assert process("cuDevicePrimaryCtxReset_v2", 0) == SUCCESS
    assert process("nvml", 0)[1] == 0
    process.start()
    assert process("cuMemFree_v2", address) == [INVALID_VALUE]
    assert reserved(process) == 0
    assert process("cuGraphLaunch", instance, 0) == SUCCESS
    assert device_use(process) == 64 * MIB


@pytest.mark.parametrize(
    ("name", "version", "flags", "variant"),
    [
        ("cuGraphInstantiate", 10000, 0, "cuGraphInstantiate"),
        ("cuGraphInstantiate", 11080, 0, "cuGraphInstantiate_v2"),
        ("cuGraphInstantiate", 13000, 0, "cuGraphInstantiate_v2"),
        ("cuGraphAddNode", 12020, 0, "cuGraphAddNode"),
        ("cuGraphAddNode", 12030, 0, "cuGraphAddNode_v2"),
        ("cuGraphLaunch", 12000, 2, "cuGraphLaunch_ptsz"),
        ("cuStreamBeginCapture", 12000, 0, "cuStreamBeginCapture_v2"),
    ],
)
def test_get_proc_address(process, name: str, version: int, flags: int, variant: str) -> None:
    assert process("cuGetProcAddress_v2", name, version, flags) == [0, process("address", variant)[1], 0]
