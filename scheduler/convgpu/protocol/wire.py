"""The Python half of `hook/include/convgpu/protocol.h`: numbers and field tables, nothing else.

`tests/contract/test_wire.py` compiles a probe from the header and compares every name, number, offset and
size with what stands here.
"""

import struct
from enum import IntEnum, IntFlag
from typing import Final

VERSION: Final = 2
MAX_FRAME: Final = 65536
UUID_SIZE: Final = 16
PROGRAM_SIZE: Final = 32
MEMORY_SIZE: Final = 64
TEXT_SIZE: Final = 240


class Kind(IntEnum):
    """What a frame is."""

    HELLO = 1
    ALLOCATE = 2
    FREED = 3
    CONTEXT = 4
    QUERY = 5
    OBSERVE = 6
    ABLE = 7
    RUN = 8
    STOPPED = 9
    EVICTED = 10
    RESTORED = 11
    STATE = 12
    IDLE = 13
    LISTED = 14
    TRACED = 15
    WELCOME = 16
    ACCEPTED = 17
    REJECTED = 18
    CONTEXT_SIZE = 19
    USAGE = 20
    FAILED = 21
    OBSERVED = 22
    CARRIER = 23
    STOP = 24
    STEP = 25
    EVICT = 26
    RESTORE = 27
    GO = 28
    WATCH = 29
    LIST = 30
    ADMIN = 32
    ADMIN_REPLY = 33
    WITHDRAW = 34
    EXPLAINED = 35
    EXPORTED = 36


class Reason(IntEnum):
    """Why an allocation was rejected."""

    LIMIT = 1
    DEADLINE = 2
    DEVICE = 3
    DRIVER = 4
    DISPLACED = 5
    INTERRUPTED = 6


class Failure(IntEnum):
    """Why a connection was refused."""

    VERSION = 1
    MALFORMED = 2
    NO_LIMIT = 3
    ORDER = 4
    PEER = 5


class Mover(IntEnum):
    """Who moves the memory of a process."""

    UNIFIED = 1
    VMM = 2


class Outcome(IntEnum):
    """What came of STOP."""

    DRAINED = 0
    BUSY = 1
    CAPTURING = 2


class PageFlag(IntFlag):
    """Bits of the page's `flags`."""

    ELASTIC = 1
    CHOSEN = 2
    WITHDRAW = 4
    UNIFIED = 8
    EXPORTS = 16


class AllocateFlag(IntFlag):
    """Bits of ALLOCATE.flags."""

    REFUSED = 1
    FIXED = 2


class AbleFlag(IntFlag):
    """Bits of ABLE.flags."""

    MEMBARRIER = 1
    CAPTURES = 2
    IDLE = 4


class PageAble(IntFlag):
    """Bits of the page's `able`."""

    LIST = 1
    EXPLAINED = 2


class ObservedFlag(IntFlag):
    """Bits of OBSERVED.flags."""

    CHOSEN = 1


TYPE_CODES: Final = {"uint8_t": "B", "char": "s", "uint16_t": "H", "uint32_t": "I", "uint64_t": "Q"}

# Struct name -> its fields as (C type, name, count); count 1 is a plain field.
STRUCTS: Final[dict[str, tuple[tuple[str, str, int], ...]]] = {
    "header": (
        ("uint32_t", "size", 1),
        ("uint16_t", "version", 1),
        ("uint16_t", "kind", 1),
        ("uint64_t", "id", 1),
    ),
    "hello": (
        ("uint32_t", "pid", 1),
        ("uint32_t", "held_count", 1),
        ("char", "program", PROGRAM_SIZE),
        ("char", "memory", MEMORY_SIZE),
    ),
    "held": (("uint8_t", "device", UUID_SIZE), ("uint64_t", "size", 1)),
    "allocate": (
        ("uint32_t", "device", 1),
        ("uint32_t", "flags", 1),
        ("uint64_t", "size", 1),
        ("char", "call", PROGRAM_SIZE),
    ),
    "freed": (("uint32_t", "device", 1), ("uint32_t", "reserved", 1)),
    "withdraw": (("uint64_t", "reserved", 1),),
    "context": (
        ("uint32_t", "device", 1),
        ("uint32_t", "reserved", 1),
        ("uint64_t", "charged", 1),
        ("uint64_t", "used", 1),
    ),
    "query": (("uint32_t", "device", 1), ("uint32_t", "reserved", 1)),
    "welcome": (("uint32_t", "device_count", 1), ("uint32_t", "page_size", 1)),
    "device": (("uint8_t", "uuid", UUID_SIZE), ("uint64_t", "limit", 1), ("uint64_t", "context_size", 1)),
    "accepted": (("uint64_t", "size", 1), ("uint64_t", "settling", 1)),
    "rejected": (
        ("uint32_t", "reason", 1),
        ("uint32_t", "reserved", 1),
        ("uint64_t", "limit", 1),
        ("uint64_t", "used", 1),
    ),
    "context_size": (("uint64_t", "size", 1),),
    "usage": (("uint64_t", "limit", 1), ("uint64_t", "used", 1), ("uint64_t", "settling", 1)),
    "observe": (("uint8_t", "device", UUID_SIZE), ("char", "memory", MEMORY_SIZE)),
    "observed": (
        ("uint64_t", "limit", 1),
        ("uint64_t", "used", 1),
        ("uint32_t", "process_count", 1),
        ("uint32_t", "flags", 1),
    ),
    "process": (("uint32_t", "pid", 1), ("uint32_t", "host_pid", 1), ("uint64_t", "used", 1)),
    "able": (("uint32_t", "mover", 1), ("uint32_t", "flags", 1)),
    "run": (("uint64_t", "epoch", 1),),
    "stopped": (
        ("uint64_t", "epoch", 1),
        ("uint32_t", "outcome", 1),
        ("uint32_t", "waiting", 1),
        ("uint64_t", "nanoseconds", 1),
    ),
    "evicted": (
        ("uint64_t", "epoch", 1),
        ("uint32_t", "device", 1),
        ("uint32_t", "ended", 1),
        ("uint64_t", "size", 1),
    ),
    "restored": (
        ("uint64_t", "epoch", 1),
        ("uint32_t", "device", 1),
        ("uint32_t", "refused", 1),
        ("uint64_t", "size", 1),
    ),
    "state": (("uint64_t", "epoch", 1), ("uint32_t", "open", 1), ("uint32_t", "row_count", 1)),
    "state_row": (
        ("uint8_t", "device", UUID_SIZE),
        ("uint64_t", "movable", 1),
        ("uint64_t", "fixed", 1),
        ("uint64_t", "out", 1),
    ),
    "carrier": (("uint32_t", "version", 1), ("uint32_t", "reserved", 1)),
    "stop": (("uint64_t", "epoch", 1), ("uint32_t", "deadline", 1), ("uint32_t", "reserved", 1)),
    "step": (("uint64_t", "epoch", 1), ("uint32_t", "count", 1), ("uint32_t", "reserved", 1)),
    "evict": (
        ("uint64_t", "epoch", 1),
        ("uint32_t", "device", 1),
        ("uint32_t", "reserved", 1),
        ("uint64_t", "size", 1),
    ),
    "restore": (
        ("uint64_t", "epoch", 1),
        ("uint32_t", "device", 1),
        ("uint32_t", "reserved", 1),
        ("uint64_t", "size", 1),
    ),
    "go": (("uint64_t", "epoch", 1),),
    "idle": (("uint32_t", "idle", 1), ("uint32_t", "reserved", 1), ("uint64_t", "nanoseconds", 1)),
    "watch": (("uint32_t", "on", 1), ("uint32_t", "reserved", 1)),
    "listed": (
        ("uint32_t", "row_count", 1),
        ("uint32_t", "more", 1),
        ("uint64_t", "count", 1),
        ("uint64_t", "size", 1),
    ),
    "listed_row": (
        ("uint64_t", "address", 1),
        ("uint64_t", "size", 1),
        ("uint32_t", "device", 1),
        ("uint32_t", "age", 1),
        ("char", "call", PROGRAM_SIZE),
    ),
    "traced": (
        ("uint32_t", "device", 1),
        ("uint32_t", "reserved", 1),
        ("uint64_t", "size", 1),
        ("char", "call", PROGRAM_SIZE),
    ),
    "list": (("uint32_t", "most", 1), ("uint32_t", "reserved", 1)),
    "explained": (("char", "text", TEXT_SIZE),),
    "exported": (
        ("uint64_t", "name", 1),
        ("uint64_t", "size", 1),
        ("uint32_t", "device", 1),
        ("uint32_t", "instance", 1),
        ("uint32_t", "number", 1),
        ("uint32_t", "generation", 1),
    ),
    "failed": (("uint32_t", "failure", 1), ("uint32_t", "reserved", 1), ("char", "text", TEXT_SIZE)),
}


def layout(name: str) -> struct.Struct:
    """Return the packer of a struct; the layout has no padding, so no alignment is needed."""
    codes = "".join(f"{count}s" if count > 1 else TYPE_CODES[c_type] for c_type, _field, count in STRUCTS[name])
    return struct.Struct("=" + codes)
