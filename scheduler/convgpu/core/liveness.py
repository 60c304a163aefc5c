"""Liveness: three signals decide whether a container runs; pure.

No signal is reliable alone (docs/architecture.md, The end of a container): `docker cp` unmounts a running container, a
killed Engine unmounts nothing, a program may close its connections, and a list is outdated when it arrives.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from convgpu.protocol.engine_container import MAX_START_TIME, is_running


@dataclass(frozen=True, slots=True)
class Mount:
    """The mounts under one id of the Engine: their number, and the time of the newest in Unix seconds."""

    count: int
    since: float


@dataclass(frozen=True, slots=True)
class Listing:
    """The Engine's states of the containers with one volume, and the time of the query in Unix seconds."""

    asked: float
    states: tuple[str, ...]

    @property
    def runs(self) -> bool:
        """Whether a listed container has processes."""
        return any(map(is_running, self.states))


@dataclass(frozen=True, slots=True)
class LivenessDecision:
    """Whether the container runs, and its valid mounts."""

    runs: bool
    mounts: Mapping[str, Mount]


def evaluate(
    mounts: Mapping[str, Mount], *, connected: bool, listing: Listing | None = None, since: float = 0.0, now: float
) -> LivenessDecision:
    """Decide from the signals whether a container runs.

    - Without a list the mounts decide: it runs while there is one.
    - A list with a running container counts, with or without mounts, unless the container's state changed after it
      (`since`, the last unmount).
    - A list without a running container ends older mounts, unless a process is connected. While it lists the container
      at all, mounts of the last ten seconds stay: the container may be about to start.

    Args:
        mounts: by the Engine's id.
        connected: a process of the container is connected, or lives without its connection.
        listing: the Engine's answer, None when it was not asked.
        since: when the container came into its present state, Unix seconds.
        now: Unix seconds.
    """
    if listing is None:
        return LivenessDecision(bool(mounts), mounts)
    if listing.runs:
        return LivenessDecision(bool(mounts) or since < listing.asked, mounts)
    if connected:
        return LivenessDecision(runs=True, mounts=mounts)
    before = listing.asked - (MAX_START_TIME if listing.states else 0.0)
    # A mount from the future was recorded before the clock was set back, and is not valid.
    valid = {name: mount for name, mount in mounts.items() if before < mount.since <= now}
    return LivenessDecision(bool(valid), valid)
