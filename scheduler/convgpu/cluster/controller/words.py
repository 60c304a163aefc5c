"""Why a job is where it is, in words for `convgpu jobs` and Slurm's AdminComment. Pure."""

from convgpu.cluster.controller.record import OURS, JobRecord
from convgpu.protocol.sizes import format_size


def comment(job: JobRecord, level: int, expected: float | None, granule: int) -> str:
    """Return the comment of a job; empty where there is nothing to say.

    Args:
        job: as it is remembered.
        level: of its service; 0 is served first.
        expected: seconds that it is expected to run, by earlier runs; None: not known.
        granule: bytes of a shard.
    """
    parts = []
    if job.started is None and job.displacer is not None:
        parts.append(f"made room for job {job.displacer} after {duration(job.run)}, and goes on when GPUs are free")
    if job.started is None and level > 0 and expected is None:
        parts.append(f"had {duration(job.seconds - job.forgiven)}, so jobs that had less go first")
    if expected is not None:
        parts.append(f"runs for {duration(expected)}, as earlier runs of it did")
    if job.retried and job.shards == job.asked:
        parts.append("failed with less memory than it asked for, and has all of that now")
    elif job.asked is not None and job.shards is not None and job.shards < job.asked:
        asked = "a whole GPU" if job.auto else format_size(job.asked * granule)
        parts.append(f"asks for {format_size(job.shards * granule)} in place of {asked}, as earlier runs of it needed")
    return OURS + "; ".join(parts) if parts else ""


def duration(seconds: float) -> str:
    """Return a time in one unit, as people say it."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
