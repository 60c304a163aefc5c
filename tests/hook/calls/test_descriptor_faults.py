"""Nothing escapes by the ways in which descriptors are made, named, looked for and lost."""

import resource
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from daemon import Daemon, wait_until
from hooked_program import INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, Program
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, Session, call, charged, open_session, row

from convgpu.protocol.messages import ContextSize, Rejected
from convgpu.protocol.wire import Reason

Start = Callable[..., Program]
Join = Callable[..., Program]
DEVICE = 1
OPERATING_SYSTEM = 304
SIZE = 64 * MIB
# Takes its time to register a descriptor.
SLOW = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/epoll.h>
#include <unistd.h>
int epoll_ctl(int instance, int operation, int descriptor, struct epoll_event *event) {
    int (*call)(int, int, int, struct epoll_event *) = dlsym(RTLD_NEXT, "epoll_ctl");
    usleep(300000);
    return call(instance, operation, descriptor, event);
}
"""


@pytest.fixture
def session(start: Start, scheduler: ScriptedScheduler) -> Session:
    return open_session(start(), scheduler, headroom=4 * GIB)


def create(session: Session, size: int = SIZE) -> int:
    return call(session, f"create {size} {DEVICE} 0").number


def descriptors(session: Session, kind: str = "") -> list[int]:
    found = []
    for link in Path(f"/proc/{session.program.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the hook's thread reads a list
            if kind in str(link.readlink()):
                found.append(int(link.name))
    return sorted(found)


def look_twice(session: Session) -> None:
    """Wait until the hook's thread has looked twice, by what it gives back."""
    for _ in range(2):
        before = charged(session)
        handle = create(session, 2 * MIB)
        descriptor = call(session, f"export {handle}").number
        call(session, f"releasehandle {handle}")
        call(session, f"closefd {descriptor}")
        wait_until(lambda: charged(session) == before, "the thread has looked")  # noqa: B023 - it ends before


def exported_pool(session: Session) -> tuple[int, int]:
    pool = call(session, f"newpool {DEVICE} 0 0 1").number
    return pool, call(session, f"exportpool {pool}").number


def exported(session: Session, pool: int, size: int) -> int:
    address = call(session, f"frompool {size} {pool} 0").number
    call(session, f"exportpointer {address}")
    return address


def test_pieces_of_a_pool_that_are_used_in_part_are_charged_whole(session: Session) -> None:
    """Else more was given back in the end than had been charged, again and again."""
    pool, descriptor = exported_pool(session)
    small, rest = [], []
    for _ in range(8):
        small.append(exported(session, pool, MIB))
        rest += [exported(session, pool, 31 * MIB), exported(session, pool, 32 * MIB)]
    for group in (rest, small):
        for address in group:
            call(session, f"freeasync {address} 0")
        call(session, "sync 0")
        assert charged(session) == 512 * MIB
    call(session, f"destroypool {pool}")
    assert charged(session) == 512 * MIB
    call(session, f"closefd {descriptor}")
    wait_until(lambda: charged(session) <= 0, "it is given back")
    assert charged(session) == 0


def test_pieces_that_begin_elsewhere_than_the_drivers_give_back_no_more_than_was_charged(session: Session) -> None:
    small = call(session, f"alloc {2 * MIB}").number  # what comes behind it begins amid 32 MiB, and touches three
    pool, descriptor = exported_pool(session)
    address = exported(session, pool, 64 * MIB)
    assert address % (32 * MIB) != 0
    call(session, f"freeasync {address} 0")
    call(session, "sync 0")
    call(session, f"destroypool {pool}")
    call(session, f"closefd {descriptor}")
    wait_until(lambda: charged(session) <= 2 * MIB, "it is given back")
    call(session, f"free {small}")
    assert charged(session) == 0


def test_freed_memory_that_a_pool_keeps_is_charged_beside_its_pieces(session: Session) -> None:
    pool, _ = exported_pool(session)
    first = exported(session, pool, 512 * MIB)
    second = call(session, f"frompool {512 * MIB} {pool} 0").number
    call(session, f"free {first}")
    call(session, "sync 0")
    call(session, f"threshold {pool} {1 << 40}")
    call(session, f"free {second}")
    call(session, "sync 0")
    assert charged(session) == GIB
    call(session, f"trim {pool} 0")
    assert charged(session) == 512 * MIB


def test_a_pools_pieces_and_rounds_of_it_stay_within_the_limit(join: Join, daemon: Daemon) -> None:
    program = join(daemon.container("a", memory="2g"))

    def done(command: str) -> int:
        result = program.call(command)
        assert result.code == SUCCESS, command
        return result.number if result.values else 0

    for _ in range(3):
        pool = done(f"newpool {DEVICE} 0 0 1")
        descriptor, all_of_it = done(f"exportpool {pool}"), []
        for size in (MIB, 31 * MIB, 32 * MIB) * 4:
            all_of_it.append(done(f"frompool {size} {pool} 0"))
            done(f"exportpointer {all_of_it[-1]}")
        for address in reversed(all_of_it):
            done(f"freeasync {address} 0")
        for command in ("sync 0", f"destroypool {pool}", f"closefd {descriptor}"):
            done(command)
    count = 0
    while program.call(f"alloc {128 * MIB}").code == SUCCESS:
        count += 1
    assert count == (2 * GIB - 526 * MIB) // (128 * MIB)


def test_an_import_of_ones_own_of_which_others_have_a_dma_buf(session: Session) -> None:
    """Nobody has the first descriptor; the second one keeps the memory. A card does not export it again."""
    handle = create(session)
    first = call(session, f"export {handle}").number
    other = call(session, f"import {first}").number
    assert session.program.call(f"export {other}").code == INVALID_VALUE
    address = call(session, f"reserve {SIZE}").number
    call(session, f"map {address} {SIZE} 0 {other}")
    second = call(session, f"givedmabuf {address} {SIZE}").number
    call(session, f"unmap {address} {SIZE}")
    call(session, f"closefd {first}")
    call(session, f"releasehandle {other}")
    assert session.program.call(f"releasehandle {other}").code == INVALID_VALUE  # it is kept
    call(session, f"closefd {second}")
    call(session, f"releasehandle {handle}")
    wait_until(lambda: charged(session) == 0, "it is given back")


def test_dma_bufs_of_imports_of_ones_own_stay_within_the_limit(join: Join, daemon: Daemon) -> None:
    """Each counts beside the memory that it is of, which is let go of after that."""
    program, size, count = join(daemon.container("a", memory="2g")), 256 * MIB, 0
    while count < 20:
        created = program.call(f"create {size} {DEVICE} 0")
        assert created.code == SUCCESS
        first = program.call(f"export {created.number}").number
        other = program.call(f"import {first}").number
        address = program.call(f"reserve {size}").number
        assert program.call(f"map {address} {size} 0 {other}").code == SUCCESS
        if program.call(f"givedmabuf {address} {size}").code == OUT_OF_MEMORY:
            break
        ends = (
            f"unmap {address} {size}",
            f"closefd {first}",
            f"releasehandle {created.number}",
            f"releasehandle {other}",
        )
        assert [program.call(command).code for command in ends] == [SUCCESS] * 4
        count += 1
    assert count == (2 * GIB - 526 * MIB) // size - 1


def test_without_a_free_descriptor_nothing_is_taken_for_closed(session: Session) -> None:
    """The list cannot be read then, when an allocation that does not fit has all families look."""
    handle = create(session)
    call(session, f"export {handle}")
    call(session, f"releasehandle {handle}")
    before = resource.prlimit(session.program.pid, resource.RLIMIT_NOFILE, (3, 20_000))
    session.program.begin(f"create {8 * GIB} {DEVICE} 0")
    request, _message = session.peer.receive()
    session.peer.send(Rejected(Reason.LIMIT, 4 * GIB, SIZE), request)
    assert session.program.result().code == OUT_OF_MEMORY
    resource.prlimit(session.program.pid, resource.RLIMIT_NOFILE, before)
    assert charged(session) == SIZE


def test_what_cannot_be_watched_is_not_exported(session: Session) -> None:
    handle = create(session)
    highest = max(number for number in descriptors(session) if number < 900)
    sockets = descriptors(session, "socket:")
    # The driver has four for as long as it works, and keeps three.
    before = resource.prlimit(session.program.pid, resource.RLIMIT_NOFILE, (highest + 5, 20_000))
    result = session.program.call(f"export {handle}")
    resource.prlimit(session.program.pid, resource.RLIMIT_NOFILE, before)
    assert result.code == OPERATING_SYSTEM
    assert descriptors(session, "socket:") == sockets
    call(session, f"releasehandle {handle}")
    assert charged(session) == 0


def test_a_reused_address_is_not_taken_for_the_one_before(session: Session) -> None:
    """Two buffers in turn: there is always a descriptor of the one before, at the same address."""
    last = None
    for _ in range(5):
        address = call(session, f"alloc {SIZE}").number
        descriptor = call(session, f"givedmabuf {address} {SIZE}").number
        call(session, f"free {address}")
        if last is not None:
            call(session, f"closefd {last}")
        last = descriptor
    wait_until(lambda: charged(session) == SIZE, "all but the last are given back")


def test_one_address_on_two_devices(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, row(), row(device=1), headroom=4 * GIB)
    session.page.give(1, 4 * GIB)
    session.program.begin("retain 1")
    request, _message = session.peer.receive()
    session.peer.send(ContextSize(0), request)
    other, kept = session.program.result().number, []
    for _ in range(2):
        address = call(session, f"alloc {SIZE}").number
        kept.append(call(session, f"givedmabuf {address} {SIZE}").number)
        call(session, f"free {address}")
        call(session, f"use {other}")
    for descriptor in kept:
        call(session, f"closefd {descriptor}")
    wait_until(lambda: [session.page.read(device) for device in (0, 1)] == [4 * GIB] * 2, "both are given back")


def test_a_small_allocation_keeps_the_page_that_it_shared(session: Session) -> None:
    first, second = (call(session, f"alloc {64 << 10}").number for _ in range(2))
    descriptor = call(session, f"givedmabuf {first} {64 << 10}").number
    for address in (first, second):
        call(session, f"free {address}")
    assert charged(session) == 2 * MIB
    call(session, f"closefd {descriptor}")
    wait_until(lambda: charged(session) == 0, "it is given back")


def test_who_releases_while_another_thread_exports(start: Start, scheduler: ScriptedScheduler, tmp_path: Path) -> None:
    library = tmp_path / "slow.so"
    subprocess.run(["cc", "-x", "c", "-", "-shared", "-fPIC", "-o", library, "-ldl"], input=SLOW, text=True, check=True)
    session = open_session(start(preload=(library,)), scheduler, headroom=4 * GIB)
    handle = create(session)
    session.program.begin(f"export {handle}")
    session.program.begin(f"releasehandle {handle}", 1)
    exported_then, released = (session.program.result(thread).code for thread in (0, 1))
    assert (released, exported_then) in ((SUCCESS, SUCCESS), (SUCCESS, INVALID_VALUE))  # whoever is first
    assert charged(session) == (SIZE if exported_then == SUCCESS else 0)


@pytest.mark.forks
@pytest.mark.parametrize("which", [0, 1])
def test_a_number_that_is_the_programs_by_now_is_neither_used_nor_closed(session: Session, which: int) -> None:
    resource.prlimit(session.program.pid, resource.RLIMIT_NOFILE, (64, 20_000))  # below those of the hook's usual ones
    handle = create(session)
    call(session, f"export {handle}")
    ours = sorted(descriptors(session, "eventpoll"))[which]
    call(session, f"closefd {ours}")
    taken = call(session, f"export {handle}").number
    while taken != ours and taken < ours:
        taken = call(session, f"export {handle}").number
    child = call(session, f"lendfd {taken}").number
    assert Path(f"/proc/{child}/fd/{taken}").is_symlink()
    assert call(session, f"import {taken}").number


def test_a_released_handle_is_unknown_while_it_is_kept(session: Session) -> None:
    handle = create(session)
    call(session, f"export {handle}")
    call(session, f"releasehandle {handle}")
    address = call(session, f"reserve {SIZE}").number
    for command in (f"map {address} {SIZE} 0 {handle}", f"export {handle}", f"releasehandle {handle}"):
        assert session.program.call(command).code == INVALID_VALUE


def test_a_dma_buf_of_many_pieces_keeps_all(session: Session) -> None:
    """One file has many names."""
    piece, count = 2 * MIB, 60
    address = call(session, f"reserve {count * piece}").number
    for number in range(count):
        handle = create(session, piece)
        call(session, f"map {address + number * piece} {piece} 0 {handle}")
        call(session, f"releasehandle {handle}")
    descriptor = call(session, f"givedmabuf {address} {count * piece}").number
    call(session, f"unmap {address} {count * piece}")
    look_twice(session)
    assert charged(session) == count * piece
    call(session, f"closefd {descriptor}")
    wait_until(lambda: charged(session) == 0, "it is given back")
