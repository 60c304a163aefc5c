"""A process hands the porter over what is no memory: nobody but itself waits for its last close."""

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_host import until
from lingering import Lingering
from porter_host import BAD_PIECE, FAILED, FORGET, HELD, OUT, PIECE, Carrier, Owner, Porter

FAR_LESS = 60  # seconds; than an hour
_FRAME = struct.Struct("=IIQQII")


@pytest.fixture
def lingering() -> Iterator[Lingering]:
    lingering = Lingering()
    yield lingering
    lingering.close()


def descriptors(porter: Porter) -> int:
    return sum(1 for _ in Path(f"/proc/{porter.popen.pid}/fd").iterdir())


def forget(carrier: Carrier, lingering: Lingering, _owner: Owner) -> None:
    lingering.send(carrier.socket, _FRAME.pack(FORGET, 0, 1, PIECE, 0, 0))
    assert carrier.is_closed()


def several(carrier: Carrier, lingering: Lingering, _owner: Owner) -> None:
    frame = _FRAME.pack(OUT, 0, 1, PIECE, 0, 0)
    with socket.socket() as one, socket.socket() as other:
        socket.send_fds(carrier.socket, [frame], [one.fileno(), other.fileno()])
    with contextlib.suppress(BrokenPipeError):  # the carrier may have ended
        lingering.send_nested(carrier.socket, frame)
    assert carrier.is_closed()


def out(carrier: Carrier, lingering: Lingering, _owner: Owner) -> None:
    for _ in range(3):
        lingering.send(carrier.socket, _FRAME.pack(OUT, 0, 1, PIECE, 0, 0))
        assert carrier.receive() == (FAILED, 1, BAD_PIECE)


def too_long(carrier: Carrier, lingering: Lingering, _owner: Owner) -> None:
    lingering.send_nested(carrier.socket, bytes(4096))
    assert carrier.is_closed()


def unread(carrier: Carrier, lingering: Lingering, _owner: Owner) -> None:
    """They lie in its queue as the carrier is closed."""
    carrier.socket.send(b"no frame")
    for _ in range(20):
        try:
            lingering.send(carrier.socket, b"x")
        except OSError:
            break
    assert carrier.is_closed()


@pytest.mark.parametrize("attack", [forget, several, out, too_long, unread])
def test_what_is_no_memory_holds_nobody_else_up(porter, host, owner, grown, lingering, attack) -> None:
    other = Owner(host)
    neighbour = porter.carrier(other.pid)
    attacker = porter.carrier(owner.pid)
    grown()
    attacker.send(HELD, 1, PIECE)  # answered, so the porter has taken it in
    assert attacker.receive()[0] == FAILED
    address = other.piece(b"of the neighbour")
    usual = descriptors(porter)
    begun = time.monotonic()
    attack(attacker, lingering, owner)
    other.carry(neighbour, address)
    other.bring(neighbour, address)
    assert other.contents(address, 16) == (b"of the neighbour",) * 2
    neighbour.send(HELD, 1, PIECE)
    assert neighbour.receive()[0] == FAILED
    assert time.monotonic() - begun < FAR_LESS
    assert until(lambda: descriptors(porter), lambda number: number <= usual) <= usual
    again = porter.carrier(owner.pid)  # its own next carrier comes after that
    mine = owner.piece(b"mine")
    owner.carry(again, mine)
