"""Memory that was exported lives until the last that refers to it goes, and shows one content everywhere.

Seen on an H200 with driver 580.159: all of it is given back when handle, mapping, descriptor and import are gone.
"""

import pytest
from cuda_structures import access, allocation_properties
from gpu_host import CONTEXT, GIB, MIB

SUCCESS = [0]
INVALID_VALUE = 1
GRANULE = 2 * MIB
SIZE = 4 * GIB
READ_WRITE = 3
DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


def create(process, size: int, properties: str) -> int:
    result, handle = process("cuMemCreate", size, properties, 0)
    assert result == 0
    return handle


def reserve(process, size: int) -> int:
    result, address = process("cuMemAddressReserve", size, 0, 0, 0)
    assert result == 0
    return address


def map_at(process, address: int, size: int, handle: int) -> None:
    assert process("cuMemMap", address, size, 0, handle, 0) == SUCCESS
    assert process("cuMemSetAccess", address, size, access(READ_WRITE), 1) == SUCCESS


@pytest.fixture
def host(make_host):
    return make_host(SIZE, SIZE)


@pytest.fixture
def shared(host, tmp_path):
    """Two processes, a handle that the first exported, and the descriptor of it in each."""
    owner, guest = host.process(), host.process()
    owner.start()
    guest.start()
    handle = create(owner, GIB, allocation_properties(handle=DESCRIPTOR))
    result, exported = owner("cuMemExportToShareableHandle", handle, DESCRIPTOR, 0)
    assert result == 0
    owner.ask("give", str(tmp_path / "socket"), exported)
    result, received = guest("take", str(tmp_path / "socket"))
    assert [owner.answer(), result] == [SUCCESS, 0]
    return owner, guest, handle, exported, received


def test_imported_memory_is_counted_once_at_its_owner(shared) -> None:
    owner, guest, handle, exported, received = shared
    result, imported = guest("cuMemImportFromShareableHandle", received, DESCRIPTOR)
    address = reserve(guest, GIB)
    assert result == 0
    assert guest("cuMemMap", address, GIB, 0, imported, 0) == SUCCESS
    counts = {str(owner.popen.pid): GIB + CONTEXT, str(guest.popen.pid): CONTEXT}
    assert guest("nvml", 0)[1:] == [GIB + 2 * CONTEXT, counts]
    assert guest("cuMemRelease", imported) == SUCCESS
    assert guest("cuMemUnmap", address, GIB) == SUCCESS
    assert guest("nvml", 0)[1] == GIB + 2 * CONTEXT
    assert owner("cuMemRelease", handle) == SUCCESS
    assert [owner("close", exported), guest("close", received)] == [SUCCESS, SUCCESS]
    assert guest("nvml", 0)[1] == 2 * CONTEXT


def test_ones_own_export_is_the_same_memory_by_another_handle(shared) -> None:
    """As on an H200."""
    owner, guest, handle, exported, received = shared
    result, alias = owner("cuMemImportFromShareableHandle", exported, DESCRIPTOR)
    assert (result, alias != handle) == (0, True)
    assert owner("cuMemRelease", handle) == SUCCESS
    assert owner("cuMemRelease", handle) == [INVALID_VALUE]
    assert owner("nvml", 0)[1] == GIB + 2 * CONTEXT
    assert owner("cuMemRelease", alias) == SUCCESS
    assert [owner("close", exported), guest("close", received)] == [SUCCESS, SUCCESS]
    assert owner("nvml", 0)[1] == 2 * CONTEXT


def import_and_map(guest, received: int) -> tuple[int, int]:
    """Import; return the handle and the address where it is mapped."""
    result, imported = guest("cuMemImportFromShareableHandle", received, DESCRIPTOR)
    assert result == 0
    address = reserve(guest, GIB)
    map_at(guest, address, GIB, imported)
    return imported, address


def test_both_processes_see_one_content(shared) -> None:
    owner, guest, handle, _, received = shared
    _, there = import_and_map(guest, received)
    here = reserve(owner, GIB)
    map_at(owner, here, GIB, handle)
    assert owner("write", here + 5, "0102030405") == SUCCESS
    assert guest("read", there + 4, 7) == [0, "00010203040500"]
    assert guest("write", there + GIB - 1, "ff") == SUCCESS
    assert owner("read", here + GIB - 1, 1) == [0, "ff"]


def test_an_import_keeps_what_its_owner_released(shared) -> None:
    owner, guest, handle, exported, received = shared
    imported, there = import_and_map(guest, received)
    here = reserve(owner, GIB)
    map_at(owner, here, GIB, handle)
    assert owner("write", here, "abcd") == SUCCESS
    for call in (("cuMemUnmap", here, GIB), ("cuMemRelease", handle), ("close", exported)):
        assert owner(*call) == SUCCESS
    assert guest("close", received) == SUCCESS
    counts = {str(owner.popen.pid): CONTEXT, str(guest.popen.pid): CONTEXT}
    assert owner("nvml", 0)[1:] == [GIB + 2 * CONTEXT, counts]
    assert guest("read", there, 2) == [0, "abcd"]
    assert guest("cuMemRelease", imported) == SUCCESS
    assert owner("nvml", 0)[1] == GIB + 2 * CONTEXT
    assert guest("cuMemUnmap", there, GIB) == SUCCESS
    assert owner("nvml", 0)[1] == 2 * CONTEXT


def test_an_open_descriptor_keeps_what_everybody_released(shared) -> None:
    owner, guest, handle, exported, received = shared
    assert owner("cuMemRelease", handle) == SUCCESS
    assert owner.free_memory() == SIZE - GIB - 2 * CONTEXT
    assert guest("close", received) == SUCCESS
    assert owner.free_memory() == SIZE - GIB - 2 * CONTEXT
    assert owner("close", exported) == SUCCESS
    assert owner.free_memory() == SIZE - 2 * CONTEXT


def test_an_import_outlives_the_process_that_made_the_memory(shared) -> None:
    owner, guest, handle, _, received = shared
    here = reserve(owner, GIB)
    map_at(owner, here, GIB, handle)
    assert owner("write", here, "abcd") == SUCCESS
    imported, there = import_and_map(guest, received)
    owner.kill()
    assert guest("close", received) == SUCCESS
    assert guest.free_memory() == SIZE - GIB - CONTEXT
    assert guest("read", there, 2) == [0, "abcd"]
    assert guest("cuMemUnmap", there, GIB) == SUCCESS
    assert guest("cuMemRelease", imported) == SUCCESS
    assert guest.free_memory() == SIZE - CONTEXT


def test_a_dead_importer_keeps_nothing(shared) -> None:
    owner, guest, handle, exported, received = shared
    import_and_map(guest, received)
    guest.kill()
    assert owner("close", exported) == SUCCESS
    assert owner("cuMemRelease", handle) == SUCCESS
    assert owner.free_memory() == SIZE - CONTEXT


def test_what_is_mapped_again_shows_its_contents(host) -> None:
    process = host.process()
    process.start()
    address, handle = reserve(process, 4 * GRANULE), create(process, GRANULE, allocation_properties())
    map_at(process, address, GRANULE, handle)
    assert process("write", address + 7, "c0ffee") == SUCCESS
    assert process("cuMemUnmap", address, GRANULE) == SUCCESS
    assert process("read", address + 7, 3)[0] == INVALID_VALUE
    assert process("write", address + 7, "00") == [INVALID_VALUE]
    map_at(process, address + 2 * GRANULE, GRANULE, handle)
    assert process("read", address + 2 * GRANULE + 7, 3) == [0, "c0ffee"]
    other = create(process, GRANULE, allocation_properties())
    map_at(process, address + 3 * GRANULE, GRANULE, other)
    edge = address + 3 * GRANULE - 2
    assert process("write", edge, "01020304") == SUCCESS  # over the border of two pieces
    assert process("read", edge, 4) == [0, "01020304"]


def test_mapped_memory_without_access_is_not_there(host) -> None:
    process = host.process()
    process.start()
    address, handle = reserve(process, GRANULE), create(process, GRANULE, allocation_properties())
    assert process("cuMemMap", address, GRANULE, 0, handle, 0) == SUCCESS
    assert process("write", address, "00") == [INVALID_VALUE]


def test_memory_of_cumemalloc_keeps_what_was_written(host) -> None:
    process = host.process()
    process.start()
    first, second = process.allocate(1), process.allocate(3 * GRANULE)
    assert process("write", first, "aa") == SUCCESS
    assert process("write", second + GRANULE, "bb" * 16) == SUCCESS
    assert process("cuMemsetD8_v2", second + GRANULE + 1, 0xCC, 2) == SUCCESS
    assert process("read", first, 1) == [0, "aa"]
    assert process("read", second + GRANULE, 4) == [0, "bbccccbb"]
