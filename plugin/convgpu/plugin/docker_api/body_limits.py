"""How much of a request is read, and how long it is waited for."""

from typing import Final, Protocol

# Bytes of a body that are understood. An Engine shows at most 4 MiB of a call, a third more as base64.
MOST: Final = 16 << 20
# Bytes that are read and thrown away, so that the client hears the reason before its connection is closed.
_PATIENCE: Final = 64 << 20
_PIECE: Final = 64 << 10
# Seconds without a further byte of a request that has begun; the Engine sends each at once, from its memory.
SILENCE: Final = 10


class Stream(Protocol):
    """A body that is being received."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, none at the end."""
        ...


def discard(stream: Stream) -> None:
    """Read what is left of a body that is too long."""
    left = _PATIENCE
    while left > 0 and (piece := stream.read(_PIECE)):
        left -= len(piece)
