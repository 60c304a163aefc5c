"""Checks: pure functions from the subject of a judgement to the refusals that speak against it.

`CHECKS` judges a container that is created or started, `calls` other calls. The order decides which refusal the user
reads first: access to the host before the GPU, the GPU before the size of its limit.
"""

from collections.abc import Callable, Iterator
from typing import Final

from convgpu.authz.checks import drained, hook, host, isolation, limits, slurm_job, strict, strict_paths
from convgpu.authz.subject.subject import Subject
from convgpu.authz.verdict import Refusal

Check = Callable[[Subject], Iterator[Refusal]]

# First of all what strict rules say of the host's paths: no other refusal then tells where a path leads.
# What every call that reaches into a container depends on, where rules are strict.
ACCESS: Final[tuple[Check, ...]] = (
    strict_paths.host_paths,
    host.unknown_templates,
    host.privileges,
    host.writable_proc,
    host.host_mounts,
    strict.beyond_list,
)
CHECKS: Final[tuple[Check, ...]] = (
    *ACCESS,
    isolation.joined_processes,
    isolation.volume_names,
    hook.checkpoint,
    hook.unlimited_gpu,
    hook.not_loaded,
    hook.environment,
    hook.shadowing_mounts,
    hook.second_limit,
    hook.hidden_limit,
    host.other_runtime,
    isolation.shared_namespaces,
    isolation.weakened_isolation,
    limits.requested_limits,
    drained.named_gpus,
    slurm_job.belongs_to_job,
)


def find_refusals(subject: Subject, checks: tuple[Check, ...] = CHECKS) -> Iterator[Refusal]:
    """Return every refusal of a container, from the first check to the last."""
    for check in checks:
        yield from check(subject)
