"""Arrays and mipmapped arrays take device memory until they are destroyed."""

import struct

import pytest
from cuda_structures import array, array_3d
from gpu_host import CONTEXT, GIB, MIB

SUCCESS = [0]
INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE, INVALID_CONTEXT, INVALID_HANDLE = 1, 2, 101, 201, 400
BYTE, HALF, FLOAT = 0x01, 0x10, 0x20
LAYERED, CUBEMAP, SPARSE, DEFERRED = 0x01, 0x04, 0x40, 0x80
SIZE = 4 * GIB


@pytest.fixture
def process(make_host):
    process = make_host(SIZE).process()
    process.start()
    return process


def device_use(process) -> int:
    return SIZE - CONTEXT - process.free_memory()


@pytest.mark.parametrize(
    ("call", "descriptor", "size"),
    [
        ("cuArrayCreate_v2", array(1024, 1024, FLOAT), 4 * MIB),
        ("cuArrayCreate_v2", array(1024, 1024, FLOAT, 4), 16 * MIB),
        ("cuArrayCreate_v2", array(131072, 0, HALF, 4), 2 * MIB),
        ("cuArrayCreate_v2", array(1000, 1021, FLOAT, 2), 8 * MIB),  # 8,000 bytes by 1,024 rows
        ("cuArrayCreate", struct.pack("IIiI", 1024, 1024, FLOAT, 1).hex(), 4 * MIB),
        ("cuArray3DCreate_v2", array_3d(256, 256, 256, BYTE), 16 * MIB),
        ("cuArray3DCreate_v2", array_3d(512, 512, 12, FLOAT, 1, LAYERED), 12 * MIB),
        ("cuArray3DCreate_v2", array_3d(512, 512, 6, FLOAT, 1, CUBEMAP), 6 * MIB),
        ("cuArray3DCreate_v2", array_3d(1024, 0, 1024, FLOAT, 1, LAYERED), 4 * MIB),
        ("cuArray3DCreate", struct.pack("IIIiII", 256, 256, 256, BYTE, 1, 0).hex(), 16 * MIB),
        ("cuArray3DCreate_v2", array_3d(1024, 1024, 0, FLOAT, 1, SPARSE), 0),
        ("cuArray3DCreate_v2", array_3d(1024, 1024, 0, FLOAT, 1, DEFERRED), 0),
    ],
)
def test_an_array_takes_its_size_until_it_is_destroyed(process, call: str, descriptor: str, size: int) -> None:
    result, handle = process(call, descriptor)
    assert result == 0
    assert device_use(process) == size
    assert process("cuArrayDestroy", handle) == SUCCESS
    assert device_use(process) == 0
    assert process("cuArrayDestroy", handle) == [INVALID_HANDLE]


@pytest.mark.parametrize(
    ("levels", "kept", "size"),
    [(0, 1, 64 * MIB), (1, 1, 64 * MIB), (2, 2, 80 * MIB), (3, 3, 84 * MIB), (99, 13, 86 * MIB)],
)
def test_a_mipmapped_array_takes_the_sum_of_its_levels(process, levels: int, kept: int, size: int) -> None:
    result, handle = process("cuMipmappedArrayCreate", array_3d(4096, 4096, 0, FLOAT), levels)
    assert result == 0
    assert device_use(process) == size
    assert process("cuMipmappedArrayGetLevel", handle, kept)[0] == INVALID_VALUE
    result, level = process("cuMipmappedArrayGetLevel", handle, kept - 1)
    assert result == 0
    side = 4096 >> (kept - 1)
    assert process("cuArray3DGetDescriptor_v2", level)[1].startswith(array_3d(side, side, 0, FLOAT))
    assert process("cuArrayDestroy", level) == [INVALID_HANDLE]
    assert process("cuMipmappedArrayDestroy", handle) == SUCCESS
    assert device_use(process) == 0
    assert process("cuArray3DGetDescriptor_v2", level)[0] == INVALID_HANDLE
    assert process("cuMipmappedArrayDestroy", handle) == [INVALID_HANDLE]


@pytest.mark.parametrize(
    "descriptor",
    [
        "",
        array_3d(0, 1, 0, FLOAT),
        array_3d(1, 1, 0, FLOAT, 3),
        array_3d(1, 1, 0, 0x7F),
        array_3d(131073, 1, 0, FLOAT),
        array_3d(1, 0, 1, FLOAT),
        array_3d(16385, 1, 1, FLOAT),
        array_3d(4, 5, 6, FLOAT, 1, CUBEMAP),
        array_3d(4, 4, 7, FLOAT, 1, CUBEMAP),
        array_3d(4, 4, 0, FLOAT, 1, LAYERED),
        array_3d(4, 4, 4, FLOAT, 1, 0x100),
        array_3d(2**63, 2**63, 2**63, FLOAT),
    ],
)
def test_refused_descriptors(process, descriptor: str) -> None:
    assert process("cuArray3DCreate_v2", descriptor)[0] == INVALID_VALUE
    assert process("cuMipmappedArrayCreate", descriptor, 1)[0] == INVALID_VALUE


def test_an_array_that_does_not_fit_is_refused(process) -> None:
    huge = array_3d(65536, 32768, 0, FLOAT)
    assert process("cuArray3DCreate_v2", huge)[0] == OUT_OF_MEMORY
    assert process("cuMipmappedArrayCreate", huge, 4)[0] == OUT_OF_MEMORY
    assert device_use(process) == 0
    assert process("cuArrayCreate_v2", "")[0] == INVALID_VALUE


def test_only_arrays_that_are_mapped_later_have_requirements(process) -> None:
    later = process("cuArray3DCreate_v2", array_3d(1024, 1024, 0, FLOAT, 1, DEFERRED))[1]
    now = process("cuArray3DCreate_v2", array_3d(1024, 1024, 0, FLOAT))[1]
    mipmap = process("cuMipmappedArrayCreate", array_3d(1024, 1024, 0, FLOAT, 1, DEFERRED), 1)[1]
    for result, requirements in (
        process("cuArrayGetMemoryRequirements", later, 0),
        process("cuMipmappedArrayGetMemoryRequirements", mipmap, 0),
    ):
        assert result == 0
        assert struct.unpack_from("NN", bytes.fromhex(requirements)) == (4 * MIB, 65536)
    assert process("cuArrayGetMemoryRequirements", now, 0)[0] == INVALID_VALUE
    assert process("cuArrayGetMemoryRequirements", later, 1)[0] == INVALID_DEVICE
    assert process("cuArrayGetMemoryRequirements", mipmap, 0)[0] == INVALID_HANDLE


def test_arrays_end_with_their_context(process) -> None:
    kept = process("cuArrayCreate_v2", array(1024, 1024, FLOAT))[1]
    second = process("cuCtxCreate_v2", 0, 0)[1]
    lost = process("cuArrayCreate_v2", array(1024, 1024, FLOAT))[1]
    mipmap = process("cuMipmappedArrayCreate", array_3d(1024, 1024, 0, FLOAT), 2)[1]
    level = process("cuMipmappedArrayGetLevel", mipmap, 1)[1]
    assert process("cuCtxDestroy_v2", second) == SUCCESS
    assert [process("cuArray3DGetDescriptor_v2", one)[0] for one in (lost, level)] == [INVALID_HANDLE] * 2
    process.start()
    assert device_use(process) == 4 * MIB
    assert process("cuArrayDestroy", kept) == SUCCESS


def test_an_array_needs_a_context(make_host) -> None:
    process = make_host(GIB).process()
    process("cuInit", 0)
    assert process("cuArrayCreate_v2", array(4, 4, FLOAT))[0] == INVALID_CONTEXT
