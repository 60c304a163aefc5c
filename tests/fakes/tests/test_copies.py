"""Copies of layers, to and from arrays, and in batches: what arrives, and what is refused with which error.

A batch is refused in a capture, which goes on (rapidsai/rmm, issue 2518), as are copies of nothing (issue 2509).
"""

import pytest
from cuda_structures import (
    ARRAY,
    DEVICE_SIDE,
    HOST_SIDE,
    UNIFIED,
    Side,
    array,
    array_3d,
    array_operand,
    batched_solid,
    copy_attributes,
    numbers,
    pointer_operand,
    solid_copy,
)
from gpu_host import GIB

SUCCESS = [0]
INVALID_VALUE, INVALID_HANDLE, CAPTURE_UNSUPPORTED = 1, 400, 900
FLOAT, DEFERRED = 0x20, 0x80
BYTES = bytes(range(240))
NONE = 2**64 - 1


@pytest.fixture
def process(make_host):
    process = make_host(4 * GIB).process()
    process.start()
    return process


def written(process, content: bytes = BYTES) -> int:
    address = process.allocate(4096)
    assert process("write", address, content.hex()) == SUCCESS
    return address


def content(process, address: int, size: int) -> bytes:
    result, text = process("read", address, size)
    assert result == 0
    return bytes.fromhex(text)


def made(process, *call: object) -> int:
    result, handle = process(*call)
    assert result == 0
    return handle


def box(width: int, height: int, depth: int, pitch: int, layer: int) -> bytes:
    """Return what a box of BYTES holds, without the gaps."""
    starts = (z * layer + y * pitch for z in range(depth) for y in range(height))
    return b"".join(BYTES[start : start + width] for start in starts)


@pytest.mark.parametrize("call", ["cuMemcpy3D_v2", "cuMemcpy3DPeer"])
def test_a_box_is_packed_and_lands_at_its_offset(process, call: str) -> None:
    source, target = written(process), written(process, bytes(240))
    copy = solid_copy(Side(DEVICE_SIDE, target, height=3), Side(DEVICE_SIDE, source, pitch=20, height=4), 12, 3, 2)
    assert process(call, copy) == SUCCESS
    assert content(process, target, 240) == box(12, 3, 2, 20, 80) + bytes(168)
    copy = solid_copy(Side(UNIFIED, target, x=4, y=1, z=1, pitch=20, height=4), Side(DEVICE_SIDE, source), 8, 2, 1)
    assert process(call, copy) == SUCCESS
    assert content(process, target, 240)[104:112] == BYTES[:8]
    assert content(process, target, 240)[124:132] == BYTES[8:16]


@pytest.mark.parametrize("call", ["cuMemcpy3DAsync_v2", "cuMemcpy3DPeerAsync"])
def test_layers_go_to_the_host_and_back_in_order(process, call: str) -> None:
    stream, host = made(process, "cuStreamCreate", 1), made(process, "cuMemHostAlloc", 4096, 0)
    source, target = written(process), written(process, bytes(240))
    sides = Side(HOST_SIDE, host, pitch=16, height=3), Side(DEVICE_SIDE, source, pitch=20, height=4)
    assert process(call, solid_copy(*sides, 12, 3, 2), stream) == SUCCESS
    back = solid_copy(Side(DEVICE_SIDE, target, pitch=12, height=3), sides[0], 12, 3, 2)
    assert process(call, back, stream) == SUCCESS
    assert process("cuStreamSynchronize", stream) == SUCCESS
    assert content(process, target, 72) == box(12, 3, 2, 20, 80)


def test_an_array_keeps_what_was_copied_to_it(process) -> None:
    source, target = written(process), written(process, bytes(240))
    solid = made(process, "cuArray3DCreate_v2", array_3d(5, 4, 3, FLOAT))
    whole = Side(DEVICE_SIDE, source, pitch=20, height=4)
    assert process("cuMemcpy3D_v2", solid_copy(Side(ARRAY, solid), whole, 20, 4, 3)) == SUCCESS
    part = Side(ARRAY, solid, x=4, y=1, z=1)
    assert process("cuMemcpy3D_v2", solid_copy(Side(DEVICE_SIDE, target, height=2), part, 8, 2, 2)) == SUCCESS
    expected = b"".join(BYTES[z * 80 + y * 20 + 4 :][:8] for z in (1, 2) for y in (1, 2))
    assert content(process, target, 32) == expected
    assert process("cuArrayDestroy", solid) == SUCCESS
    fresh = made(process, "cuArray3DCreate_v2", array_3d(5, 4, 3, FLOAT))
    copy = solid_copy(Side(DEVICE_SIDE, target, height=4), Side(ARRAY, fresh), 20, 4, 3)
    assert process("cuMemcpy3D_v2", copy) == SUCCESS
    assert content(process, target, 240) == bytes(240)


def test_levels_of_a_mipmapped_array_are_apart(process) -> None:
    source, target = written(process), written(process, bytes(240))
    mipmap = made(process, "cuMipmappedArrayCreate", array_3d(8, 8, 0, FLOAT), 2)
    for level, size in ((0, 32), (1, 16)):
        handle = made(process, "cuMipmappedArrayGetLevel", mipmap, level)
        copy = solid_copy(Side(ARRAY, handle), Side(DEVICE_SIDE, source + level), size, 2)
        assert process("cuMemcpy3D_v2", copy) == SUCCESS
    for level, size in ((0, 32), (1, 16)):
        handle = made(process, "cuMipmappedArrayGetLevel", mipmap, level)
        assert process("cuMemcpyAtoD_v2", target, handle, 0, size) == SUCCESS
        assert content(process, target, size) == BYTES[level : level + size]


def test_lines_of_arrays_from_everywhere_to_everywhere(process) -> None:
    stream, host = made(process, "cuStreamCreate", 0), made(process, "cuMemHostAlloc", 4096, 0)
    source, target = written(process), written(process, bytes(240))
    first, second = (made(process, "cuArrayCreate_v2", array(32, 0, FLOAT)) for _array in range(2))
    assert process("cuMemcpyDtoA_v2", first, 0, source, 128) == SUCCESS
    assert process("cuMemcpyHtoA_v2", first, 64, b"abcd".hex(), 4) == SUCCESS
    assert process("cuMemcpyAtoA_v2", second, 4, first, 60, 12) == SUCCESS
    assert process("cuMemcpyAtoHAsync_v2", host, second, 4, 12, stream) == SUCCESS
    assert process("cuMemcpyHtoAAsync_v2", second, 16, host, 12, stream) == SUCCESS
    assert process("cuStreamSynchronize", stream) == SUCCESS
    assert process("cuMemcpyAtoD_v2", target, second, 0, 32) == SUCCESS
    line = BYTES[60:64] + b"abcd" + BYTES[68:72]
    assert content(process, target, 32) == bytes(4) + line + line + bytes(4)
    assert process("cuMemcpyAtoH_v2", host, second, 8, 4) == SUCCESS
    assert process("peek", host) == [0, int.from_bytes(b"abcd", "little")]


def test_what_does_not_fit_is_refused(process) -> None:
    source = written(process)
    solid = made(process, "cuArray3DCreate_v2", array_3d(5, 4, 3, FLOAT))
    later = made(process, "cuArray3DCreate_v2", array_3d(5, 4, 3, FLOAT, 1, DEFERRED))
    memory, box_ = Side(DEVICE_SIDE, source, pitch=20, height=4), Side(ARRAY, solid)
    wrong = [
        solid_copy(memory, Side(ARRAY, solid, x=4), 20, 4, 3),
        solid_copy(memory, Side(ARRAY, solid, x=2), 4),
        solid_copy(memory, box_, 6),
        solid_copy(memory, Side(ARRAY, solid, y=1), 20, 4, 3),
        solid_copy(memory, Side(ARRAY, solid, z=1), 20, 4, 3),
        solid_copy(memory, Side(ARRAY, solid, level=1), 20),
        solid_copy(Side(DEVICE_SIDE, source, pitch=12, height=4), box_, 20, 4, 3),
        solid_copy(Side(DEVICE_SIDE, source, pitch=20, height=3), box_, 20, 4, 3),
        solid_copy(Side(DEVICE_SIDE, source, pitch=2**31), box_, 20),
        solid_copy(Side(DEVICE_SIDE, source, context=1), box_, 20),
        solid_copy(Side(DEVICE_SIDE, source), box_, 20, 4, 3),  # more than one layer needs a height
        solid_copy(Side(9, source), box_, 20),
        solid_copy(Side(HOST_SIDE), box_, 20),
        solid_copy(memory, Side(ARRAY, later), 20),
        "",
    ]
    assert [process("cuMemcpy3D_v2", copy) for copy in wrong] == [[INVALID_VALUE]] * len(wrong)
    assert process("cuMemcpy3D_v2", solid_copy(memory, Side(ARRAY, source), 20)) == [INVALID_HANDLE]
    assert process("cuMemcpy3D_v2", solid_copy(memory, box_, 0, 4, 3)) == SUCCESS


def batch(to: list[int], from_: list[int], sizes: list[int], rows: str = copy_attributes(), *first: int) -> list:
    firsts = first or (0,)
    return [numbers(*to), numbers(*from_), numbers(*sizes), len(to), rows, numbers(*firsts), len(firsts)]


def test_a_batch_copies_all_of_it_in_its_stream(process) -> None:
    stream, host = made(process, "cuStreamCreate", 1), made(process, "cuMemHostAlloc", 4096, 0)
    source, target = written(process), written(process, bytes(240))
    rows = copy_attributes(1) + copy_attributes(2, 1)
    copies = batch([target, host, target + 100], [source + 8, source, source + 50], [8, 4, 10], rows, 0, 2)
    assert process("cuMemcpyBatchAsync", *copies, stream) == [0, NONE]
    assert process("cuMemcpyBatchAsync_v2", *batch([target + 200], [host], [4]), stream) == SUCCESS
    assert process("cuStreamSynchronize", stream) == SUCCESS
    found = content(process, target, 240)
    assert (found[:8], found[100:110], found[200:204]) == (BYTES[8:16], BYTES[50:60], BYTES[:4])


def test_a_batch_that_is_wrong_copies_nothing_and_says_where(process) -> None:
    stream = made(process, "cuStreamCreate", 1)
    source, target = written(process), written(process, bytes(240))
    good = [target, target + 8], [source, source + 8], [8, 8]
    assert process("cuMemcpyBatchAsync", *batch([target, 0], *good[1:]), stream) == [INVALID_VALUE, 1]
    assert process("cuMemcpyBatchAsync", *batch(*good[:2], [8, 0]), stream) == [INVALID_VALUE, 1]
    empty_range = made(process, "cuMemAddressReserve", 2 << 20, 0, 0, 0)
    assert process("cuMemcpyBatchAsync", *batch([target, empty_range], *good[1:]), stream) == [INVALID_VALUE, 1]
    for call in (
        batch(*good, copy_attributes(0)),
        batch(*good, copy_attributes(1, 2)),
        batch(*good, copy_attributes() * 2, 0, 0),
        batch(*good, copy_attributes() * 2, 0, 2),
        batch(*good, copy_attributes(), 1),
        batch([], [], []),
    ):
        assert process("cuMemcpyBatchAsync", *call, stream) == [INVALID_VALUE, NONE]
    assert process("cuMemcpyBatchAsync_v2", *batch(*good), 0) == [INVALID_VALUE]  # the legacy stream
    assert content(process, target, 240) == bytes(240)


def test_a_batch_is_not_captured_and_the_capture_goes_on(process) -> None:
    stream = made(process, "cuStreamCreate", 1)
    source, target = written(process), written(process, bytes(240))
    assert process("cuStreamBeginCapture_v2", stream, 2) == SUCCESS
    assert process("cuMemcpyBatchAsync_v2", *batch([target], [source], [8]), stream) == [CAPTURE_UNSUPPORTED]
    assert process("cuStreamEndCapture", stream)[0] == 0


def test_a_batch_of_boxes_counts_in_elements_of_its_arrays(process) -> None:
    stream = made(process, "cuStreamCreate", 1)
    source, target = written(process), written(process, bytes(240))
    solid = made(process, "cuArray3DCreate_v2", array_3d(5, 4, 3, FLOAT))
    copies = batched_solid(array_operand(solid), pointer_operand(source), (5, 4, 3))
    assert process("cuMemcpy3DBatchAsync", 1, copies, 0, stream) == [0, NONE]
    copies = batched_solid(pointer_operand(target, 4, 2), array_operand(solid, 1, 1, 1), (2, 2, 2), 2)
    copies += batched_solid(pointer_operand(target + 100), pointer_operand(source), (10, 1, 1))
    assert process("cuMemcpy3DBatchAsync_v2", 2, copies, 0, stream) == SUCCESS
    assert process("cuStreamSynchronize", stream) == SUCCESS
    found = content(process, target, 240)
    rows = [BYTES[z * 80 + y * 20 + 4 :][:8] for z in (1, 2) for y in (1, 2)]
    assert [found[start : start + 8] for start in (0, 16, 32, 48)] == rows
    assert found[100:110] == BYTES[:10]


def test_a_batch_of_boxes_that_is_wrong_is_refused(process) -> None:
    stream, source = made(process, "cuStreamCreate", 1), written(process)
    solid = made(process, "cuArray3DCreate_v2", array_3d(5, 4, 3, FLOAT))
    halves = made(process, "cuArrayCreate_v2", array(8, 8, 0x10))
    good = batched_solid(array_operand(solid), pointer_operand(source), (5, 4, 3))
    wrong = [
        batched_solid(array_operand(solid), pointer_operand(source), (6, 4, 3)),
        batched_solid(array_operand(solid), pointer_operand(source), (5, 0, 3)),
        batched_solid(array_operand(solid), pointer_operand(0), (5, 4, 3)),
        batched_solid(array_operand(solid), pointer_operand(source, 4), (5, 4, 3)),
        batched_solid(array_operand(solid), array_operand(halves), (2, 2, 1)),
        batched_solid(array_operand(solid), pointer_operand(source), (5, 4, 3), 0),
    ]
    for copies in wrong:
        assert process("cuMemcpy3DBatchAsync", 2, good + copies, 0, stream) == [INVALID_VALUE, 1]
    foreign = batched_solid(array_operand(source), pointer_operand(source), (5, 4, 3))
    assert process("cuMemcpy3DBatchAsync", 1, foreign, 0, stream) == [INVALID_HANDLE, 0]
    assert process("cuMemcpy3DBatchAsync", 1, good, 1, stream) == [INVALID_VALUE, NONE]
