"""Effects about memory that leaves, as frames for the process; pure."""

from typing import Final

from convgpu.core.residency import events as r
from convgpu.daemon.sessions.session import Session
from convgpu.protocol.residency import messages as m

ORDER_ID: Final = 1 << 63  # of a frame that the scheduler starts

Order = r.Stop | r.Step | r.Evict | r.Restore | r.Go | r.Watch


def message_of(order: Order, session: Session) -> m.ResidencyMessage:
    """Return the frame that tells a process what to do."""
    match order:
        case r.Stop(epoch=epoch, deadline=deadline):
            return m.Stop(epoch, round(deadline * 1000))
        case r.Step(epoch=epoch):
            return m.Step(epoch, 1)
        case r.Evict(epoch=epoch, device=device, size=size):
            return m.Evict(epoch, session.rows.index(device), size)
        case r.Restore(epoch=epoch, device=device, size=size):
            return m.Restore(epoch, session.rows.index(device), size)
        case r.Go(epoch=epoch):
            return m.Go(epoch)
        case r.Watch(on=on):
            return m.Watch(int(on))
