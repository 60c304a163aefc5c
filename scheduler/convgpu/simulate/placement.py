"""Which device a simulated container gets when it starts."""

from collections.abc import Sequence

from convgpu.simulate.workload import Job, capacities


def least_limits(job: Job, present: Sequence[Job]) -> str:  # noqa: ARG001 - limits decide, not the newcomer's
    """Return the device with the least sum of the limits of the containers that are there."""
    sums = dict.fromkeys(capacities(), 0)
    for other in present:
        sums[other.device] += other.limit
    return min(sums, key=lambda device: sums[device])
