"""The driver's checkpoint: calls of the process wait, its memory goes and comes back, its addresses stay."""

import struct

import pytest
from cuda_structures import allocation_properties
from gpu_host import CONTEXT, GIB, MIB

SUCCESS = [0]
INVALID_VALUE, OUT_OF_MEMORY, ILLEGAL_STATE, NOT_READY, NOT_SUPPORTED = 1, 2, 401, 600, 801
RUNNING, LOCKED, CHECKPOINTED = 0, 1, 2
SIZE = 4 * GIB
NO_ARGUMENTS = ""


@pytest.fixture
def host(make_host):
    return make_host(SIZE)


@pytest.fixture
def porter(host):
    """A process that only looks at others: it has no context."""
    porter = host.process()
    porter("cuInit", 0)
    return porter


def lock(porter, process, milliseconds: int = 0) -> list:
    return porter("cuCheckpointProcessLock", process.popen.pid, struct.pack("I60x", milliseconds).hex())


def test_memory_leaves_and_comes_back_while_calls_wait(process, porter) -> None:
    pid, address = process.popen.pid, process.allocate(GIB)
    assert process("write", address, "abcd") == SUCCESS
    assert porter("cuCheckpointProcessGetState", pid) == [0, RUNNING]
    assert lock(porter, process) == SUCCESS
    assert porter("cuCheckpointProcessGetState", pid) == [0, LOCKED]
    assert porter("cuCheckpointProcessCheckpoint", pid, 0) == SUCCESS
    assert porter("cuCheckpointProcessGetState", pid) == [0, CHECKPOINTED]
    assert porter("nvml", 0)[1:] == [0, {}]
    process.ask("read", address, 2)
    assert porter("cuCheckpointProcessUnlock", pid, 0) == [ILLEGAL_STATE]
    assert porter("cuCheckpointProcessRestore", pid, 0) == SUCCESS
    assert porter("nvml", 0)[1] == CONTEXT + GIB
    assert porter("cuCheckpointProcessUnlock", pid, 0) == SUCCESS
    assert process.answer() == [0, "abcd"]


def test_a_restore_waits_for_room(host, process, porter) -> None:
    process.allocate(2 * GIB)
    pid = process.popen.pid
    assert lock(porter, process) == SUCCESS
    assert porter("cuCheckpointProcessCheckpoint", pid, 0) == SUCCESS
    other = host.process()
    other.start()
    taken = other.allocate(3 * GIB)
    assert porter("cuCheckpointProcessRestore", pid, 0) == [OUT_OF_MEMORY]
    assert porter("cuCheckpointProcessGetState", pid) == [0, CHECKPOINTED]
    assert other("cuMemFree_v2", taken) == SUCCESS
    assert porter("cuCheckpointProcessRestore", pid, 0) == SUCCESS
    assert other.free_memory() == SIZE - 2 * GIB - 2 * CONTEXT


def test_a_lock_waits_for_the_work_or_gives_up(process, porter) -> None:
    module = process("cuModuleLoadData", "variables=0 code=0")[1]
    flag = process("cuMemHostAlloc", 4096, 0)[1]
    forever = process("cuModuleGetFunction", module, "until")[1]
    assert process("launch", forever, 0, flag, 1) == SUCCESS
    assert lock(porter, process, 30) == [NOT_READY]
    assert porter("cuCheckpointProcessGetState", process.popen.pid) == [0, RUNNING]
    process("poke", flag, 1)
    assert process("cuCtxSynchronize") == SUCCESS
    assert lock(porter, process, 30) == SUCCESS


def test_what_cannot_be_asked_for(process, porter) -> None:
    pid = process.popen.pid
    assert porter("cuCheckpointProcessGetState", 1)[0] == INVALID_VALUE
    assert porter("cuCheckpointProcessLock", 1, NO_ARGUMENTS) == [INVALID_VALUE]
    assert porter("cuCheckpointProcessCheckpoint", pid, 0) == [ILLEGAL_STATE]
    assert porter("cuCheckpointProcessRestore", pid, 0) == [ILLEGAL_STATE]
    handle = process("cuMemCreate", 2 * MIB, allocation_properties(handle=1), 0)[1]
    assert process("cuMemExportToShareableHandle", handle, 1, 0)[0] == 0
    assert lock(porter, process) == SUCCESS
    assert porter("cuCheckpointProcessCheckpoint", pid, 0) == [NOT_SUPPORTED]
    assert porter("cuCheckpointProcessUnlock", pid, 0) == SUCCESS


def test_a_process_that_dies_while_it_is_out_holds_nothing(process, porter) -> None:
    process.allocate(GIB)
    assert lock(porter, process) == SUCCESS
    assert porter("cuCheckpointProcessCheckpoint", process.popen.pid, 0) == SUCCESS
    process.kill()
    assert porter("cuCheckpointProcessGetState", process.popen.pid)[0] == INVALID_VALUE
    assert porter("nvml", 0)[1:] == [0, {}]
