"""The jobs that Slurm has, as records."""

from collections.abc import Sequence

from convgpu.cli.cluster.slurm_client import call
from convgpu.cli.terminal.errors import Refused, Unavailable
from convgpu.cluster import listing, peaks


def jobs(*words: str) -> list[listing.Job]:
    """Return the jobs that `squeue` lists with these options."""
    return _read(call("squeue", "--json", *words))


def described(numbers: Sequence[int]) -> list[listing.Job]:
    """Return those of these jobs that Slurm knows, also ended ones."""
    try:
        return jobs("--states=all", f"--jobs={','.join(map(str, numbers))}")
    except Refused as error:
        if "Invalid job id" in error.message:  # of one job; of several Slurm leaves out those that it does not know
            return []
        raise


def job(number: int) -> listing.Job:
    """Return one job, also one that has ended a while ago.

    Raises:
        Refused: there is none.
    """
    try:
        found = _read(call("scontrol", "show", "job", str(number), "--json"))
    except Refused as error:
        if "Invalid job id" in error.message:
            raise _unknown(number) from error
        raise
    if not found:
        raise _unknown(number)
    return found[0]


def explained(found: Sequence[listing.Job]) -> list[listing.Job]:
    """Return the same jobs, those that failed with what the Epilog wrote about them, where Slurm has accounting."""
    failed = [str(job.job_id) for job in found if job.state == "failed"]
    if not failed:
        return list(found)
    try:
        told = call("sacct", "-X", "-n", "-P", "-o", "JobIDRaw,AdminComment", "-j", ",".join(failed))
    except (Refused, Unavailable):
        return list(found)
    return listing.with_comments(found, told)


def traffic(found: Sequence[listing.Job]) -> dict[int, tuple[int, int]]:
    """Return the bytes that the fenced containers of jobs that have ended received and sent, as the Epilogs noted."""
    if not any(job.network and job.ended for job in found):
        return {}
    try:
        return peaks.read_network(call("scontrol", "show", "node", "--json"))
    except (Refused, Unavailable, ValueError):
        return {}


def _unknown(number: int) -> Refused:
    return Refused(f"Slurm knows no job {number}; it forgets ended ones after a while.\nSee: convgpu jobs --all")


def _read(text: str) -> list[listing.Job]:
    try:
        return listing.read_jobs(text)
    except ValueError as error:
        raise Unavailable(f"Slurm's list of jobs cannot be read: {error}.\nSee: convgpu slurm check") from error
