"""Why a job ended whose container was stopped for its use of a GPU, as the AdminComment of Slurm's accounting. Pure."""

from collections.abc import Sequence
from typing import Final

from convgpu.cluster.controller.record import OURS
from convgpu.protocol.event_kinds import EventKind
from convgpu.protocol.records import Container, Event
from convgpu.protocol.sizes import format_size

KINDS: Final = (EventKind.OVERUSED, EventKind.STOPPED)


def comment(node: str, containers: Sequence[Container], events: Sequence[Event]) -> str:
    """Return what to say of a job; empty where none of its containers was stopped for its use (decision 168).

    Args:
        node: on which they ran.
        containers: of the job.
        events: of the KINDS, of these and other containers.
    """
    limits = {one.name: {share.uuid: share.limit for share in one.devices} for one in containers}
    stopped = {event.container for event in events if event.kind == EventKind.STOPPED and event.reason == "overuse"}
    for event in reversed(events):
        if event.kind == EventKind.STOPPED and event.reason == "taken" and event.container in limits:
            return f"{OURS}ended on {node}: it took, past the hook, what others were granted or have reserved"
        if event.kind == EventKind.OVERUSED and event.container in stopped & limits.keys():
            limit = limits[event.container or ""].get(event.uuid or "", 0)
            used = f"{format_size(event.size or 0)} of a GPU, more than its {format_size(limit)}"
            return f"{OURS}ended on {node}: it held {used}"
    return ""
