"""The porter copies pieces out and in, for the process that owns them and for nobody else."""

import contextlib
import errno
import fcntl
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from gpu_host import until
from porter_host import (
    BAD_PIECE,
    COPIED,
    FAILED,
    FILLED,
    FORGET,
    HELD,
    IN,
    MIB,
    NO_COPY,
    NO_ROOM,
    OUT,
    PIECE,
    READY,
    Carrier,
    Owner,
    Porter,
)

from convgpu.protocol.residency.porter import Broken, Dropped, Gone, Moved, Pooled


def test_a_piece_goes_out_and_comes_back_at_the_same_address(porter, owner, grown) -> None:
    carrier = porter.carrier(owner.pid)
    grown()
    address = owner.piece(b"what the program wrote")
    free = owner.cuda.free_memory()
    owner.carry(carrier, address)
    assert owner.cuda.free_memory() == free + PIECE
    moved = porter.expect(Moved)
    assert (moved.session, moved.device, moved.size, moved.inwards) == (carrier.session, 0, PIECE, False)
    assert moved.nanoseconds > 0
    owner.bring(carrier, address)
    assert owner.contents(address, 22) == (b"what the program wrote",) * 2
    assert porter.expect(Moved).inwards
    porter.expect(Pooled, used=0)


def test_out_and_in_of_many_sizes_at_once(porter, owner, grown) -> None:
    carrier = porter.carrier(owner.pid)
    grown()
    sizes = [2 * MIB, 6 * MIB, 34 * MIB, PIECE, 4 * MIB, 2 * MIB]
    pieces = [(owner.piece(str(n).encode() * 9, size), size) for n, size in enumerate(sizes)]
    for address, size in pieces:
        owner.offer(carrier, OUT, address, size)
    assert {carrier.receive() for _ in pieces} == {(COPIED, address, 0) for address, _ in pieces}
    for address, size in pieces:
        owner.drop(address, size)
    for address, size in reversed(pieces):
        owner.back(address, size)
        owner.offer(carrier, IN, address, size)
    assert {carrier.receive() for _ in pieces} == {(FILLED, address, 0) for address, _ in pieces}
    for n, (address, size) in enumerate(pieces):
        assert owner.contents(address, 9, size) == (str(n).encode() * 9,) * 2


def test_room_in_parts_is_used(porter, owner, grown) -> None:
    """Small pieces leave holes; a large one goes into several of them."""
    carrier = porter.carrier(owner.pid)
    grown()
    pieces = [owner.piece(f"{n:04}".encode(), 32 * MIB) for n in range(8)]
    for address in pieces:
        owner.carry(carrier, address, 32 * MIB)
    for address in pieces[::2]:
        owner.bring(carrier, address, 32 * MIB)
    large = [owner.piece(name) for name in (b"large one", b"large two")]
    for address in large:
        owner.carry(carrier, address)
    last = owner.piece(b"too much", 2 * MIB)
    owner.offer(carrier, OUT, last, 2 * MIB)
    assert carrier.receive() == (FAILED, last, NO_ROOM)
    for address, name in zip(large, (b"large one", b"large two"), strict=True):
        owner.bring(carrier, address)
        assert owner.contents(address, 9) == (name,) * 2
    for n, address in list(enumerate(pieces))[1::2]:
        owner.bring(carrier, address, 32 * MIB)
        assert owner.contents(address, 4, 32 * MIB) == (f"{n:04}".encode(),) * 2


def test_nobody_gets_the_copy_of_another_process(porter, host, owner, grown) -> None:
    mine = porter.carrier(owner.pid)
    grown()
    address = owner.piece(b"secret")
    owner.carry(mine, address)
    thief = Owner(host)
    theirs = porter.carrier(thief.pid)
    [elsewhere] = thief.call("cuMemAddressReserve", PIECE, 0, 0, 0)
    thief.back(elsewhere)
    descriptor = thief.export(elsewhere)
    theirs.send(IN, address, PIECE, descriptor=descriptor)
    assert theirs.receive() == (FAILED, address, NO_COPY)
    theirs.send(FORGET, address, PIECE)
    theirs.send(HELD, address, PIECE)
    assert theirs.receive() == (FAILED, address, NO_COPY)
    owner.bring(mine, address)
    assert owner.contents(address, 6) == (b"secret",) * 2


def test_what_a_container_says_of_its_piece_is_not_believed(porter, owner, grown) -> None:
    carrier = porter.carrier(owner.pid)
    grown()
    address = owner.piece(b"short", 2 * MIB)
    for size in (PIECE, 2 * MIB - 1, 0, 65 * MIB, 1 << 63):
        owner.offer(carrier, OUT, address, size)
        assert carrier.receive() == (FAILED, address, BAD_PIECE)
    owner.offer(carrier, OUT, address, 2 * MIB, device=2)
    assert carrier.receive() == (FAILED, address, BAD_PIECE)
    owner.offer(carrier, OUT, address, 2 * MIB, device=1)  # memory of device 0
    assert carrier.receive() == (FAILED, address, BAD_PIECE)
    carrier.send(OUT, address, 2 * MIB)
    assert carrier.receive() == (FAILED, address, BAD_PIECE)
    with Path(os.devnull).open() as nothing:
        carrier.send(OUT, address, 2 * MIB, descriptor=nothing.fileno())
    assert carrier.receive() == (FAILED, address, BAD_PIECE)
    owner.carry(carrier, address, 2 * MIB)
    owner.bring(carrier, address, 2 * MIB)
    assert owner.contents(address, 5, 2 * MIB) == (b"short",) * 2


@pytest.mark.parametrize("packet", [b"x", bytes(31), bytes(33), bytes(32), b"\x63" + bytes(31)])
def test_nonsense_ends_only_that_carrier(porter, host, owner, grown, packet) -> None:
    good = porter.carrier(owner.pid)
    grown()
    address = owner.piece(b"good")
    owner.carry(good, address)
    bad_owner = Owner(host)
    bad = porter.carrier(bad_owner.pid)
    bad.socket.send(packet)
    assert bad.is_closed()
    assert porter.expect(Broken).session == bad.session
    owner.bring(good, address)
    assert owner.contents(address, 4) == (b"good",) * 2


def test_a_process_that_asks_too_much_at_once_loses_its_carrier_and_keeps_its_copies(porter, owner, grown) -> None:
    carrier = porter.carrier(owner.pid)
    grown()
    address = owner.piece(b"still mine")
    owner.carry(carrier, address)
    other = owner.piece(b"-", 2 * MIB)
    descriptor = owner.export(other)
    with contextlib.suppress(ConnectionError):
        for _ in range(1000):
            carrier.send(OUT, other, 2 * MIB, descriptor=descriptor)
    porter.expect(Broken)
    again = porter.carrier(owner.pid)
    again.send(HELD, address, PIECE)
    again.send(READY)
    owner.bring(again, address)
    assert owner.contents(address, 10) == (b"still mine",) * 2


def test_the_copies_of_an_ended_process_are_freed(porter, owner, grown) -> None:
    carrier = porter.carrier(owner.pid)
    grown()
    for name in (b"one", b"two", b"three"):
        owner.carry(carrier, owner.piece(name))
    porter.expect(Pooled, used=3 * PIECE)
    owner.kill()
    gone = porter.expect(Gone)
    assert (gone.session, gone.size) == (carrier.session, 3 * PIECE)
    porter.expect(Pooled, used=0)


def test_what_a_program_frees_while_it_is_out_is_dropped(porter, owner, grown) -> None:
    carrier = porter.carrier(owner.pid)
    grown()
    address = owner.piece(b"freed")
    owner.carry(carrier, address)
    carrier.send(FORGET, address, PIECE)
    dropped = porter.expect(Dropped)
    assert (dropped.session, dropped.device, dropped.size) == (carrier.session, 0, PIECE)
    for name in (b"one", b"two", b"three", b"four"):  # the pool has room for four
        owner.carry(carrier, owner.piece(name))


def test_an_answer_that_was_lost_leaves_no_copy_behind(porter, owner, grown) -> None:
    carrier = porter.carrier(owner.pid)
    grown()
    stays, returned = owner.piece(b"stays"), owner.piece(b"returned")
    owner.carry(carrier, stays)
    owner.carry(carrier, returned)
    carrier.socket.close()
    again = porter.carrier(owner.pid)
    again.send(HELD, stays, PIECE)
    again.send(READY)
    porter.expect(Pooled, used=PIECE)
    owner.bring(again, stays)
    assert owner.contents(stays, 5) == (b"stays",) * 2


def test_the_pool_is_private_and_given_back(porter, owner, grown) -> None:
    carrier = porter.carrier(owner.pid)
    grown()
    files = (porter.pool, porter.pool.with_name("pool.index"))
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o600]
    assert porter.pool.stat().st_size == 256 * MIB
    address = owner.piece(b"in the way")
    owner.carry(carrier, address)
    porter.resize(0)
    porter.expect(Pooled, size=0)
    owner.bring(carrier, address)
    assert owner.contents(address, 10) == (b"in the way",) * 2
    assert until(lambda: porter.pool.stat().st_size, lambda size: size == 0) == 0
    porter.resize(128 * MIB)
    porter.expect(Pooled, size=128 * MIB)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_host_memory_that_cannot_be_had_is_reported(program, host, owner, tmp_path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", small], check=True)
    porter = Porter(program, host, small / "pool", tmp_path / "porter.log")
    try:
        porter.resize(256 * MIB)
        porter.carrier(owner.pid)
        assert porter.expect(Pooled, size=0, error=errno.ENOSPC)
        assert "the pool stays at 0 MiB: No space left" in porter.log.read_text()
        porter.resize(128 * MIB)
        porter.expect(Pooled, size=128 * MIB, error=0)
    finally:
        porter.close()
        subprocess.run(["umount", small], check=True)


def comes_back(porter: Porter, owner: Owner, address: int, contents: bytes) -> None:
    """Bring a piece back by a porter that was started since it went out."""
    carrier = porter.carrier(owner.pid)
    carrier.send(HELD, address, PIECE)
    carrier.send(READY)
    owner.bring(carrier, address)
    assert owner.contents(address, len(contents)) == (contents,) * 2


def test_it_ends_with_the_scheduler_and_leaves_nothing_half(porter, owner, grown) -> None:
    carrier = porter.carrier(owner.pid)
    grown()
    address = owner.piece(b"over the end")
    owner.carry(carrier, address)
    assert porter.stop() == 0
    porter.start()
    comes_back(porter, owner, address, b"over the end")


def has_open(pid: int, path: Path) -> bool:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed meanwhile
            if descriptor.samefile(path):
                return True
    return False


def test_a_pool_that_is_removed_before_the_lock_is_had_is_made_anew(program, host, owner, tmp_path) -> None:
    """The scheduler that started it was killed, and the next one saw no copies."""
    pool = tmp_path / "pool"
    with pool.open("wb") as removed:
        fcntl.flock(removed, fcntl.LOCK_EX)
        porter = Porter(program, host, pool, tmp_path / "porter.log")
        assert until(lambda: has_open(porter.popen.pid, pool), bool)
        pool.unlink()
    try:
        porter.resize(128 * MIB)
        carrier = porter.carrier(owner.pid)
        porter.expect(Pooled, size=128 * MIB)
        address = owner.piece(b"found again")
        owner.carry(carrier, address)
        assert pool.stat().st_size == 128 * MIB
        assert porter.stop() == 0
        porter.start()
        comes_back(porter, owner, address, b"found again")
    finally:
        porter.close()


def test_garbage_from_the_scheduler_is_refused(porter, owner, grown) -> None:
    for packet in (b"\x01", bytes(64), b"\x02" + bytes(31), b"\xff" * 2048):
        porter.control.send(packet)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    socket.send_fds(porter.control, [b"\x02" + bytes(31)], [theirs.fileno()])
    theirs.close()
    with ours:
        assert ours.recv(1) == b""
    porter.carrier(owner.pid)
    grown()


def hand_over(carrier: Carrier, of: Owner, address: int, name: int) -> tuple[int, int, int]:
    descriptor = of.export(address)
    carrier.send(OUT, name, PIECE, descriptor=descriptor)
    os.close(descriptor)
    return carrier.receive()


def test_a_process_puts_out_no_more_than_it_was_ordered_to(porter, host, owner, grown) -> None:
    """One that handed the same piece over under many names had all of the pool, and nobody else could leave."""
    carrier = porter.carrier(owner.pid, 0)
    grown()
    address = owner.piece(b"the same")
    assert hand_over(carrier, owner, address, 1) == (FAILED, 1, NO_ROOM)
    porter.allow(carrier, 2 * PIECE)
    assert [hand_over(carrier, owner, address, name)[0] for name in (1, 2)] == [COPIED] * 2
    assert hand_over(carrier, owner, address, 3) == (FAILED, 3, NO_ROOM)
    assert hand_over(carrier, owner, address, 2) == (COPIED, 2, 0)  # takes the place of the one before
    carrier.send(FORGET, 1, PIECE)
    assert hand_over(carrier, owner, address, 4) == (COPIED, 4, 0)
    porter.allow(carrier, 0)
    carrier.send(FORGET, 4, PIECE)
    assert hand_over(carrier, owner, address, 4) == (FAILED, 4, NO_ROOM)
    other = Owner(host)
    assert hand_over(porter.carrier(other.pid, PIECE), other, other.piece(b"mine"), 1) == (COPIED, 1, 0)
    other.kill()


def test_copies_of_an_earlier_porter_count_for_the_process(porter, owner, grown) -> None:
    carrier = porter.carrier(owner.pid, 2 * PIECE)
    grown()
    address = owner.piece(b"the same")
    assert [hand_over(carrier, owner, address, name)[0] for name in (1, 2)] == [COPIED] * 2
    porter.kill()
    porter.start()
    porter.resize(256 * MIB)
    carrier = porter.carrier(owner.pid, 2 * PIECE)
    porter.expect(Pooled, size=256 * MIB)
    carrier.send(HELD, 1, PIECE)
    assert hand_over(carrier, owner, address, 2) == (COPIED, 2, 0)  # its answer was lost
    carrier.send(READY)
    assert hand_over(carrier, owner, address, 3) == (FAILED, 3, NO_ROOM)


def test_an_order_is_heard_before_the_pieces_that_come_because_of_it(porter, owner, grown) -> None:
    """They come on different sockets, and the porter has not looked at either for a while."""
    carrier = porter.carrier(owner.pid, 0)
    grown()
    address = owner.piece(b"in time", 2 * MIB)
    for name in range(20):
        os.kill(porter.popen.pid, signal.SIGSTOP)
        carrier.send(HELD, 99, 2 * MIB)  # so that the carrier is the first to be looked at
        porter.allow(carrier, (name + 1) * 2 * MIB)
        descriptor = owner.export(address)
        carrier.send(OUT, name, 2 * MIB, descriptor=descriptor)
        os.close(descriptor)
        os.kill(porter.popen.pid, signal.SIGCONT)
        assert [carrier.receive() for _ in range(2)] == [(FAILED, 99, NO_COPY), (COPIED, name, 0)]


def test_what_breaks_carriers_without_end_fills_no_log(porter, owner, grown) -> None:
    """Each of 15,000 in six seconds had its line."""
    porter.carrier(owner.pid)
    grown()
    for _ in range(100):
        bad = porter.carrier(owner.pid)
        bad.socket.send(b"x")
        porter.expect(Broken, session=bad.session)
    assert porter.log.read_text().count("the carrier of") == 20
