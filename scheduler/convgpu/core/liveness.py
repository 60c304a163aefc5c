"""Has a container ended? Three signals, one decision; pure.

No signal is reliable alone (docs/architecture.md, The end of a container): `docker cp` unmounts a running container, a
killed Engine unmounts nothing, a program may close its connections, and a list is old when it arrives.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from convgpu.protocol.engine_states import MAX_START_TIME, is_running


@dataclass(frozen=True, slots=True)
class Mount:
    """How often an id of the Engine is mounted, and since when (Unix seconds, of the newest)."""

    count: int
    since: float


@dataclass(frozen=True, slots=True)
class Listing:
    """What the Engine said of the containers with one volume: their states, and when it was asked (Unix seconds)."""

    asked: float
    states: tuple[str, ...]

    @property
    def runs(self) -> bool:
        """Does it list one that has processes?"""
        return any(map(is_running, self.states))


@dataclass(frozen=True, slots=True)
class LivenessDecision:
    """Does the container run, and which of its mounts are still believed?"""

    runs: bool
    mounts: Mapping[str, Mount]


def judge(
    mounts: Mapping[str, Mount], *, connected: bool, listing: Listing | None = None, since: float = 0.0, now: float
) -> LivenessDecision:
    """Weigh the signals.

    - Without a list the mounts decide: it runs while one is counted.
    - A list with a running container is believed, mounts or none, unless the last unmount (`since`) came after it.
    - A list without one contradicts the mounts that are older, unless a process is connected. While the container is
      listed at all, mounts of the last ten seconds are not contradicted: it may be about to start.

    Args:
        mounts: by the Engine's id.
        connected: a process of the container is connected, or lives without its connection.
        listing: what the Engine said, None when it was not asked.
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
    # A mount from the future was noted before the clock was set back: nothing protects it.
    kept = {name: mount for name, mount in mounts.items() if before < mount.since <= now}
    return LivenessDecision(bool(kept), kept)
