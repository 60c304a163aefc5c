"""Messages about single allocations, live or paused; `docs/protocol.md` says who sends which and when.

`device` is a row of WELCOME; sizes are bytes.
"""

from dataclasses import dataclass
from typing import Final

UNKNOWN: Final = (1 << 32) - 1
"""In place of a device that the container has no limit on any more, and of an age that is not known."""


@dataclass(frozen=True, slots=True)
class List:
    """List your live allocations, at most `most` of them."""

    most: int


@dataclass(frozen=True, slots=True)
class ListedRow:
    """One live allocation: address or handle, bytes charged, and seconds since it was made."""

    address: int
    size: int
    device: int
    age: int
    call: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A part of the answer to List; `more`: not the last. `count` and `size` are those of all live allocations."""

    more: int
    count: int
    size: int
    rows: tuple[ListedRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Traced:
    """A call of the process was accepted out of its headroom."""

    device: int
    size: int
    call: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The program was interrupted: reject the allocation whose request has this frame's id, if it is paused."""


@dataclass(frozen=True, slots=True)
class Explained:
    """Why the allocation whose request has this frame's id is paused: one line for the user."""

    text: str


EXPECTED: Final = (1 << 32) - 1
"""In place of an epoll instance: the driver is about to make the descriptor."""
ALL: Final = EXPECTED - 1
"""Likewise, with size 0: the process has told a new scheduler of all that it told an earlier one."""


@dataclass(frozen=True, slots=True)
class Exported:
    """Others may have memory of row `device` by a descriptor, `size` bytes (0: not any more) by that `name`.

    The process's epoll instance `instance` of that `generation` knows the descriptor as `number`; EXPECTED: the driver
    is about to make it.
    """

    name: int
    size: int
    device: int
    instance: int
    number: int
    generation: int


InspectionMessage = List | Listed | Traced | Withdraw | Explained | Exported
