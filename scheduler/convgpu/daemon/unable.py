"""A scheduler that could not start: it answers everybody with the reason, and ends so that it is tried again."""

import asyncio
import json
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from convgpu.daemon.admin_api.socket import AdminSocket
from convgpu.daemon.containers.folders import make_staging
from convgpu.daemon.system.directory_lock import DirectoryLock
from convgpu.daemon.transport.shares import ADMINISTRATORS, Shares
from convgpu.protocol.layout import ADMIN_SOCKET_FILE

log = logging.getLogger(__name__)

# Seconds; longer than a supervisor waits before it believes that its child would end at once again (MIN_UPTIME).
LIFETIME: Final = 15.0


class Refusal:
    """Answers each administration request with the reason."""

    def __init__(self, reason: str) -> None:
        text = f"the scheduler cannot start: {reason}"
        self._answer = json.dumps({"error": {"code": "failed", "text": text}}).encode()

    def answer(self, _body: bytes, reply: Callable[[bytes], None]) -> None:
        """Give `reply` the reason."""
        reply(self._answer)


def explain_failure(directory: Path, reason: str, lifetime: float = LIFETIME) -> None:
    """Answer with the reason until a signal comes or the lifetime is over.

    Raises:
        OSError: another scheduler works in the directory, or no socket can be made there.
    """
    asyncio.run(_explain(directory, reason, lifetime))


async def _explain(directory: Path, reason: str, lifetime: float) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    lock = DirectoryLock(directory)
    shares = Shares(loop)
    share, path = shares.of(ADMINISTRATORS), directory / ADMIN_SOCKET_FILE
    socket = AdminSocket(share, path, make_staging(directory), Refusal(reason))
    try:
        await asyncio.wait_for(stop.wait(), lifetime)
    except TimeoutError:
        log.info("tries again to start")
    finally:
        socket.close()
        shares.close()
        lock.release()
