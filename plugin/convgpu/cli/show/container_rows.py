"""Containers as rows of a table, and as data. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import to_builtins

from convgpu.cli.connect.named_containers import NamedContainer, shortened
from convgpu.cli.terminal.output import Column, age
from convgpu.protocol.event_kinds import WAIT_TEXTS, WaitReason
from convgpu.protocol.records import Container, Device, Devices, Share, Waiting
from convgpu.protocol.sizes import format_size

COLUMNS: Final = (
    Column("CONTAINER", shrinks=True),
    Column("IMAGE", shrinks=True, optional=1),
    Column("USER", sparse=True, optional=2),
    Column("GPU", right=True, optional=5),
    Column("LIMIT", right=True, optional=4),
    Column("GRANT", right=True, optional=3),
    Column("USAGE", right=True),
    Column("ON CARD", right=True, sparse=True),
    Column("OUT", right=True, sparse=True),
    Column("STATE"),
    Column("SINCE", right=True),
)

_STATES: Final[Mapping[str, str]] = {"waiting": "waits for turn"}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of `convgpu ps`: cells in the order of COLUMNS, or one text over all of them."""

    cells: tuple[str, ...] = ()
    note: str = ""
    style: str = ""


def rows(listed: Sequence[NamedContainer], devices: Devices, now: float) -> list[Row]:
    """Return a row per container and GPU, and below it a note for each allocation that waits."""
    by_uuid = {device.uuid: device for device in devices.devices}
    names = {entry.container.name: entry.name for entry in listed}
    result: list[Row] = []
    for entry in listed:
        container = entry.container
        style = {"waiting": "yellow", "ended": "dim"}.get(container.state, "")
        since = container.created if container.since is None else container.since
        head: tuple[str, ...] = (entry.name, entry.image, entry.user)
        tail: tuple[str, str] = (state_of(container), age(now - since))
        for share in container.devices:
            sizes = (format_size(size) for size in (share.limit, share.grant, share.usage))
            cells = (*head, _index(share.uuid, by_uuid), *sizes, *places(container, share), *tail)
            result.append(Row(cells, style=style))
            head, tail = ("", "", ""), ("", "")
        if not container.devices:
            result.append(Row((*head, *_unplaced(container), "-", "-", "", "", *tail), style=style))
        result += [Row(note=f"  {note}", style=style) for note in notes(container, by_uuid, names, now)]
    return result


def notes(container: Container, devices: Mapping[str, Device], names: Mapping[str, str], now: float) -> list[str]:
    """Return a line for each paused allocation, and for each limit that is still being lowered."""
    lines = [waits(row, devices, names, now) for row in container.waiting]
    lines += _displaced(container, devices)
    lines += _away(container, devices, names, now)
    lines += _beyond(container, devices)
    lowered = [share for share in container.devices if share.target is not None]
    return lines + [
        f"limit on GPU {_index(share.uuid, devices)} goes down to {format_size(share.target or 0)} as memory is freed"
        for share in lowered
    ]


def _beyond(container: Container, devices: Mapping[str, Device]) -> list[str]:
    """Return a line for a container of managed memory: what it has alone, and how much more it may have."""
    if container.backing != "unified":
        return []
    lines = []
    for share in container.devices:
        gpu, capacity = _index(share.uuid, devices), devices[share.uuid].capacity if share.uuid in devices else 0
        more = max(share.limit - capacity, 0)
        rest = f"up to {format_size(more)} more on the host" if more else "and would fit without backing=unified"
        lines.append(f"unified memory: has GPU {gpu} alone while it runs, {rest}")
    return lines


def _displaced(container: Container, devices: Mapping[str, Device]) -> list[str]:
    """Return a line for each GPU that was chosen for the container and is lost or drained now."""
    chosen = container.placement.uuids if container.placement is not None and container.placement.policy else ()
    lines = []
    for device in (devices[uuid] for uuid in chosen if uuid in devices):
        if device.health != "ok" or device.drained:
            state = "does not answer" if device.health != "ok" else "is drained"
            lines.append(f"GPU {device.index}, chosen for it, {state}: once it holds nothing there, it gets another")
    return lines


def without_limit(devices: Iterable[Device]) -> list[str]:
    """Return a line for each container that holds memory of a GPU where it has no limit, and host program to end."""
    lines = []
    for device in devices:
        for one in device.unlimited:
            if one.pid:
                text = f"the host's program {one.pid} holds {format_size(one.size)} of GPU {device.index}"
                lines += [f"{text}, which its user may not open, so it is ended"] if one.kept == "" else []
                continue
            if one.is_left:
                continue
            why = "" if one.kept is None else f"; {one.kept or 'nothing permits it, so CONVGPU_OVERUSE=stop ends it'}"
            # Within the limit that its first session will have, it is not judged.
            has = " without a limit" if one.id else ", where its limit does not count yet: it uses no hook"
            lines.append(f"container {one.name:.12} holds {format_size(one.size)} of GPU {device.index}{has}{why}")
    return lines


def left_behind(devices: Iterable[Device]) -> list[str]:
    """Return a line for each container that has ended and whose memory others keep."""
    return [
        f"{shortened(one.name)} left {format_size(one.size)} of GPU {device.index} behind: {one.kept}"
        for device in devices
        for one in device.unlimited
        if one.is_left
    ]


def state_of(container: Container) -> str:
    """Return the state of a container in a word or two; of one whose memory can leave, what it does on its card."""
    if container.residency in {None, "running"} or container.state in {"created", "ended"}:
        return container.state
    if container.residency == "stopped" and container.suspended:
        return "suspended"
    return _STATES.get(container.residency or "", container.residency or "")


def places(container: Container, share: Share) -> tuple[str, str]:
    """Return what of a container's memory is on the card and what on the host; nothing if it never leaves."""
    if container.residency is None:
        return "", ""
    return format_size(max(share.usage - share.out, 0)), format_size(share.out)


def _away(container: Container, devices: Mapping[str, Device], names: Mapping[str, str], now: float) -> list[str]:
    """Return a line for each GPU whose memory of the container is on the host, or that it waits for."""
    if container.residency in {None, "running"}:
        return []
    state = {"busy": "did not stop in time, and runs on", "waiting": "waits for its card turn"}.get(
        container.residency or "", "suspended" if container.suspended else str(container.residency)
    )
    turn = container.turn
    if turn is not None and container.residency == "waiting":
        state += f" since {age(now - turn.since)}" if turn.since else ""
        others = ", ".join(names.get(name, shortened(name)) for name in turn.behind)
        state += f", behind {others}" if others else ""
        state += f", gets it within {age(turn.due - now)}" if turn.due is not None else ""
    elif container.residency == "stopped" and not container.suspended:
        state = "stands still until it has work and its card turn"
    return [
        f"{state}: {format_size(share.out)} on the host, {format_size(max(share.usage - share.out, 0))} on GPU "
        f"{_index(share.uuid, devices)}"
        for share in container.devices
    ]


def waits(row: Waiting, devices: Mapping[str, Device], names: Mapping[str, str], now: float) -> str:
    """Return why an allocation waits, and which containers hold what it waits for."""
    text = f"waits {age(now - row.since)} for {format_size(row.size)} on GPU {_index(row.uuid, devices)}: "
    health = devices[row.uuid].health if row.uuid in devices else "ok"
    text += health if health != "ok" else WAIT_TEXTS.get(row.reason, row.reason)
    if row.reason == WaitReason.MEMORY and row.uuid in devices and devices[row.uuid].external:
        text += f", {format_size(devices[row.uuid].external)} are external memory"
    others = ", ".join(names.get(name, shortened(name)) for name in row.behind)
    if row.reason == WaitReason.TURN and row.free and others:
        text += f": {format_size(row.free)} are free and kept for {others}, which this container's limit could delay"
    else:
        text += f" ({format_size(row.free)} free)" if row.free else ""
        text += f", held by {others}" if others else ""
    if row.ahead:
        text += f", {row.ahead} ahead"
    if row.deadline is not None:
        text += f", rejected in {age(row.deadline - now)}"
    if row.estimate is not None:
        text += f", about {age(row.estimate)} more by past runs (an estimate)"
    return text


def _unplaced(container: Container) -> tuple[str, str]:
    """Return GPU and limit of a container without accounts: `any`, while the scheduler has not chosen its GPUs."""
    placement = container.placement
    if placement is None or not placement.limits:
        return "-", "-"
    limits = sorted(set(placement.limits.values()))
    gpus = f"any:{placement.count}" if placement.count > 1 else "any"
    return gpus, format_size(limits[0]) if len(limits) == 1 else "-"


def _index(uuid: str, devices: Mapping[str, Device]) -> str:
    return str(devices[uuid].index) if uuid in devices else uuid


def as_data(listed: Sequence[NamedContainer], devices: Devices) -> list[dict[str, Any]]:
    """Return what `convgpu ps --json` and `convgpu inspect --json` print; the help text describes it."""
    index = {device.uuid: device.index for device in devices.devices}
    return [
        {
            "volume": entry.container.name,
            "containers": [to_builtins(found) for found in entry.engine],
            "user": entry.user,
            "state": entry.container.state,
            "since": entry.container.since,
            "created": entry.container.created,
            "priority": entry.container.priority,
            "admit": entry.container.admit,
            "gang": entry.container.gang,
            "residency": entry.container.residency,
            "suspended": entry.container.suspended,
            "turn": to_builtins(entry.container.turn),
            "gpus": [{"index": index.get(row.uuid), **to_builtins(row)} for row in entry.container.devices],
            "placement": to_builtins(entry.container.placement),
            "waiting": [to_builtins(row) for row in entry.container.waiting],
            "processes": [to_builtins(row) for row in entry.container.sessions],
        }
        for entry in listed
    ]
