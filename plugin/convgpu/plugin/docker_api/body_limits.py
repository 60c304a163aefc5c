"""Limits on a request's body: its size, and the time between its pieces."""

from typing import Final, Protocol

# Bytes of a body that are understood. An Engine shows at most 4 MiB of a call, a third more as base64.
MAX_BODY: Final = 16 << 20
# Bytes that are read and thrown away, so that the client reads the refusal before its connection is closed.
_MAX_DISCARDED: Final = 64 << 20
_CHUNK: Final = 64 << 10
# Seconds without a further byte of a request that has begun; the Engine sends each at once, from its memory.
READ_TIMEOUT: Final = 10


class Stream(Protocol):
    """A body that is being received."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, none at the end."""
        ...


def discard(stream: Stream) -> None:
    """Read the rest of a body that is too long."""
    left = _MAX_DISCARDED
    while left > 0 and (chunk := stream.read(_CHUNK)):
        left -= len(chunk)
