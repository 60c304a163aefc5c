"""Green contexts hold their device's primary context; a stream says what it belongs to."""

import pytest
from gpu_host import CONTEXT, GIB, MIB

SUCCESS = [0]
INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE, INVALID_CONTEXT, INVALID_RESOURCE_TYPE = 1, 2, 101, 201, 914
MULTIPROCESSORS = 1
DEFAULT_STREAM = 1
SIZE = 4 * GIB
GREEN = 2 * MIB
"""Bytes that a green context leaves in its primary one."""


@pytest.fixture
def process(make_host):
    process = make_host(SIZE).process()
    process("cuInit", 0)
    return process


@pytest.fixture
def description(process) -> int:
    result, resource = process("cuDeviceGetDevResource", 0, MULTIPROCESSORS)
    assert result == 0
    assert resource.startswith("01000000")
    result, description = process("cuDevResourceGenerateDesc", resource, 1)
    assert result == 0
    return description


def test_a_green_context_retains_the_primary_context(process, description: int) -> None:
    first, second = (process("cuGreenCtxCreate", description, 0, DEFAULT_STREAM)[1] for _ in range(2))
    assert process("nvml", 0)[1] == CONTEXT + 2 * GREEN
    result, context = process("cuCtxFromGreenCtx", first)
    assert result == 0
    assert process("cuCtxSetCurrent", context) == SUCCESS
    process.allocate(MIB)
    assert process("cuGreenCtxDestroy", first) == SUCCESS
    assert process("cuGreenCtxDestroy", first) == [INVALID_CONTEXT]
    assert process("cuCtxFromGreenCtx", first)[0] == INVALID_CONTEXT
    assert process("nvml", 0)[1] == CONTEXT + 2 * GREEN + 2 * MIB
    assert process("cuGreenCtxDestroy", second) == SUCCESS
    assert process("nvml", 0)[1] == 0


def test_refused_green_contexts(process, description: int) -> None:
    assert process("cuGreenCtxCreate", description, 0, 0)[0] == INVALID_VALUE
    assert process("cuGreenCtxCreate", 4096, 0, DEFAULT_STREAM)[0] == INVALID_VALUE
    assert process("cuGreenCtxCreate", description, 1, DEFAULT_STREAM)[0] == INVALID_DEVICE
    assert process("cuDeviceGetDevResource", 0, 2)[0] == INVALID_RESOURCE_TYPE
    assert process("cuDevResourceGenerateDesc", "00" * 144, 1)[0] == INVALID_RESOURCE_TYPE
    assert process("cuDevResourceGenerateDesc", "", 0)[0] == INVALID_VALUE
    assert process("nvml", 0)[1] == 0


@pytest.mark.parametrize("size", [CONTEXT - 1, CONTEXT + GREEN - 1])
def test_a_green_context_that_does_not_fit_is_refused(make_host, size: int) -> None:
    process = make_host(size).process()
    process("cuInit", 0)
    resource = process("cuDeviceGetDevResource", 0, MULTIPROCESSORS)[1]
    description = process("cuDevResourceGenerateDesc", resource, 1)[1]
    assert process("cuGreenCtxCreate", description, 0, DEFAULT_STREAM)[0] == OUT_OF_MEMORY
    assert process("nvml", 0)[1] == 0


def test_what_a_stream_belongs_to(process, description: int) -> None:
    primary = process.start()
    green = process("cuGreenCtxCreate", description, 0, DEFAULT_STREAM)[1]
    plain = process("cuStreamCreate", 0)[1]
    in_green = process("cuGreenCtxStreamCreate", green, 1, 0)[1]
    assert [process("cuStreamGetCtx", stream) for stream in (0, plain, in_green)] == [
        [0, primary],
        [0, primary],
        [0, green],
    ]
    assert [process("cuStreamGetDevice", stream) for stream in (0, plain, in_green)] == [[0, 0]] * 3
    assert process("cuStreamGetCtx_v2", plain) == [0, primary, 0]
    assert process("cuStreamGetCtx_v2", in_green) == [0, primary, green]
    assert process("cuGreenCtxStreamCreate", green, 0, 0)[0] == INVALID_VALUE
