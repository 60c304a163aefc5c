"""Memory whose addresses others get: dma-buf descriptors and multicast objects, and what they hold."""

from cuda_structures import access, allocation_properties, multicast_properties
from gpu_host import CONTEXT, MIB, SIZE

SUCCESS = [0]
INVALID_VALUE, INVALID_DEVICE, NOT_PERMITTED, NOT_SUPPORTED = 1, 101, 800, 801
PIECE = 64 * MIB
READ_WRITE, DMA_BUF, PCIE = 3, 1, 1
DMA_BUF_SUPPORTED, MULTICAST_SUPPORTED = 124, 132
GRANULE = 2 * MIB


def made(process, *call: object) -> int:
    result, handle = process(*call)
    assert result == 0
    return handle


def use(process) -> int:
    return SIZE - CONTEXT - process.free_memory()


def mapped(process, *, handle: int = 0, device: int = 0) -> int:
    """Return where two pieces are mapped, whose handles are released."""
    address = made(process, "cuMemAddressReserve", 2 * PIECE, 0, 0, 0)
    for start in (address, address + PIECE):
        memory = made(process, "cuMemCreate", PIECE, allocation_properties(number=device, handle=handle), 0)
        assert process("cuMemMap", start, PIECE, 0, memory, 0) == SUCCESS
        assert process("cuMemRelease", memory) == SUCCESS
    assert process("cuMemSetAccess", address, 2 * PIECE, access(READ_WRITE), 1) == SUCCESS
    return address


def test_a_device_says_that_it_can(process) -> None:
    assert process("cuDeviceGetAttribute", DMA_BUF_SUPPORTED, 0) == [0, 1]
    assert process("cuDeviceGetAttribute", MULTICAST_SUPPORTED, 0) == [0, 1]


def test_a_dma_buf_holds_pieces_until_it_is_closed(process) -> None:
    address = mapped(process)
    result, descriptor = process("cuMemGetHandleForAddressRange", address + MIB, PIECE, DMA_BUF, 0)
    assert result == 0
    assert process("cuMemUnmap", address, 2 * PIECE) == SUCCESS
    assert use(process) == 2 * PIECE
    assert process("close", descriptor) == SUCCESS
    assert use(process) == 0


def test_a_dma_buf_of_a_plain_allocation_can_be_had(process) -> None:
    address = process.allocate(8 * MIB)
    result, descriptor = process("cuMemGetHandleForAddressRange", address, 8 * MIB, DMA_BUF, 0)
    assert result == 0
    assert process("close", descriptor) == SUCCESS


def test_what_is_no_range_of_pages_has_no_dma_buf(process) -> None:
    address, plain = mapped(process), process.allocate(8 * MIB)
    for start, size, kind in (
        (address + 8, PIECE, DMA_BUF),
        (address, 100, DMA_BUF),
        (address, 0, DMA_BUF),
        (address, PIECE, 0),
        (address + PIECE, 2 * PIECE, DMA_BUF),
        (plain, 16 * MIB, DMA_BUF),
        (0x10000, 4096, DMA_BUF),
    ):
        assert process("cuMemGetHandleForAddressRange", start, size, kind, 0)[0] == INVALID_VALUE
    assert process("cuMemGetHandleForAddressRange", address, PIECE, DMA_BUF, PCIE)[0] == NOT_SUPPORTED


def multicast(process, devices: int = 1, handle: int = 0) -> int:
    made_one = made(process, "cuMulticastCreate", multicast_properties(2 * PIECE, devices, handle=handle))
    for device in range(devices):
        assert process("cuMulticastAddDevice", made_one, device) == SUCCESS
    return made_one


def test_bound_memory_is_held_until_it_is_unbound(process) -> None:
    address, team = mapped(process), multicast(process, 2)
    assert process("cuMulticastBindAddr", team, PIECE, address, PIECE, 0) == SUCCESS
    memory = made(process, "cuMemCreate", PIECE, allocation_properties(number=1), 0)
    assert process("cuMulticastBindMem", team, 0, memory, 0, PIECE, 0) == SUCCESS
    assert process("cuMemUnmap", address, 2 * PIECE) == SUCCESS
    assert use(process) == PIECE
    assert process("cuMulticastUnbind", team, 1, 0, PIECE) == SUCCESS
    assert process("cuMulticastUnbind", team, 1, 0, PIECE) == [INVALID_VALUE]
    assert process("cuMulticastUnbind", team, 0, PIECE, PIECE) == SUCCESS
    assert use(process) == 0
    assert process("cuMulticastBindMem", team, 0, memory, 0, PIECE, 0) == SUCCESS
    assert process("cuMemRelease", team) == SUCCESS
    assert process("cuMemRelease", team) == [INVALID_VALUE]
    assert process("cuMemRelease", memory) == SUCCESS


def test_who_binds_waits_for_all_devices(process) -> None:
    address = mapped(process)
    team = made(process, "cuMulticastCreate", multicast_properties(2 * PIECE, 2))
    assert process("cuMulticastAddDevice", team, 0) == SUCCESS
    process("begin", "cuMulticastBindAddr", team, 0, address, PIECE, 0)
    assert process("pending") == [0, 1]
    assert process("cuMulticastAddDevice", team, 1) == SUCCESS
    assert process("finish") == SUCCESS


def test_what_is_wrong_with_a_multicast_object_is_said(process) -> None:
    for properties, error in (
        (multicast_properties(2 * PIECE, 0), INVALID_VALUE),
        (multicast_properties(2 * PIECE, 3), INVALID_DEVICE),
        (multicast_properties(MIB), INVALID_VALUE),
        (multicast_properties(0), INVALID_VALUE),
        (multicast_properties(2 * PIECE, handle=8), NOT_PERMITTED),
        (multicast_properties(2 * PIECE, handle=2), INVALID_VALUE),
        (multicast_properties(2 * PIECE, flags=1), INVALID_VALUE),
        ("", INVALID_VALUE),
    ):
        assert process("cuMulticastCreate", properties)[0] == error
    good = multicast_properties(2 * PIECE)
    assert [process("cuMulticastGetGranularity", good, option) for option in (0, 1)] == [[0, GRANULE], [0, 512 * MIB]]
    assert process("cuMulticastGetGranularity", good, 2)[0] == INVALID_VALUE
    team = made(process, "cuMulticastCreate", good)
    assert process("cuMulticastAddDevice", team, 2) == [INVALID_DEVICE]
    assert process("cuMulticastAddDevice", team, 0) == SUCCESS
    assert process("cuMulticastAddDevice", team, 0) == [INVALID_VALUE]
    assert process("cuMulticastAddDevice", team, 1) == [INVALID_VALUE]  # there is room for one


def test_what_cannot_be_bound_is_refused(process) -> None:
    address, team, plain = mapped(process), multicast(process), process.allocate(PIECE)
    other = made(process, "cuMemCreate", PIECE, allocation_properties(number=1), 0)
    shareable = multicast(process, handle=1)
    for call, error in (
        (("cuMulticastBindAddr", team, MIB, address, PIECE, 0), INVALID_VALUE),
        (("cuMulticastBindAddr", team, 0, address + MIB, PIECE, 0), INVALID_VALUE),
        (("cuMulticastBindAddr", team, 2 * PIECE, address, PIECE, 0), INVALID_VALUE),
        (("cuMulticastBindAddr", team, 0, address, 2 * PIECE, 0), INVALID_VALUE),
        (("cuMulticastBindAddr", team, 0, plain, PIECE, 0), INVALID_VALUE),
        (("cuMulticastBindAddr", team, 0, address, PIECE, 1), INVALID_VALUE),
        (("cuMulticastBindAddr", other, 0, address, PIECE, 0), INVALID_VALUE),
        (("cuMulticastBindAddr", shareable, 0, address, PIECE, 0), INVALID_VALUE),
        (("cuMulticastBindMem", team, 0, other, 0, PIECE, 0), INVALID_DEVICE),
        (("cuMulticastBindMem", team, 0, team, 0, PIECE, 0), INVALID_VALUE),
    ):
        assert process(*call) == [error]
    assert process("cuMulticastBindAddr", team, 0, address, PIECE, 0) == SUCCESS
    assert process("cuMulticastBindAddr", team, 0, address + PIECE, PIECE, 0) == [INVALID_VALUE]
