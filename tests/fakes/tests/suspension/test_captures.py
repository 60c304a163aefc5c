"""What is captured runs at each launch, and which calls of which threads break a capture.

The table was seen on an H200 with driver 580.159: facts of section M, "during a ... capture, another thread".
"""

import struct

import pytest
from cuda_structures import access, allocation_properties
from gpu_host import GIB, MIB

SUCCESS = [0]
UNSUPPORTED, INVALIDATED, ISOLATION = 900, 901, 905
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
GRANULE = 2 * MIB


@pytest.fixture
def process(make_host):
    process = make_host(4 * GIB).process()
    process.start()
    return process


@pytest.fixture
def capturing(process):
    return process("cuStreamCreate", 1)[1]


def prepare(process) -> dict[str, tuple]:
    """Return the calls of the table, all of them good ones without a capture."""
    other, event = process("cuStreamCreate", 1)[1], process("cuEventCreate", 0)[1]
    memory = process.allocate(4 * MIB)
    address = process("cuMemAddressReserve", 2 * GRANULE, 0, 0, 0)[1]
    handle = process("cuMemCreate", GRANULE, allocation_properties(), 0)[1]
    assert process("cuMemMap", address, GRANULE, 0, handle, 0) == SUCCESS
    return {
        "stream-sync": ("cuStreamSynchronize", other),
        "query-legacy": ("cuStreamQuery", 0),
        "event-query": ("cuEventQuery", event),
        "event-sync": ("cuEventSynchronize", event),
        "alloc": ("cuMemAlloc_v2", 1),
        "free": ("cuMemFree_v2", memory),
        "host-register": ("cuMemHostRegister_v2", 4096, 4096, 0),
        "map": ("cuMemMap", address + GRANULE, GRANULE, 0, handle, 0),
        "set-access": ("cuMemSetAccess", address, GRANULE, access(3), 1),
        "unmap": ("cuMemUnmap", address, GRANULE),
        "copy-async": ("cuMemcpyDtoDAsync_v2", memory, memory + 64, 64, other),
        "memset-async": ("cuMemsetD8Async", memory, 1, 64, other),
        "stream-create": ("cuStreamCreate", 0),
        "mem-get-info": ("cuMemGetInfo_v2",),
    }


BROKEN_BY_OTHERS = {
    "stream-sync",
    "query-legacy",
    "event-query",
    "event-sync",
    "alloc",
    "free",
    "host-register",
}


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("of_thread", [GLOBAL, RELAXED])
def test_which_calls_of_another_thread_break_a_capture(process, capturing, mode: int, of_thread: int) -> None:
    calls, broken = prepare(process), set()
    for name, call in calls.items():
        assert process("cuStreamBeginCapture_v2", capturing, mode) == SUCCESS
        answer = process("thread", of_thread, *call)[0]
        ended = process("cuStreamEndCapture", capturing)[0]
        assert (answer, ended) in {(0, 0), (UNSUPPORTED, INVALIDATED)}, name
        if ended:
            broken.add(name)
    assert broken == (BROKEN_BY_OTHERS if (mode, of_thread) == (GLOBAL, GLOBAL) else set())


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("of_thread", [GLOBAL, RELAXED])
def test_a_synchronisation_with_the_context_breaks_every_capture(process, capturing, mode, of_thread) -> None:
    assert process("cuStreamBeginCapture_v2", capturing, mode) == SUCCESS
    assert process("thread", of_thread, "cuCtxSynchronize") == [UNSUPPORTED]
    assert process("cuStreamIsCapturing", capturing) == [0, 2]
    assert process("cuStreamEndCapture", capturing)[0] == INVALIDATED
    assert process("cuCtxSynchronize") == SUCCESS


def test_captured_work_runs_at_each_launch_and_sees_what_is_mapped_then(process, capturing) -> None:
    """As the card's graph after its memory was remapped at the same addresses."""
    address = process("cuMemAddressReserve", GRANULE, 0, 0, 0)[1]
    handle = process("cuMemCreate", GRANULE, allocation_properties(), 0)[1]
    module = process("cuModuleLoadData", "variables=0 code=0")[1]
    add = process("cuModuleGetFunction", module, "add")[1]

    def attach() -> None:
        assert process("cuMemMap", address, GRANULE, 0, handle, 0) == SUCCESS
        assert process("cuMemSetAccess", address, GRANULE, access(3), 1) == SUCCESS

    attach()
    assert process("cuStreamBeginCapture_v2", capturing, THREAD_LOCAL) == SUCCESS
    assert process("launch", add, capturing, address, 1, 5) == SUCCESS
    assert process("cuMemcpyDtoDAsync_v2", address + 8, address, 8, capturing) == SUCCESS
    result, graph = process("cuStreamEndCapture", capturing)
    assert (result, process("read", address, 8)) == (0, [0, bytes(8).hex()])  # recorded, not done
    result, instance = process("cuGraphInstantiateWithFlags", graph, 0)
    assert result == 0
    assert process("cuGraphLaunch", instance, capturing) == SUCCESS
    assert process("cuMemUnmap", address, GRANULE) == SUCCESS
    attach()
    assert process("cuGraphLaunch", instance, capturing) == SUCCESS
    assert process("read", address, 16) == [0, struct.pack("2Q", 10, 10).hex()]


def test_a_stream_joins_a_capture_by_an_event(process, capturing) -> None:
    other, event = process("cuStreamCreate", 1)[1], process("cuEventCreate", 0)[1]
    memory = process.allocate(4 * MIB)
    assert process("cuStreamBeginCapture_v2", capturing, GLOBAL) == SUCCESS
    assert process("cuEventRecord", event, capturing) == SUCCESS
    assert process("cuStreamWaitEvent", other, event, 0) == SUCCESS
    assert process("cuStreamIsCapturing", other) == [0, 1]
    assert process("cuMemsetD8Async", memory, 7, 1, other) == SUCCESS
    result, graph = process("cuStreamEndCapture", capturing)
    assert result == 0
    assert process("cuStreamIsCapturing", other) == [0, 0]
    assert process("cuStreamWaitEvent", other, event, 0) == [ISOLATION]
    assert process("read", memory, 1) == [0, "00"]
    instance = process("cuGraphInstantiateWithFlags", graph, 0)[1]
    assert process("cuGraphLaunch", instance, capturing) == SUCCESS
    assert process("cuStreamSynchronize", capturing) == SUCCESS
    assert process("read", memory, 1) == [0, "07"]
