"""Memory stays charged while anybody has a descriptor by which the driver keeps it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from daemon import Daemon, wait_until
from hooked_program import INVALID_VALUE, SUCCESS, Program
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, Session, call, charged, open_session

Start = Callable[..., Program]
Join = Callable[..., Program]
DEVICE = 1
SIZE = 64 * MIB


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler) -> Session:
    """A program with a context and 4 GiB of headroom beside it."""
    return open_session(start(), scheduler, headroom=4 * GIB)


def create(session: Session) -> int:
    return call(session, f"create {SIZE} {DEVICE} 0").number


@pytest.mark.forks
def test_released_memory_stays_charged_while_anybody_has_a_descriptor(session: Session) -> None:
    """Else a program exports, releases and keeps descriptors of as much memory as there is."""
    handle = create(session)
    descriptors = [call(session, f"export {handle}").number for _ in range(2)]
    child = call(session, f"lendfd {descriptors[0]}").number
    call(session, f"releasehandle {handle}")
    assert session.program.call(f"releasehandle {handle}").code == INVALID_VALUE
    for descriptor in descriptors:
        call(session, f"closefd {descriptor}")
    assert charged(session) == SIZE
    os.kill(child, signal.SIGKILL)  # no call of the program's follows
    wait_until(lambda: charged(session) == 0, "it is given back")
    assert session.program.call(f"releasehandle {handle}").code == INVALID_VALUE


def test_exported_memory_that_is_mapped_still(session: Session) -> None:
    handle = create(session)
    address = call(session, f"reserve {SIZE}").number
    call(session, f"map {address} {SIZE} 0 {handle}")
    descriptor = call(session, f"export {handle}").number
    call(session, f"releasehandle {handle}")
    assert call(session, f"retainhandle {address}").number == handle
    call(session, f"unmap {address} {SIZE}")
    call(session, f"releasehandle {handle}")
    assert session.program.call(f"releasehandle {handle}").code == INVALID_VALUE
    assert charged(session) == SIZE
    call(session, f"closefd {descriptor}")
    wait_until(lambda: charged(session) == 0, "it is given back")


def test_what_nobody_has_a_descriptor_of_is_given_back_at_once(session: Session) -> None:
    handle = create(session)
    call(session, f"closefd {call(session, f'export {handle}').number}")
    call(session, f"releasehandle {handle}")
    assert charged(session) == 0


def test_a_program_that_closes_all_descriptors_gives_back_what_it_releases(session: Session) -> None:
    """Also those by which the hook would know that others have some: it cannot tell, and keeps nothing."""
    handle = create(session)
    call(session, f"export {handle}")
    ours = [
        int(link.name)
        for link in Path(f"/proc/{session.program.pid}/fd").iterdir()
        if "eventpoll" in str(link.readlink())
    ]
    for descriptor in ours:
        call(session, f"closefd {descriptor}")
    call(session, f"releasehandle {handle}")
    assert (len(ours), charged(session)) == (2, 0)


def test_memory_behind_descriptors_is_within_the_limit(join: Join, daemon: Daemon) -> None:
    """What is closed just then, is had by the next allocation without a wait."""
    program = join(daemon.container("a", memory="2g"))
    descriptors = []
    while (created := program.call(f"create {256 * MIB} {DEVICE} 0")).code == SUCCESS:
        descriptors.append(program.call(f"export {created.number}").number)
        assert program.call(f"releasehandle {created.number}").code == SUCCESS
    assert len(descriptors) == (2 * GIB - 526 * MIB) // (256 * MIB)
    assert program.call(f"closefd {descriptors[0]}").code == SUCCESS
    assert program.call(f"create {256 * MIB} {DEVICE} 0").code == SUCCESS


def test_freed_memory_stays_charged_while_anybody_has_its_dma_buf(session: Session) -> None:
    """It is held with all of its allocation, by whatever part."""
    address = call(session, f"alloc {SIZE}").number
    descriptors = [call(session, f"givedmabuf {address + at} 4096").number for at in (0, 32 * MIB)]
    call(session, f"free {address}")
    again = call(session, f"alloc {SIZE}").number
    descriptors += [call(session, f"givedmabuf {again} {SIZE}").number]
    call(session, f"free {again}")
    for descriptor in descriptors[:2]:
        assert charged(session) == 2 * SIZE
        call(session, f"closefd {descriptor}")
    call(session, f"closefd {descriptors[2]}")
    wait_until(lambda: charged(session) == 0, "it is given back")


def test_imported_memory_is_charged_while_anybody_has_its_dma_buf(session: Session) -> None:
    """Who made it may end. It counts beside that, with all of its allocation, by whatever part."""
    handle, address = create(session), call(session, f"reserve {SIZE}").number
    exported = call(session, f"export {handle}").number
    imported = call(session, f"import {exported}").number
    call(session, f"map {address} {SIZE} 0 {imported}")
    call(session, f"closefd {exported}")
    call(session, f"releasehandle {handle}")
    assert charged(session) == 0
    descriptor = call(session, f"givedmabuf {address} 4096").number
    kept = charged(session)
    assert SIZE <= kept < SIZE + 64 * MIB  # in pieces of 32 MiB
    call(session, f"unmap {address} {SIZE}")
    call(session, f"releasehandle {imported}")
    assert charged(session) == kept
    call(session, f"closefd {descriptor}")
    wait_until(lambda: charged(session) == 0, "it is given back")


def test_freed_memory_whose_dma_buf_is_closed_is_given_back_at_once(session: Session) -> None:
    address = call(session, f"alloc {SIZE}").number
    call(session, f"closefd {call(session, f'givedmabuf {address} 4096').number}")
    call(session, f"free {address}")
    assert charged(session) == 0


def test_a_dma_buf_survives_the_context_of_its_memory(session: Session) -> None:
    address = call(session, f"alloc {SIZE}").number
    descriptor = call(session, f"givedmabuf {address} 4096").number
    before = charged(session)
    session.program.call("release 0")
    assert charged(session) == before
    call(session, f"closefd {descriptor}")
    wait_until(lambda: charged(session) == 0, "it is given back")


def test_a_dma_buf_of_mapped_pieces_keeps_each(session: Session) -> None:
    """They are released before, so that the mapping alone holds them."""
    address = call(session, f"reserve {8 * SIZE}").number
    for piece in range(8):
        handle = create(session)
        call(session, f"map {address + piece * SIZE} {SIZE} 0 {handle}")
        call(session, f"releasehandle {handle}")
    descriptor = call(session, f"givedmabuf {address + SIZE} {6 * SIZE}").number
    call(session, f"unmap {address} {8 * SIZE}")
    assert charged(session) == 6 * SIZE
    call(session, f"closefd {descriptor}")
    wait_until(lambda: charged(session) == 0, "it is given back")


def shared_pool(session: Session) -> tuple[int, int]:
    pool = call(session, f"newpool {DEVICE} 0 0 1").number
    return pool, call(session, f"exportpool {pool}").number


def fill(session: Session, pool: int, size: int = SIZE) -> None:
    """Allocate, export the pointer, free, and wait for the pool to give back what it can."""
    address = call(session, f"frompool {size} {pool} 0").number
    call(session, f"exportpointer {address}")
    call(session, f"freeasync {address} 0")
    call(session, "sync 0")


def test_what_a_pool_exported_stays_charged_until_it_is_destroyed_and_its_descriptor_closed(session: Session) -> None:
    """It is used again meanwhile, which takes nothing more."""
    pool, descriptor = shared_pool(session)
    for _ in range(3):
        fill(session, pool)
        assert (charged(session), call(session, f"reserved {pool}").number) == (SIZE, 0)
    call(session, f"trim {pool} 0")
    address = call(session, f"frompool {SIZE} {pool} 0").number
    assert charged(session) == SIZE
    call(session, f"free {address}")
    call(session, f"destroypool {pool}")
    assert charged(session) == SIZE
    call(session, f"closefd {descriptor}")
    wait_until(lambda: charged(session) == 0, "it is given back")


def test_a_closed_descriptor_does_not_empty_a_pool(session: Session) -> None:
    pool, descriptor = shared_pool(session)
    fill(session, pool)
    call(session, f"closefd {descriptor}")
    call(session, f"trim {pool} 0")
    assert charged(session) == SIZE
    call(session, f"destroypool {pool}")
    assert charged(session) == 0


def test_what_a_pool_did_not_export_is_given_back(session: Session) -> None:
    """Of an exported pointer, the 32 MiB that it lies in stay."""
    pool, descriptor = shared_pool(session)
    address = call(session, f"frompool {SIZE} {pool} 0").number
    fill(session, pool, MIB)
    call(session, f"free {address}")
    call(session, "sync 0")
    assert charged(session) == 32 * MIB
    call(session, f"destroypool {pool}")
    call(session, f"closefd {descriptor}")
    wait_until(lambda: charged(session) == 0, "it is given back")


def test_memory_behind_pools_is_within_the_limit(join: Join, daemon: Daemon) -> None:
    """Each pool keeps what it exported, and has nothing reserved."""
    program = join(daemon.container("a", memory="2g"))
    count = 0
    while True:
        pool = program.call(f"newpool {DEVICE} 0 0 1").number
        assert program.call(f"exportpool {pool}").code == SUCCESS
        made = program.call(f"frompool {256 * MIB} {pool} 0")
        if made.code != SUCCESS:
            break
        assert program.call(f"exportpointer {made.number}").code == SUCCESS
        assert program.call(f"freeasync {made.number} 0").code == SUCCESS
        assert program.call("sync 0").code == SUCCESS
        count += 1
    assert count == (2 * GIB - 526 * MIB) // (256 * MIB)


def test_memory_of_a_pool_of_which_anybody_has_a_dma_buf_counts_beside_it(session: Session) -> None:
    """Nobody is told when the pool gives it up; the driver keeps whole pieces of 32 MiB."""
    pool = call(session, f"newpool {DEVICE} 0 0 1").number
    address = call(session, f"frompool {SIZE + MIB} {pool} 0").number
    descriptor = call(session, f"givedmabuf {address} 4096").number
    pieces = SIZE + 32 * MIB
    assert charged(session) == SIZE + 2 * MIB + pieces
    call(session, f"freeasync {address} 0")
    call(session, "sync 0")
    call(session, f"destroypool {pool}")
    assert charged(session) == pieces
    call(session, f"closefd {descriptor}")
    wait_until(lambda: charged(session) == 0, "it is given back")


def test_a_pool_that_gives_the_same_addresses_again_may_give_other_memory(session: Session) -> None:
    """So each dma-buf counts by itself: on an H200 a pool had the same address for other memory each time."""
    pool = call(session, f"newpool {DEVICE} 0 0 1").number
    address = call(session, f"frompool {SIZE} {pool} 0").number
    for count in (1, 2, 3):
        call(session, f"givedmabuf {address} 4096")
        assert charged(session) == SIZE + count * SIZE


def test_a_dma_buf_that_there_is_not_is_charged_to_nobody(session: Session) -> None:
    pool = call(session, f"newpool {DEVICE} 0 0 1").number
    address = call(session, f"frompool {SIZE} {pool} 0").number
    assert session.program.call(f"givedmabuf {address} 1").code == INVALID_VALUE
    assert session.program.call(f"givedmabuf {4096} 4096").code == INVALID_VALUE
    assert charged(session) == SIZE


def test_dma_bufs_of_pools_are_within_the_limit(join: Join, daemon: Daemon) -> None:
    program = join(daemon.container("a", memory="2g"))
    pool, count = program.call(f"newpool {DEVICE} 0 0 1").number, 0
    while (made := program.call(f"frompool {256 * MIB} {pool} 0")).code == SUCCESS:
        if program.call(f"givedmabuf {made.number} 4096").code != SUCCESS:
            break
        assert program.call(f"freeasync {made.number} 0").code == SUCCESS
        assert program.call("sync 0").code == SUCCESS
        count += 1
    assert count > 0
    device = daemon.state("a")["devices"][0]
    assert device["usage"] <= 2 * GIB
