"""Whether a GPU container belongs to a job of Slurm that runs here, and stays within the job's share. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from convgpu.authz.subject.injection import size_or_zero
from convgpu.authz.subject.subject import Subject
from convgpu.authz.verdict import Refusal
from convgpu.cluster.node_job import NodeJob
from convgpu.protocol.sizes import format_size

RULE: Final = "slurm-job"
SUBMIT: Final = "Type: convgpu submit --gpu-memory 2g IMAGE COMMAND, or in a job: convgpu job IMAGE COMMAND"


def belongs_to_job(subject: Subject) -> Iterator[Refusal]:
    """Refuse a container with a GPU of no job, of one that does not run here, or beyond the job's share by itself."""
    if not subject.needs_job:
        return
    job = subject.job
    if not job:
        yield Refusal(RULE, f"the GPUs of this host belong to jobs of Slurm, and this container to none.\n{SUBMIT}")
    elif subject.container.service:
        yield Refusal(RULE, f"a service of Swarm is no job of Slurm.\n{SUBMIT}")
    elif not subject.job_shares:
        yield Refusal(RULE, f"no job {job:.20} runs on this host: it has ended, or never was here.\n{SUBMIT}")
    elif not subject.starts:
        # What else a volume can say of its limits is known when the container starts.
        yield from beyond_share(job, _named_limits(subject), {}, subject.job_shares)


def beyond_share(
    job: str, limits: Mapping[str, int], used: Mapping[str, int], shares: Sequence[NodeJob]
) -> Iterator[Refusal]:
    """Refuse limits on cards that the job does not have, or above what the job's other containers leave of them.

    Args:
        job: its id.
        limits: of the container, in bytes by device.
        used: of the job's running containers.
        shares: of the job on this host.
    """
    allowed: dict[str, int] = {}
    for share in shares:
        for uuid, size in share.cards.items():
            allowed[uuid] = allowed.get(uuid, 0) + size
    for uuid, limit in limits.items():
        taken = used.get(uuid, 0)
        if uuid not in allowed:
            yield Refusal(
                RULE, f"{uuid} is no GPU of job {job}, which has {', '.join(sorted(allowed)) or 'none'}.\n{SUBMIT}"
            )
        elif limit + taken > allowed[uuid]:
            others = f", of which its containers have {format_size(taken)}" if taken else ""
            yield Refusal(
                RULE,
                f"{format_size(limit)} on {uuid} is more than job {job} may have there: {format_size(allowed[uuid])}"
                f"{others}.\nType: convgpu job IMAGE COMMAND, which asks for the right size",
            )


def _named_limits(subject: Subject) -> dict[str, int]:
    """Return the limits that a request names by device."""
    texts = [volume.options.get("memory", "") for volume in subject.volumes]
    if subject.injected is not None:
        texts.append(subject.injected.memory or "")
    rows = [part.strip().rpartition(":") for text in texts if ":" in text for part in text.split(",")]
    return {uuid: size_or_zero(size) for uuid, _, size in rows}
