"""What administrators ask processes themselves: their single allocations, and their calls."""

from dataclasses import dataclass

from convgpu.daemon.sessions.allocation_lister import AllocationLister
from convgpu.daemon.sessions.call_tracer import CallTracer
from convgpu.daemon.sessions.session import Session
from convgpu.protocol.inspection.messages import Listed, Traced


@dataclass(frozen=True, slots=True)
class Inspection:
    """The two ways of asking; both drop what nobody asked for."""

    lister: AllocationLister
    tracer: CallTracer

    def receive(self, session: Session, request: int, message: Listed | Traced) -> None:
        """Take what a process says."""
        if isinstance(message, Listed):
            self.lister.receive(session, request, message)
        else:
            self.tracer.receive(session, message)
