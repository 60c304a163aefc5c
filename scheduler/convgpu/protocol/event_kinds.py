"""Kinds of events, and the reasons for which allocations wait or are rejected: what history, logs and metrics name."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Self


class EventKind(StrEnum):
    """The kind of an event in the history; `description` is for documents."""

    description: str

    CREATED = "created", "Docker made the volume; `limits` if its options name them"
    MOUNTED = "mounted", "the container started"
    PLACED = "placed", "the scheduler chose the container's GPUs: `limits`, and in `reason` by which policy"
    DISPLACED = (
        "displaced",
        "a GPU that was chosen for the container is lost or drained (`reason`); if it holds nothing it is placed anew",
    )
    STARTED = "started", "a process of the container connected: `pid`, `program`"
    ACCEPTED = "accepted", "an allocation that needed the scheduler was granted at once"
    PAUSED = (
        "paused",
        "an allocation waits, and with it its thread; `reason`: why, `behind`: the containers that hold the memory",
    )
    GRANTED = "granted", "a paused allocation was granted, after `waited` seconds"
    REJECTED = (
        "rejected",
        "an allocation was refused: `limit`, `deadline`, `gang`, `device`, `displaced`, `driver` or `interrupted`",
    )
    RETURNED = "returned", "a process ended and gave back what it held"
    LIMITED = "limited", "an administrator changed the limits: `limits`; `by`: who"
    CHANGED = "changed", "an administrator changed the longest pause or the priority: `reason`; `by`: who"
    DRAINED = "drained", "an administrator stopped new grants on a GPU; `by`: who"
    UNDRAINED = "undrained", "an administrator allowed grants on a GPU again; `by`: who"
    POLICY = "policy", "an administrator chose another policy, of memory or of placement: `reason`; `by`: who"
    OVERUSED = "overused", "by the driver or by its hook the container holds `size` bytes, more than its limit"
    SUSPENDED = (
        "suspended",
        "the container stands still, and its memory may leave: `reason`: `asked`, `paused`, `idle` or `turn` (is over)",
    )
    EVICTED = "evicted", "memory of a suspended container went to the host"
    RESTORED = "restored", "memory of a container that resumes is on its device again"
    RESUMED = "resumed", "the container runs again with all its memory, `waited` seconds after it was suspended"
    BUSY = "busy", "the container did not stop: its work on the device did not end in time"
    STOPPED = (
        "stopped",
        (
            "the container was ended: it was above its limit (`reason`: `overuse`), has none (`unlimited`), or took "
            "what others were granted or have reserved (`taken`)"
        ),
    )
    ENDED = "ended", "the container's last mount and process are gone; `ran`: seconds since it started, `image`"
    REMOVED = "removed", "Docker removed the volume"

    def __new__(cls, value: str, description: str) -> Self:
        """Make the text that goes over the wire, with its description beside it."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.description = description
        return member


class RejectReason(StrEnum):
    """The reason why an allocation is rejected."""

    LIMIT = "limit"  # more than the container's limit
    DEADLINE = "deadline"  # it was paused for as long as its container's option `wait` allows
    DEVICE = "device"  # a device that the container has no limit on
    GANG = "gang"  # a container of its gang did not come
    DISPLACED = "displaced"  # the device that was chosen for it was lost or drained, and the container held nothing
    INTERRUPTED = "interrupted"  # its program was interrupted while it was paused
    DRIVER = "driver"  # the driver refused memory that the scheduler had granted


class SuspendReason(StrEnum):
    """The reason why a container was suspended."""

    ASKED = "asked"  # an administrator did
    PAUSED = "paused"  # it waits in an allocation, so that it loses nothing
    IDLE = "idle"
    TURN = "turn"  # its quantum on the card was over, and another container waited


class WaitReason(StrEnum):
    """The reason why a paused allocation is not served."""

    MEMORY = "memory"  # not enough is free
    TURN = "turn"  # it is held back behind an overdue one
    CARD = "card"  # it is granted, and its container waits for its turn to be on the card
    GANG = "gang"  # containers of its gang have not come
    SAFETY = "safety"  # it fits, but then not every container could end
    DRAINED = "drained"
    RECOVERING = "recovering"


WAIT_TEXTS: Final[Mapping[str, str]] = {
    WaitReason.MEMORY: "not enough is free",
    WaitReason.TURN: "others come first",
    WaitReason.CARD: "it waits for its card turn",
    WaitReason.SAFETY: "it would fit, but then not everybody could end",
    WaitReason.GANG: "others of its gang have not come",
    WaitReason.DRAINED: "the GPU is drained",
    WaitReason.RECOVERING: "the scheduler has just started",
}
"""Why an allocation waits, as people read it."""
