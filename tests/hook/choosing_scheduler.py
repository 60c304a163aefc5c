"""A scheduler that has chosen some of a host's devices, and grants whatever is asked for on them."""

import threading
from collections.abc import Sequence
from uuid import UUID

from scripted_scheduler import Peer, ScriptedScheduler

from convgpu.protocol.messages import (
    Accepted,
    Allocate,
    Context,
    ContextSize,
    DeviceRow,
    Hello,
    Observe,
    Observed,
    Query,
    Usage,
)
from convgpu.protocol.wire import ObservedFlag, PageFlag

GIB = 1 << 30


class ChoosingScheduler:
    """Answers whoever asks. `chosen` are rows of the devices, in the order of WELCOME; None: the user named them all.

    Args:
        scripted: where processes connect.
        uuids: of all devices, as NVML writes them.
        limit: on each chosen device, in bytes.
    """

    def __init__(self, scripted: ScriptedScheduler, uuids: Sequence[str], limit: int = GIB) -> None:
        self.chosen: list[int] | None = None
        self.hellos: list[Hello] = []
        self.observed = 0
        self._scripted = scripted
        self._uuids = [UUID(uuid.removeprefix("GPU-")).bytes for uuid in uuids]
        self._limit = limit
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer = self._scripted.accept_silent()
            except TimeoutError:
                continue
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: Peer) -> None:
        """Answer one process until it ends, or has been silent for as long as a test may take."""
        try:
            while True:
                self._answer(peer, *peer.receive())
        except (EOFError, OSError):
            return

    def _answer(self, peer: Peer, request: int, message: object) -> None:
        uuids = self._uuids if self.chosen is None else [self._uuids[row] for row in self.chosen]
        match message:
            case Observe(device, _):
                self.observed += 1
                flags = 0 if self.chosen is None else ObservedFlag.CHOSEN
                peer.send(Observed(self._limit if device in uuids else 0, 0, (), flags), request)
            case Hello():
                self.hellos.append(message)
                rows = tuple(DeviceRow(uuid, self._limit, 0) for uuid in uuids)
                peer.welcome(rows, 0 if self.chosen is None else PageFlag.CHOSEN)
            case Allocate(_, size):
                peer.send(Accepted(size, 0), request)
            case Context():
                peer.send(ContextSize(0), request)
            case Query():
                peer.send(Usage(self._limit, 0, 0), request)
