"""What one connection of an administrator may have made at once."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from convgpu.daemon.admin_api.socket import AdminSocket
from convgpu.daemon.transport.shares import Shares
from convgpu.protocol import messages as m
from convgpu.protocol.messages import MAX_ADMIN_FRAME, pack
from convgpu.protocol.stream import MessageStream

Reply = Callable[[bytes], None]


class Later:
    """Answers what begins with `n` now, and the rest when it is told to; keeps what it was asked.

    Attributes:
        replies: to what was not answered, in order.
    """

    def __init__(self) -> None:
        self.asked = list[bytes]()
        self.replies = list[Reply]()

    def answer(self, body: bytes, reply: Reply) -> None:
        self.asked.append(body)
        if body.startswith(b"n"):
            reply(body)
        else:
            self.replies.append(reply)


async def _turns() -> None:
    for _ in range(300):
        await asyncio.sleep(0)


def read(client: socket.socket, stream: MessageStream) -> Iterator[int]:
    try:
        stream.feed(client.recv(1 << 16))
    except BlockingIOError:
        return
    while (received := stream.take()) is not None:
        yield received[0]


def test_no_more_than_64_answers_are_made_at_once_for_one_connection(tmp_path: Path) -> None:
    async def ask() -> None:
        shares = Shares(asyncio.get_running_loop(), budget=1)
        server, stream = Later(), MessageStream(MAX_ADMIN_FRAME)
        admin = AdminSocket(shares.of(""), tmp_path / "s", tmp_path, server)
        with socket.socket(socket.AF_UNIX) as client, socket.socket(socket.AF_UNIX) as other:
            for one in (client, other):
                one.connect(str(tmp_path / "s"))
                one.setblocking(False)
            bodies = [b"now"] * 100 + [b"later"] * 200 + [b"now"] * 100
            client.sendall(b"".join(pack(m.Admin(body), number) for number, body in enumerate(bodies)))
            await _turns()
            assert len(server.asked) == 164
            other.sendall(pack(m.Admin(b"another"), 1))
            client.sendall(pack(m.Admin(b"last"), 400))
            await _turns()
            assert server.asked[164:] == [b"another"]
            server.replies.pop(0)(b"")
            await _turns()
            assert server.asked[165:] == [b"later"]
            answered = list(read(client, stream))
            while server.replies:
                server.replies.pop(0)(b"")
                await _turns()
                answered += read(client, stream)
            assert server.asked[165:] == [*bodies[164:], b"last"]
            assert sorted(answered) == list(range(401))  # each has the number of its question
        await _turns()
        admin.close()
        shares.close()

    asyncio.run(ask())
