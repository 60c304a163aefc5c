"""Bytes in, messages out: the framing, without I/O."""

from typing import Final

from convgpu.protocol import wire
from convgpu.protocol.messages import MalformedMessageError, Message, unpack
from convgpu.protocol.wire import Failure, Kind

_HEADER: Final = wire.layout("header")
_KINDS: Final = frozenset(int(kind) for kind in Kind)


class ProtocolError(Exception):
    """What came is not of this protocol; the connection cannot go on.

    Attributes:
        failure: what to tell the other side.
        request: `id` of the frame, 0 when it could not be read.
    """

    def __init__(self, failure: Failure, text: str, request: int = 0) -> None:
        super().__init__(text)
        self.failure = failure
        self.request = request


class MessageStream:
    """Collects the bytes of one connection and gives out whole messages.

    After a ProtocolError the stream is not to be fed again: where the next frame begins is unknown.
    """

    def __init__(self, max_frame: int = wire.MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._bytes = bytearray()

    def receive(self, data: bytes) -> list[tuple[int, Message]]:
        """Take `data` and return the messages that are complete now, each with its `id`. Raises as `take`."""
        self.feed(data)
        messages: list[tuple[int, Message]] = []
        while (message := self.take()) is not None:
            messages.append(message)
        return messages

    def feed(self, data: bytes) -> None:
        """Add bytes behind those that came before."""
        self._bytes += data

    def __len__(self) -> int:
        """Return how many bytes no message was made of yet."""
        return len(self._bytes)

    def take(self) -> tuple[int, Message] | None:
        """Return the next message with its `id`; None when it is not complete yet.

        Raises:
            ProtocolError: another version, an impossible size, an unknown kind or a malformed body.
        """
        if len(self._bytes) < _HEADER.size:
            return None
        size, version, number, request = _HEADER.unpack_from(self._bytes)
        self._check(size, version, number, request)
        if len(self._bytes) < size:
            return None
        body = bytes(self._bytes[_HEADER.size : size])
        del self._bytes[:size]
        try:
            return request, unpack(Kind(number), body)
        except MalformedMessageError as error:
            raise ProtocolError(Failure.MALFORMED, str(error), request) from error

    def _check(self, size: int, version: int, number: int, request: int) -> None:
        """Judge a header before its body comes, so that nobody can make us collect bytes for nothing."""
        if version != wire.VERSION:
            text = (
                f"protocol version {version}, this scheduler speaks {wire.VERSION}: restart the container, "
                "so that it gets the library that belongs to the installed plugin"
            )
            raise ProtocolError(Failure.VERSION, text, request)
        if not _HEADER.size <= size <= self._max_frame:
            text = f"a frame of {size} bytes: {_HEADER.size} to {self._max_frame} are allowed"
            raise ProtocolError(Failure.MALFORMED, text, request)
        if number not in _KINDS:
            raise ProtocolError(Failure.MALFORMED, f"unknown kind {number}", request)
