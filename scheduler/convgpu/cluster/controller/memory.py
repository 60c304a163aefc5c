"""How much memory of a card a kind of work needs, by the peaks of its runs. Pure."""

from collections.abc import Sequence
from typing import Final

from convgpu.cluster.shares import shards_for

LEAST_RUNS: Final = 3  # before a size that a user named is corrected
LEAST_AUTO: Final = 1  # where the user named none
MARGIN: Final = 1.10


def needed(peaks: Sequence[int], granule: int, *, auto: bool) -> int | None:
    """Return the shards of a card that the next run needs: the highest peak and a margin; None: not known yet.

    Args:
        peaks: bytes, of runs that completed.
        granule: bytes of a shard.
        auto: whether the user named no size.
    """
    if len(peaks) < (LEAST_AUTO if auto else LEAST_RUNS):
        return None
    return max(1, shards_for(int(max(peaks) * MARGIN), granule))


def corrected(asked: int, now: int, peaks: Sequence[int], granule: int, *, auto: bool) -> int | None:
    """Return the shards that a waiting job should ask for in place of what it asks for now; None: leave it.

    Never more than its user asked for.
    """
    shards = needed(peaks, granule, auto=auto)
    if shards is None:
        return None
    shards = min(shards, asked)
    return shards if shards != now else None
