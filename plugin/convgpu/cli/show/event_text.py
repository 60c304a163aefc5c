"""The scheduler's events as text. Pure."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from msgspec import to_builtins

from convgpu.cli.connect.named_containers import shortened
from convgpu.protocol.event_kinds import WAIT_TEXTS, EventKind, SuspendReason
from convgpu.protocol.records import Event
from convgpu.protocol.sizes import format_size

STYLES: Final[Mapping[str, str]] = {EventKind.PAUSED: "yellow", EventKind.REJECTED: "red", EventKind.GRANTED: "green"}

_WHY_SUSPENDED: Final[Mapping[str, str]] = {
    SuspendReason.ASKED: ", as it was asked to",
    SuspendReason.PAUSED: ", because it waits",
    SuspendReason.IDLE: ", because it is idle",
    SuspendReason.TURN: ", because its card turn is over",
}


def describe(event: Event, gpus: Mapping[str, int], names: Mapping[str, str] | None = None) -> str:
    """Return the text of an event, without its time and container.

    Args:
        event: of the scheduler; the text of an unknown kind is its name.
        gpus: index by UUID.
        names: of containers by volume.
    """
    size = format_size(event.size) if event.size is not None else "memory"
    where = f" on GPU {gpus.get(event.uuid, event.uuid)}" if event.uuid else ""
    call = f" ({event.call})" if event.call else ""
    waited = f" after {event.waited:.1f}s" if event.waited is not None else ""
    why = f": {event.reason}" if event.reason else ""
    who = f"{event.program or 'a process'} (pid {event.pid})" if event.pid else event.program or "a process"
    limits = ", ".join(f"{format_size(limit)} on GPU {gpus.get(u, u)}" for u, limit in (event.limits or {}).items())
    texts: dict[str, str] = {
        EventKind.CREATED: f"created, limit {limits}" if limits else "created",
        EventKind.MOUNTED: "started",
        EventKind.PLACED: f"placed, {limits}" + (f", by {event.reason}" if event.reason else ""),
        EventKind.DISPLACED: f"GPU {gpus.get(event.uuid or '', event.uuid)}, which was chosen for it, "
        + ("does not answer" if event.reason == "lost" else "was drained"),
        EventKind.STARTED: f"{who} connected",
        EventKind.ACCEPTED: f"got {size}{where}{call}",
        EventKind.PAUSED: f"PAUSED, waits for {size}{where}{call}{_why_paused(event, names)}",
        EventKind.GRANTED: f"goes on{waited} with its {size}{where}",
        EventKind.REJECTED: f"REJECTED{waited}, wanted {size}{where}{call}{why}",
        EventKind.RETURNED: f"gave {size} back{where}",
        EventKind.ENDED: f"ended after {event.ran:.1f}s" if event.ran is not None else "ended",
        EventKind.REMOVED: "removed",
        EventKind.OVERUSED: f"holds {size}{where}, more than its limit",
        EventKind.SUSPENDED: f"stands still{_WHY_SUSPENDED.get(event.reason or '', '')}: its memory may leave",
        EventKind.EVICTED: f"{size} went to the host{where}",
        EventKind.RESTORED: f"{size} came back{where}",
        EventKind.RESUMED: f"runs again{waited}",
        EventKind.BUSY: "did not stop: its work on the GPU goes on",
        EventKind.STOPPED: f"was stopped{why}",
        **_describe_changes(event, where, limits),
    }
    return texts.get(event.kind, f"{event.kind}{where}{why}")


def _describe_changes(event: Event, where: str, limits: str) -> dict[str, str]:
    """Return the texts of what people change, with who did."""
    by = f", by {event.by}" if event.by else ""
    return {
        EventKind.LIMITED: (f"limit is now {limits}" if limits else "limit changed") + by,
        EventKind.CHANGED: f"has {event.reason} now{by}",
        EventKind.DRAINED: f"gives no new memory{where}{by}",
        EventKind.UNDRAINED: f"gives memory again{where}{by}",
        EventKind.POLICY: f"policy is now {event.reason}{by}",
    }


def _why_paused(event: Event, names: Mapping[str, str] | None) -> str:
    """Return why an allocation was paused; an older scheduler's event does not say."""
    why = f": {WAIT_TEXTS.get(event.reason, event.reason)}" if event.reason else ""
    behind = ", ".join((names or {}).get(name) or shortened(name) for name in event.behind)
    return why + (f", held by {behind}" if behind else "")


def format_line(event: Event, names: Mapping[str, str], gpus: Mapping[str, int], clock: Callable[[float], str]) -> str:
    """Return the line for an event; `names`: of containers by volume, `clock`: how a time is written."""
    container = event.container or ""
    name = names.get(container, shortened(container)) or "-"
    return f"{clock(event.time)}  {name:<16}  {describe(event, gpus, names)}"


def time_of_day(seconds: float) -> str:
    """Return a Unix time as this machine's time of day."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%H:%M:%S")


def date_and_time(seconds: float) -> str:
    """Return a Unix time as this machine's date and time."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def as_data(event: Event, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the event as data, with the container's name for people."""
    data: dict[str, Any] = to_builtins(event)
    if event.container is not None:
        data["name"] = names.get(event.container, event.container)
    return data
