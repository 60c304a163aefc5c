"""A process that takes part in residency: all ends of its connections."""

from dataclasses import dataclass

from hooked_program import SUCCESS, Program
from scripted_porter import Frame, ScriptedPorter
from scripted_scheduler import Page, Peer

from convgpu.protocol.messages import Message
from convgpu.protocol.residency import messages as r
from convgpu.protocol.wire import Outcome

ORDER = 1 << 63
DEADLINE = 5000


@dataclass
class Elastic:
    """All ends of an elastic process. Orders are numbered as the scheduler would."""

    program: Program
    peer: Peer
    page: Page
    context: int
    porter: ScriptedPorter
    orders: int = 0

    def order(self, message: Message) -> None:
        self.orders += 1
        self.peer.send(message, ORDER | self.orders)

    def told(self) -> Message:
        request, message = self.peer.receive()
        assert request == 0
        return message

    def carrier(self) -> None:
        """Give the process a new carrier."""
        self.orders += 1
        with self.porter.new_carrier() as end:
            self.peer.send_descriptor(r.Carrier(1), end.fileno(), ORDER | self.orders)

    def call(self, command: str, thread: int = 0) -> int:
        """Let the program make a call that succeeds; return the first thing that it wrote, or 0."""
        result = self.program.call(command, thread)
        assert result.code == SUCCESS, command
        return result.number if result.values else 0

    def filled(self, size: int, value: int) -> int:
        """Allocate and fill; return the address."""
        address = self.call(f"alloc {size}")
        self.call(f"fill {address} {size} {value}")
        return address

    def stop(self, epoch: int, deadline: int = DEADLINE) -> r.Stopped:
        self.order(r.Stop(epoch, deadline))
        return self.stopped(epoch)

    def stopped(self, epoch: int) -> r.Stopped:
        """Return the answer to STOP or STEP, before which a process that is stopped tells where its memory is.

        A RUN of the stop before comes first when the program called while GO was on its way.
        """
        answer = self.told()
        while isinstance(answer, r.Run) and answer.epoch < epoch:
            answer = self.told()
        if isinstance(answer, r.State):
            assert (answer.epoch, answer.open) == (epoch, 0)
            answer = self.told()
        assert isinstance(answer, r.Stopped), answer
        assert answer.epoch == epoch
        return answer

    def drain(self, epoch: int) -> None:
        assert self.stop(epoch).outcome == Outcome.DRAINED

    def move(self, order: r.Evict | r.Restore, pieces: int) -> list[Frame]:
        """Let so many pieces move, all that there are, and see that their bytes are told."""
        self.order(order)
        frames = [self.porter.serve() for _piece in range(pieces)]
        size = told = sum(frame.size for frame in frames)
        while True:
            report = self.told()
            assert isinstance(report, r.Evicted | r.Restored)
            assert (report.epoch, report.device) == (order.epoch, order.device)
            told -= report.size
            if told <= 0:
                break
        assert (told, size >= min(order.size, size)) == (0, True)
        return frames
