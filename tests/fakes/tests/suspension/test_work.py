"""Work takes time, keeps the order of its streams, and ends its context when it meets memory that is not mapped.

What a card (H200, driver 580.159) showed is said at each test; times are asked for by queries, not measured.
"""

import struct
import time

import pytest
from cuda_structures import access, allocation_properties
from gpu_host import GIB, MIB, until

SUCCESS = [0]
INVALID_VALUE, NOT_READY, ILLEGAL_ADDRESS, ALREADY_REGISTERED, NOT_REGISTERED = 1, 600, 700, 712, 713
GRANULE = 2 * MIB
READ_WRITE = 3
NON_BLOCKING = 1
GOLDEN = 0x9E3779B97F4A7C15


def word(seed: int, index: int) -> int:
    """Return what the kernel `fill` writes there."""
    return (seed + index) * GOLDEN % 2**64


@pytest.fixture
def host(make_host):
    return make_host(4 * GIB)


def kernel(process, name: str, image: str = "variables=0 code=0") -> int:
    result, module = process("cuModuleLoadData", image)
    assert result == 0
    result, function = process("cuModuleGetFunction", module, name)
    assert result == 0
    return function


def stream(process, flags: int = 0) -> int:
    result, made = process("cuStreamCreate", flags)
    assert result == 0
    return made


def mapped(process, pieces: int) -> int:
    """Return an address where so many pieces are mapped, one after the other."""
    result, address = process("cuMemAddressReserve", pieces * GRANULE, 0, 0, 0)
    assert result == 0
    for piece in range(pieces):
        result, handle = process("cuMemCreate", GRANULE, allocation_properties(), 0)
        assert result == 0
        assert process("cuMemMap", address + piece * GRANULE, GRANULE, 0, handle, 0) == SUCCESS
        assert process("cuMemRelease", handle) == SUCCESS
    assert process("cuMemSetAccess", address, pieces * GRANULE, access(READ_WRITE), 1) == SUCCESS
    return address


def host_word(process) -> int:
    result, address = process("cuMemHostAlloc", 4096, 0)
    assert result == 0
    return address


def test_kernels_fill_add_and_check(process) -> None:
    address, wrong, words = mapped(process, 2), process.allocate(8), 2 * GRANULE // 8
    assert process("launch", kernel(process, "fill"), 0, address, words, 7) == SUCCESS
    expected = struct.pack("2Q", word(7, words // 2 - 1), word(7, words // 2))
    assert process("read", address + GRANULE - 8, 16) == [0, expected.hex()]  # over the border of two pieces
    check = kernel(process, "check")
    assert process("launch", check, 0, address, words, 7, wrong) == SUCCESS
    assert process("read", wrong, 8) == [0, struct.pack("Q", 0).hex()]
    assert process("launch", kernel(process, "add"), 0, address, 10, 1) == SUCCESS
    assert process("launch", check, 0, address, words, 7, wrong) == SUCCESS
    assert process("read", wrong, 8) == [0, struct.pack("Q", 10).hex()]


def test_a_kernel_lasts_until_its_word_is_set(process) -> None:
    flag, made = host_word(process), stream(process)
    address = mapped(process, 1)
    assert process("launch", kernel(process, "until"), made, flag, 1) == SUCCESS
    assert process("cuMemsetD8Async", address, 5, 1, made) == SUCCESS
    assert process("cuStreamQuery", made) == [NOT_READY]
    process("poke", flag, 1)
    assert process("cuStreamSynchronize", made) == SUCCESS
    assert process("cuStreamQuery", made) == SUCCESS
    assert process("read", address, 1) == [0, "05"]


def test_the_legacy_stream_waits_for_others_unless_they_do_not_block(process) -> None:
    flag = host_word(process)
    blocking, free = stream(process), stream(process, NON_BLOCKING)
    assert process("launch", kernel(process, "until"), blocking, flag, 1) == SUCCESS
    assert process("cuStreamQuery", 0) == [NOT_READY]
    assert process("cuStreamQuery", free) == SUCCESS
    process("poke", flag, 1)
    assert process("cuCtxSynchronize") == SUCCESS
    assert process("cuStreamQuery", 0) == SUCCESS


def test_a_stream_waits_for_an_event_of_another(process) -> None:
    flag, first, second = host_word(process), stream(process), stream(process, NON_BLOCKING)
    event = process("cuEventCreate", 0)[1]
    assert process("cuEventQuery", event) == SUCCESS  # not recorded yet
    assert process("launch", kernel(process, "until"), first, flag, 1) == SUCCESS
    assert process("cuEventRecord", event, first) == SUCCESS
    assert process("cuStreamWaitEvent", second, event, 0) == SUCCESS
    assert process("cuStreamQuery", second) == [NOT_READY]
    assert process("cuEventQuery", event) == [NOT_READY]
    process("poke", flag, 1)
    assert process("cuEventSynchronize", event) == SUCCESS
    assert process("cuStreamQuery", second) == SUCCESS


def test_kernels_of_two_processes_meet(host) -> None:
    """As NCCL's do: each lasts until the other has begun; the counter is memory that both share."""
    path = host.directory / "counter"
    path.write_bytes(bytes(4096))
    processes = [host.process(), host.process()]
    counters = []
    for process in processes:
        process.start()
        counters.append(process("share", str(path))[1])
        if process is processes[0]:
            assert process("launch", kernel(process, "meet"), 0, counters[0], 2) == SUCCESS
            assert process("cuStreamQuery", 0) == [NOT_READY]
    assert processes[1]("launch", kernel(processes[1], "meet"), 0, counters[1], 2) == SUCCESS
    for process in processes:
        assert process("cuCtxSynchronize") == SUCCESS


def test_freeing_waits_for_kernels_and_unmapping_does_not(process) -> None:
    """On a card cuMemFree returned after the kernel of 202 ms, cuMemUnmap at once."""
    memory, address = process.allocate(4 * MIB), mapped(process, 1)
    event, made = process("cuEventCreate", 0)[1], stream(process)
    assert process("launch", kernel(process, "last"), made, 100_000_000) == SUCCESS
    assert process("cuEventRecord", event, made) == SUCCESS
    assert process("cuMemUnmap", address, GRANULE) == SUCCESS
    assert process("cuEventQuery", event) == [NOT_READY]
    assert process("cuMemFree_v2", memory) == SUCCESS
    assert process("cuEventQuery", event) == SUCCESS


def test_work_that_finds_nothing_mapped_ends_its_context(process) -> None:
    """On a card: Xid 31, and every call from then on is CUDA_ERROR_ILLEGAL_ADDRESS."""
    address = mapped(process, 2)
    assert process("cuMemUnmap", address + GRANULE, GRANULE) == SUCCESS
    process("launch", kernel(process, "fill"), 0, address, 2 * GRANULE // 8, 1)
    for call in (("cuCtxSynchronize",), ("cuMemAlloc_v2", 1), ("cuStreamCreate", 0), ("cuMemFree_v2", address)):
        assert process(*call)[0] == ILLEGAL_ADDRESS
    assert process("cuDevicePrimaryCtxReset_v2", 0) == SUCCESS


def test_unmapping_under_a_running_kernel_ends_its_context_and_no_other(host) -> None:
    process, neighbour = host.process(), host.process()
    process.start()
    neighbour.start()
    address = mapped(process, 1)
    fill = kernel(process, "fill", "variables=0 code=0 lasts_us=10000000")
    assert process("launch", fill, 0, address, 8, 1) == SUCCESS
    assert process("cuMemUnmap", address, GRANULE) == SUCCESS
    assert process("cuCtxSynchronize") == [ILLEGAL_ADDRESS]
    assert neighbour("cuCtxSynchronize") == SUCCESS


def test_work_that_waits_finds_what_was_mapped_again(process) -> None:
    """A submission may wait behind an event while its memory is away, as long as it is back when it begins."""
    flag, made, address = host_word(process), stream(process), mapped(process, 1)
    handle = process("cuMemRetainAllocationHandle", address)[1]
    assert process("launch", kernel(process, "until"), made, flag, 1) == SUCCESS
    assert process("launch", kernel(process, "fill"), made, address, 4, 9) == SUCCESS
    assert process("cuMemUnmap", address, GRANULE) == SUCCESS
    assert process("cuMemMap", address, GRANULE, 0, handle, 0) == SUCCESS
    assert process("cuMemSetAccess", address, GRANULE, access(READ_WRITE), 1) == SUCCESS
    process("poke", flag, 1)
    assert process("cuCtxSynchronize") == SUCCESS
    assert process("read", address, 8) == [0, struct.pack("Q", word(9, 0)).hex()]


def copy_there(process, address: int, buffer: int, size: int) -> int:
    """Start a copy out; return an event recorded behind it."""
    event, made = process("cuEventCreate", 0)[1], stream(process, NON_BLOCKING)
    assert process("cuMemcpyDtoHAsync_v2", buffer, address, size, made) == SUCCESS
    assert process("cuEventRecord", event, made) == SUCCESS
    return event


def test_copies_take_as_long_as_the_bus_and_share_it(make_host) -> None:
    """Two copies the same way, of two processes, take twice the time of one; one each way do not."""
    host = make_host(4 * GIB, copy_mib_per_s=100)
    processes = [host.process(), host.process()]
    places = []
    for process in processes:
        process.start()
        places.append((mapped(process, 1), process("cuMemHostAlloc", GRANULE, 0)[1]))
    began = time.monotonic()
    events = [copy_there(process, *place, GRANULE) for process, place in zip(processes, places, strict=True)]
    process, (address, buffer) = processes[0], places[0]
    back, other = process("cuEventCreate", 0)[1], stream(process, NON_BLOCKING)
    assert process("cuMemcpyHtoDAsync_v2", address, buffer, GRANULE, other) == SUCCESS
    assert process("cuEventRecord", back, other) == SUCCESS
    assert processes[1]("cuEventSynchronize", events[1]) == SUCCESS
    assert time.monotonic() - began >= 2 * 2 / 100
    assert processes[0]("cuEventQuery", events[0]) == SUCCESS
    assert processes[0]("cuEventSynchronize", back) == SUCCESS


def test_memory_of_the_host(process) -> None:
    address, buffer = mapped(process, 1), host_word(process)
    process("poke", buffer, 0x04030201)
    assert process("cuMemHostGetDevicePointer_v2", buffer + 8, 0) == [0, buffer + 8]
    assert process("cuMemHostRegister_v2", buffer + 16, 16, 0) == [ALREADY_REGISTERED]
    assert process("cuMemHostUnregister", buffer) == [NOT_REGISTERED]
    assert process("cuMemcpy", address, buffer, 4) == SUCCESS  # which side is the device's is seen by the address
    assert process("cuMemcpyDtoDAsync_v2", address + 4, address, 4, 0) == SUCCESS
    assert process("read", address, 8) == [0, "0102030401020304"]
    assert process("cuMemcpyAsync", buffer, address + 6, 4, 0) == SUCCESS
    assert process("peek", buffer) == [0, 0x0403]
    assert process("cuMemFreeHost", buffer) == SUCCESS
    assert process("cuMemFreeHost", buffer) == [INVALID_VALUE]
    assert process("cuMemHostRegister_v2", 4096, 4096, 0) == SUCCESS
    assert process("cuMemHostUnregister", 4096) == SUCCESS


def test_fills_of_words_and_of_rows(process) -> None:
    address = mapped(process, 1)
    assert process("cuMemsetD32_v2", address, 0x0D0C0B0A, 2) == SUCCESS
    assert process("read", address, 9) == [0, "0a0b0c0d0a0b0c0d00"]
    assert process("cuMemsetD2D16_v2", address, 3, 0x1111, 1, 2) == SUCCESS
    assert process("read", address, 8) == [0, "11110c11110b0c0d"]
    rows = struct.pack("NNi4xPQPN", 0, 0, 2, 0, address, 0, 3) + struct.pack("NNi4xPQPN", 0, 1, 2, 0, address, 0, 64)
    assert process("cuMemcpy2D_v2", (rows + struct.pack("NN", 2, 2)).hex()) == SUCCESS
    assert process("read", address + 64, 2) == [0, "1111"]
    assert process("read", address + 128, 2) == [0, "1111"]


def test_a_call_of_the_host_keeps_its_place(process) -> None:
    result = process("host_function", 0)
    assert until(lambda: process("peek", result[1]), [0, 1].__eq__) == [0, 1]
    assert process("cuCtxSynchronize") == SUCCESS
