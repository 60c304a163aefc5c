"""Memory of cuMemCreate is charged until it is both unmapped and released."""

from collections.abc import Callable

import pytest
from daemon import Daemon
from hooked_program import INVALID_DEVICE, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, Program, Result
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, Session, call, charged, open_session

from convgpu.protocol.messages import Accepted, Allocate, Rejected
from convgpu.protocol.wire import Reason

Start = Callable[..., Program]
Join = Callable[..., Program]
UNTOUCHED = "0x5a5a"
DEVICE, HOST, HOST_NUMA = 1, 2, 3
SIZE = 64 * MIB


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler) -> Session:
    """A program without a context and with 4 GiB of headroom."""
    return open_session(start(), scheduler, headroom=4 * GIB, context=False)


def create(session: Session, size: int = SIZE, location: int = DEVICE) -> int:
    return call(session, f"create {size} {location} 0").number


def test_memory_that_was_never_mapped(session: Session) -> None:
    handle = create(session)
    assert charged(session) == SIZE
    call(session, f"releasehandle {handle}")
    assert charged(session) == 0
    assert session.program.call(f"releasehandle {handle}").code == INVALID_VALUE
    assert charged(session) == 0
    assert session.peer.silent()


@pytest.mark.parametrize("released_first", [True, False])
def test_both_released_and_unmapped(session: Session, released_first: bool) -> None:
    handle = create(session)
    address = call(session, f"reserve {SIZE}").number
    call(session, f"map {address} {SIZE} 0 {handle}")
    endings = [f"releasehandle {handle}", f"unmap {address} {SIZE}"]
    for ending in endings if released_first else reversed(endings):
        assert charged(session) == SIZE
        call(session, ending)
    assert charged(session) == 0


def test_a_handle_of_a_mapping_holds_it_once_more(session: Session) -> None:
    handle = create(session)
    address = call(session, f"reserve {SIZE}").number
    call(session, f"map {address} {SIZE} 0 {handle}")
    call(session, f"releasehandle {handle}")
    assert call(session, f"retainhandle {address}").number == handle
    call(session, f"unmap {address} {SIZE}")
    assert charged(session) == SIZE
    call(session, f"releasehandle {handle}")
    assert charged(session) == 0


def test_mapped_twice(session: Session) -> None:
    handle = create(session)
    addresses = [call(session, f"reserve {SIZE}").number for _range in range(2)]
    for address in addresses:
        call(session, f"map {address} {SIZE} 0 {handle}")
    call(session, f"releasehandle {handle}")
    call(session, f"unmap {addresses[0]} {SIZE}")
    assert charged(session) == SIZE
    call(session, f"unmap {addresses[1]} {SIZE}")
    assert charged(session) == 0


def test_segments_that_grow_and_shrink(session: Session) -> None:
    """What PyTorch's expandable segments do: release after mapping, unmap from anywhere."""
    piece = 20 * MIB
    address = call(session, f"reserve {8 * piece}").number
    for index in range(8):
        handle = create(session, piece)
        call(session, f"map {address + index * piece} {piece} 0 {handle}")
        call(session, f"releasehandle {handle}")
    assert charged(session) == 8 * piece
    for index, left in ((3, 7), (0, 6), (7, 5)):
        call(session, f"unmap {address + index * piece} {piece}")
        assert charged(session) == left * piece
    handle = create(session, piece)
    call(session, f"map {address + 3 * piece} {piece} 0 {handle}")
    call(session, f"releasehandle {handle}")
    assert charged(session) == 6 * piece
    assert session.peer.silent()


def test_a_range_is_unmapped_whole_with_its_holes(session: Session) -> None:
    """The driver ends every mapping that lies in it; what lies behind it stays."""
    address = call(session, f"reserve {8 * SIZE}").number
    for place, location in ((1, DEVICE), (3, HOST), (4, DEVICE), (6, DEVICE), (7, DEVICE)):
        handle = create(session, location=location)
        call(session, f"map {address + place * SIZE} {SIZE} 0 {handle}")
        call(session, f"releasehandle {handle}")
    assert charged(session) == 4 * SIZE
    call(session, f"unmap {address} {SIZE}")  # nothing but a hole
    assert charged(session) == 4 * SIZE
    call(session, f"unmap {address} {7 * SIZE}")
    assert charged(session) == SIZE
    call(session, f"unmap {address} {8 * SIZE}")
    assert charged(session) == 0


def test_a_map_that_fails_holds_nothing(session: Session) -> None:
    handle = create(session)
    assert session.program.call(f"map 4096 {SIZE} 0 {handle}").code == INVALID_VALUE
    assert session.program.call(f"unmap 4096 {SIZE}").code == INVALID_VALUE
    call(session, f"releasehandle {handle}")
    assert charged(session) == 0


def test_imported_memory_is_charged_once_at_its_owner(session: Session) -> None:
    handle = create(session)
    shareable = call(session, f"export {handle}").number
    imported = call(session, f"import {shareable}").number
    assert charged(session) == SIZE
    call(session, f"releasehandle {imported}")
    call(session, f"closefd {shareable}")
    assert charged(session) == SIZE
    call(session, f"releasehandle {handle}")
    assert charged(session) == 0


def test_memory_that_a_process_imports_of_its_own_stays_within_the_limit(join: Join, daemon: Daemon) -> None:
    """The driver gives another handle for it, which keeps the memory when the first is gone."""
    program = join(daemon.container("a", memory="2g"))
    handles, descriptors = list[int](), list[int]()
    for _turn in range(16):
        created = program.call(f"create {256 * MIB} {DEVICE} 0")
        if created.code != SUCCESS:
            break
        descriptors.append(program.call(f"export {created.number}").number)
        handles.append(program.call(f"import {descriptors[-1]}").number)
        assert program.call(f"releasehandle {created.number}").code == SUCCESS
    assert created == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    assert len(handles) == (2 * GIB - 526 * MIB) // (256 * MIB)
    for descriptor, handle in zip(descriptors, handles, strict=True):
        assert program.call(f"closefd {descriptor}").code == SUCCESS
        assert program.call(f"releasehandle {handle}").code == SUCCESS
    assert program.call(f"create {GIB} {DEVICE} 0").code == SUCCESS


@pytest.mark.parametrize("location", [HOST, HOST_NUMA])
def test_memory_of_the_host_is_not_charged(session: Session, location: int) -> None:
    handle = create(session, location=location)
    address = call(session, f"reserve {SIZE}").number
    call(session, f"map {address} {SIZE} 0 {handle}")
    call(session, f"unmap {address} {SIZE}")
    call(session, f"releasehandle {handle}")
    assert charged(session) == 0


def test_a_rejection_is_cudas_out_of_memory(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, context=False)
    session.program.begin(f"create {SIZE} {DEVICE} 0")
    request, message = session.peer.receive()
    assert message == Allocate(0, SIZE, "cuMemCreate")
    session.peer.send(Rejected(Reason.LIMIT, GIB, GIB), request)
    assert session.program.result() == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    session.program.begin(f"create {SIZE} {DEVICE} 0")
    request, _message = session.peer.receive()
    session.peer.send(Accepted(SIZE, 0), request)
    created = session.program.result()
    assert created.code == SUCCESS
    call(session, f"releasehandle {created.number}")
    assert session.page.read(0) == SIZE


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("create 4096 1 0", INVALID_VALUE),
        ("create 0 1 0", INVALID_VALUE),
        (f"create {SIZE} 1 7", INVALID_DEVICE),
        ("releasehandle 4660", INVALID_VALUE),
        ("retainhandle 4660", INVALID_VALUE),
        ("unmap 4660 4096", INVALID_VALUE),
    ],
)
def test_the_drivers_own_answers_pass_unchanged(session: Session, start: Start, command: str, code: int) -> None:
    alone = start(LD_PRELOAD="")
    assert alone.call("init 0").code == SUCCESS
    hooked = session.program.call(command)
    assert hooked == alone.call(command)
    assert hooked.code == code
    assert charged(session) == 0
    assert session.peer.silent()


def test_a_device_without_a_limit_has_no_memory(session: Session) -> None:
    assert session.program.call(f"create {SIZE} {DEVICE} 1") == Result(OUT_OF_MEMORY, (UNTOUCHED,))
    assert charged(session) == 0
