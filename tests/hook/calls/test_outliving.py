"""What a program leaves behind descriptors stays charged to its container after the program's end."""

import ctypes
import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from daemon import Daemon, wait_until
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from scripted_session import GIB, MIB

Join = Callable[..., Program]
PIDFD_GETFD = 438
SIZE = 512 * MIB
LIMIT = 4 * GIB
CONTEXT = 526 * MIB


@pytest.fixture
def folder(daemon: Daemon) -> Path:
    return daemon.container("a", memory="4g")


def number_of(program: Program, command: str) -> int:
    result = program.call(command)
    assert result.code == SUCCESS, command
    return result.number


def copy(program: Program, descriptor: int) -> int:
    """Take a copy of a program's descriptor, as who was sent it."""
    process = os.pidfd_open(program.pid)
    try:
        taken = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, descriptor, 0)
    finally:
        os.close(process)
    assert taken >= 0, os.strerror(ctypes.get_errno())
    return taken


def used(daemon: Daemon, name: str = "a") -> int:
    return sum(device["usage"] for device in daemon.state(name)["devices"])


def leave(program: Program, size: int = SIZE, way: str = "handle") -> int:
    """Let a program end that exported memory; return a descriptor of that."""
    if way == "handle":
        handle = number_of(program, f"create {size} 1 0")
        descriptor = copy(program, number_of(program, f"export {handle}"))
    elif way == "imported":
        handle = number_of(program, f"create {size} 1 0")
        exported = number_of(program, f"export {handle}")
        imported, address = number_of(program, f"import {exported}"), number_of(program, f"reserve {size}")
        assert program.call(f"map {address} {size} 0 {imported}").code == SUCCESS
        assert program.call(f"closefd {exported}").code == SUCCESS
        assert program.call(f"releasehandle {handle}").code == SUCCESS
        descriptor = copy(program, number_of(program, f"givedmabuf {address} 4096"))
    elif way == "dma-buf":
        address = number_of(program, f"alloc {size}")
        descriptor = copy(program, number_of(program, f"givedmabuf {address} 4096"))
    else:
        pool = number_of(program, "newpool 1 0 0 1")
        descriptor = copy(program, number_of(program, f"exportpool {pool}"))
        address = number_of(program, f"frompool {size} {pool} 0")
        assert program.call(f"exportpointer {address}").code == SUCCESS
    program.kill()
    return descriptor


@pytest.mark.parametrize("way", ["handle", "dma-buf", "pool", "imported"])
def test_it_is_charged_until_nobody_has_it(join: Join, daemon: Daemon, folder: Path, way: str) -> None:
    stays = join(folder)
    descriptor = leave(join(folder), way=way)
    code = stays.call(f"alloc {LIMIT - SIZE - CONTEXT + 2 * MIB}").code
    assert code == OUT_OF_MEMORY, (daemon.directory / "log").read_text()
    number_of(stays, f"alloc {LIMIT - SIZE - CONTEXT}")
    assert used(daemon) == LIMIT
    # The first look of all may find the other with all that it had: nobody knows then whose that was, or since when.
    rows = daemon.admin.request("devices")["devices"][0]["unlimited"]
    assert [(row["id"], row["size"]) for row in rows if row["name"] == "a"] == [("", SIZE)]
    os.close(descriptor)
    wait_until(lambda: used(daemon) == LIMIT - SIZE, "it is given back")
    number_of(stays, f"alloc {SIZE}")


def test_a_small_allocation_leaves_the_page_that_it_shares(join: Join, daemon: Daemon, folder: Path) -> None:
    descriptor = leave(join(folder), 64 << 10, way="dma-buf")
    wait_until(lambda: used(daemon) == 2 * MIB, "it is left")
    os.close(descriptor)
    wait_until(lambda: used(daemon) == 0, "it is given back")


def test_workers_that_end_one_after_the_other_have_no_more_than_the_limit(join: Join, folder: Path) -> None:
    """Else a program has as much as there is, though nobody can use it; also in small pieces."""
    small = [leave(join(folder), 2 * MIB) for _ in range(20)]
    descriptors = [leave(join(folder)) for _ in range((LIMIT - CONTEXT - 40 * MIB) // SIZE)]
    assert join(folder).call(f"create {SIZE} 1 0").code == OUT_OF_MEMORY
    for descriptor in small + descriptors:
        os.close(descriptor)


def test_memory_that_nobody_keeps_is_had_by_the_next_worker(join: Join, folder: Path) -> None:
    """It is looked at before that is refused."""
    for _ in range(5):
        os.close(leave(join(folder), LIMIT - CONTEXT))


def test_nobody_else_is_charged_with_it(join: Join, daemon: Daemon, folder: Path) -> None:
    """Also not whose worker ends at the same time, or had left as much."""
    other = daemon.container("b", memory="4g")
    before = leave(join(other))
    worker, honest = join(folder), join(other)
    os.close(copy(honest, number_of(honest, f"export {number_of(honest, f'create {SIZE} 1 0')}")))
    descriptor = leave(worker)
    honest.kill()
    os.close(before)
    wait_until(lambda: (used(daemon), used(daemon, "b")) == (SIZE, 0), "each has its own")
    os.close(descriptor)


def test_a_container_that_is_started_again_has_left_what_it_left(join: Join, daemon: Daemon, folder: Path) -> None:
    descriptor = leave(join(folder))
    daemon.admin.request("unmount", name="a", id="1")
    daemon.admin.request("mount", name="a", id="2")
    assert join(folder).call(f"alloc {LIMIT - SIZE - CONTEXT + 2 * MIB}").code == OUT_OF_MEMORY
    os.close(descriptor)


def test_what_a_removed_container_left_is_shown_until_nobody_has_it(join: Join, daemon: Daemon, folder: Path) -> None:
    def rows() -> list[tuple[object, ...]]:
        device, *_ = daemon.admin.request("devices")["devices"]
        return [(row["name"], row["id"], row["size"], row.get("is_charged", False)) for row in device["unlimited"]]

    descriptor = leave(join(folder))
    wait_until(lambda: rows() == [("a", "", SIZE, True)], "it is charged")
    daemon.admin.request("unmount", name="a", id="1")
    daemon.admin.request("remove", name="a")
    daemon.container("a", memory="4g")
    wait_until(lambda: rows() == [("a", "", SIZE, False)], "nobody is charged")
    assert used(daemon) == 0
    os.close(descriptor)
    wait_until(lambda: not rows(), "it is given back")


def test_a_new_scheduler_is_told_again(join: Join, daemon: Daemon, folder: Path) -> None:
    worker = join(folder)
    own = count_instances(daemon)
    descriptor = copy(worker, number_of(worker, f"export {number_of(worker, f'create {SIZE} 1 0')}"))
    assert count_instances(daemon) == own + 1
    daemon.kill()
    daemon.start()
    wait_until(lambda: count_instances(daemon) == own + 1, "the scheduler has a copy")
    worker.kill()
    wait_until(lambda: used(daemon) == SIZE, "it is left")
    os.close(descriptor)
    wait_until(lambda: used(daemon) == 0, "it is given back")


def recorded(daemon: Daemon) -> str:
    """What the scheduler has written of exports."""
    with closing(sqlite3.connect(f"file:{daemon.directory}/state.db?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT value FROM settings WHERE name = 'exported'").fetchall()
    return str(rows[0][0]) if rows else ""


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_it_is_charged_over_a_restart_of_the_scheduler(join: Join, daemon: Daemon, folder: Path, when: str) -> None:
    """Whenever the program ends, and also if it was told to nobody anew: it had a fresh limit with each restart."""
    worker = join(folder)
    descriptor = copy(worker, number_of(worker, f"export {number_of(worker, f'create {SIZE} 1 0')}"))
    if when == "before":
        worker.kill()
    wait_until(lambda: f":{SIZE}" in recorded(daemon), "it is written")
    daemon.kill()
    if when == "while":
        worker.kill()
    daemon.start()
    if when == "after":
        worker.kill()
    stays = join(folder)
    assert stays.call(f"alloc {LIMIT - SIZE - CONTEXT + 2 * MIB}").code == OUT_OF_MEMORY, daemon.log.read_text()
    [row] = daemon.admin.request("devices")["devices"][0]["unlimited"]
    assert (row["name"], row["size"], row["is_charged"]) == ("a", SIZE, True)
    os.close(descriptor)
    wait_until(lambda: used(daemon) == CONTEXT, "the driver counts nothing without a process any more")
    number_of(stays, f"alloc {LIMIT - CONTEXT}")


def count_instances(daemon: Daemon) -> int:
    """How many epoll instances the scheduler has open."""
    assert daemon.process is not None
    count = 0
    for link in Path(f"/proc/{daemon.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed by now
            count += "[eventpoll]" in str(link.readlink())
    return count


def sockets(program: Program) -> dict[str, int]:
    """A process's descriptors of sockets, by the socket; exported memory of the simulated driver is one."""
    found = {}
    for link in Path(f"/proc/{program.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the hook has closed it by now
            found[link.readlink().name] = int(link.name)
    return {name: number for name, number in found.items() if name.startswith("socket:")}


@pytest.mark.parametrize("way", ["handle", "dma-buf", "pool"])
def test_who_is_killed_before_that_is_noted_leaves_it(join: Join, daemon: Daemon, folder: Path, way: str) -> None:
    """A twin that shares its descriptors, or a thread that sends them away, may have them before the hook does."""
    worker, descriptors = join(folder), list[int]()
    if way == "handle":
        command = f"export {number_of(worker, f'create {SIZE} 1 0')}"
    elif way == "dma-buf":
        command = f"givedmabuf {number_of(worker, f'alloc {SIZE}')} 4096"
    else:
        pool = number_of(worker, "newpool 1 0 0 1")
        descriptors.append(copy(worker, number_of(worker, f"exportpool {pool}")))
        command = f"exportpointer {number_of(worker, f'frompool {SIZE} {pool} 0')}"
    before = sockets(worker)
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGSTOP)
    worker.begin(command)
    worker.wait_in_futex()
    descriptors += [copy(worker, number) for name, number in sockets(worker).items() if name not in before]
    worker.kill()
    daemon.process.send_signal(signal.SIGCONT)
    assert join(folder).call(f"alloc {LIMIT - SIZE - CONTEXT + 2 * MIB}").code == OUT_OF_MEMORY
    # How much a dma-buf keeps is not known: all that the program had counts.
    assert used(daemon) == SIZE + (2 if way == "dma-buf" else 1) * CONTEXT
    assert len(descriptors) == 1
    os.close(descriptors[0])
    wait_until(lambda: used(daemon) == CONTEXT, "the driver counts nothing without a process any more")
