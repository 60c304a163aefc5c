"""Frames between the scheduler and the porter: the Python half of `hook/include/convgpu/carrier.h`.

A frame is one packet. Sizes are bytes; `session` is the scheduler's number of a session.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

VERSION: Final = 1
PIECE_SIZE: Final = 64 << 20


class PorterKind(IntEnum):
    """What a control frame is."""

    POOL = 1
    SESSION = 2
    CHECKPOINT = 3
    ALLOW = 4
    POOLED = 16
    MOVED = 17
    GONE = 18
    DROPPED = 19
    BROKEN = 20
    CHECKPOINTED = 21


# Struct name -> its fields as (C type, name, count), in the form of `wire.STRUCTS`.
STRUCTS: Final[dict[str, tuple[tuple[str, str, int], ...]]] = {
    "pool": (("uint32_t", "kind", 1), ("uint32_t", "reserved", 1), ("uint64_t", "size", 1)),
    "session": (
        ("uint32_t", "kind", 1),
        ("uint32_t", "pid", 1),
        ("uint64_t", "session", 1),
        ("uint64_t", "started", 1),
        ("uint64_t", "most", 1),
        ("uint32_t", "device_count", 1),
        ("uint32_t", "reserved", 1),
    ),
    "allow": (
        ("uint32_t", "kind", 1),
        ("uint32_t", "reserved", 1),
        ("uint64_t", "session", 1),
        ("uint64_t", "most", 1),
    ),
    "carrier_device": (("uint8_t", "uuid", 16),),
    "pooled": (
        ("uint32_t", "kind", 1),
        ("uint32_t", "error", 1),
        ("uint64_t", "size", 1),
        ("uint64_t", "used", 1),
    ),
    "moved": (
        ("uint32_t", "kind", 1),
        ("uint32_t", "device", 1),
        ("uint64_t", "session", 1),
        ("uint64_t", "size", 1),
        ("uint32_t", "in", 1),
        ("uint32_t", "reserved", 1),
        ("uint64_t", "nanoseconds", 1),
    ),
    "gone": (
        ("uint32_t", "kind", 1),
        ("uint32_t", "reserved", 1),
        ("uint64_t", "session", 1),
        ("uint64_t", "size", 1),
    ),
    "checkpoint": (("uint32_t", "kind", 1), ("uint32_t", "restore", 1), ("uint64_t", "session", 1)),
    "checkpointed": (
        ("uint32_t", "kind", 1),
        ("uint32_t", "restored", 1),
        ("uint64_t", "session", 1),
        ("uint32_t", "error", 1),
        ("uint32_t", "reserved", 1),
    ),
}

_POOL: Final = struct.Struct("=IIQ")
_SESSION: Final = struct.Struct("=IIQQQII")
_ALLOW: Final = struct.Struct("=IIQQ")
_POOLED: Final = struct.Struct("=IIQQ")
_MOVED: Final = struct.Struct("=IIQQIIQ")
_GONE: Final = struct.Struct("=IIQQ")
_CHECKPOINT: Final = struct.Struct("=IIQ")
_CHECKPOINTED: Final = struct.Struct("=IIQII")
_KIND: Final = struct.Struct("=I")


@dataclass(frozen=True, slots=True)
class Pooled:
    """The porter can copy pieces to `size` bytes of host memory, of which `used` hold copies.

    `error` is the errno or the driver's error that stopped it from growing, or 0.
    """

    size: int
    used: int
    error: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """A piece of row `device` was copied to the host, or back to the device (`inwards`)."""

    session: int
    device: int
    size: int
    inwards: bool
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """A process freed memory of row `device` that was out: its copy of `size` bytes is freed."""

    session: int
    device: int
    size: int


@dataclass(frozen=True, slots=True)
class Gone:
    """The process of a session has ended: copies of `size` bytes are freed."""

    session: int
    size: int


@dataclass(frozen=True, slots=True)
class Broken:
    """The carrier of a session was closed because of what came on it."""

    session: int


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """The driver has taken what was left of a process off its devices, or put it back (`restored`).

    `error`: why it could not, by the driver's number; 0: it could.
    """

    session: int
    restored: bool
    error: int = 0


PorterReport = Pooled | Moved | Dropped | Gone | Broken | Checkpointed


class PorterProtocolError(ValueError):
    """A packet that is no frame of the porter."""


def pack_pool(size: int) -> bytes:
    """Return the frame that asks for `size` bytes of host memory."""
    return _POOL.pack(PorterKind.POOL, 0, size)


def pack_session(session: int, pid: int, started: int, most: int, devices: tuple[bytes, ...]) -> bytes:
    """Return the frame that brings a process, which may have `most` bytes of copies.

    `devices` are binary UUIDs in the order of its WELCOME.
    """
    head = _SESSION.pack(PorterKind.SESSION, pid, session, started, most, len(devices), 0)
    return head + b"".join(devices)


def pack_allow(session: int, most: int) -> bytes:
    """Return the frame that says how many bytes of copies a process may have from now on."""
    return _ALLOW.pack(PorterKind.ALLOW, 0, session, most)


def pack_checkpoint(session: int, *, restore: bool) -> bytes:
    """Return the frame that has the driver take a process off its devices, or put it back."""
    return _CHECKPOINT.pack(PorterKind.CHECKPOINT, restore, session)


def unpack_report(packet: bytes) -> PorterReport:
    """Return what the porter says.

    Raises:
        PorterProtocolError: the packet is no frame of the porter.
    """
    try:
        match PorterKind(_KIND.unpack_from(packet)[0]):
            case PorterKind.POOLED:
                _kind, error, size, used = _POOLED.unpack(packet)
                return Pooled(size, used, error)
            case PorterKind.MOVED:
                _kind, device, session, size, inwards, _reserved, nanoseconds = _MOVED.unpack(packet)
                return Moved(session, device, size, bool(inwards), nanoseconds)
            case PorterKind.DROPPED:
                _kind, device, session, size, *_rest = _MOVED.unpack(packet)
                return Dropped(session, device, size)
            case PorterKind.GONE:
                _kind, _reserved, session, size = _GONE.unpack(packet)
                return Gone(session, size)
            case PorterKind.BROKEN:
                return Broken(_GONE.unpack(packet)[2])
            case PorterKind.CHECKPOINTED:
                _kind, restored, session, error, _reserved = _CHECKPOINTED.unpack(packet)
                return Checkpointed(session, bool(restored), error)
            case kind:
                raise PorterProtocolError(f"the porter does not send {kind.name}")
    except (struct.error, ValueError) as error:
        raise PorterProtocolError(f"a packet of {len(packet)} bytes: {error}") from error
