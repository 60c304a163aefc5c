"""What is wrong with a Slurm cluster that is there, by `scontrol show config`. Pure."""

from __future__ import annotations

TYPE_CHECKING = False  # `convgpu submit` waits for imports (decision 152)
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Final

OLDEST: Final = (24, 5)
"""Slurm before 24.05 does not keep shares of tasks on one card each over several nodes."""
_SELECTION: Final = ("MULTIPLE_SHARING_GRES_PJ", "ONE_TASK_PER_SHARING_GRES")


def faults(config: Mapping[str, str]) -> Iterator[str]:
    """Say what is wrong with a cluster, one line each, with what to type.

    Args:
        config: `scontrol show config`.
    """
    version = config.get("SLURM_VERSION", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers < OLDEST:
        yield f"Slurm is version {version or 'unknown'}; ConvGPU needs 24.05 or newer: Debian 13 has 24.11"
    if "lua" not in config.get("JobSubmitPlugins", ""):
        yield "Slurm does not ask job_submit.lua: `convgpu slurm setup`, Include convgpu.conf, restart slurmctld"
    missing = [word for word in _SELECTION if word not in config.get("SelectTypeParameters", "").upper()]
    if missing:
        yield f"SelectTypeParameters lacks {','.join(missing)}, so shares would be split: Include convgpu.conf"
    lacking = {"gpu", "shard", "gpumem"} - set(config.get("GresTypes", "").split(","))
    if lacking:
        yield f"GresTypes lacks {','.join(sorted(lacking))}: Include convgpu.conf"
    for name in ("Prolog", "Epilog"):
        if "convgpu" not in config.get(name, "") + config.get(f"{name}[0]", ""):
            yield f"{name} is not ConvGPU's, so nodes do not know what a job may have: Include convgpu.conf"


def controller_faults(config: Mapping[str, str]) -> Iterator[str]:
    """Say what keeps the controller's order from being carried out, one line each.

    Args:
        config: `scontrol show config`.
    """
    mend = "Include convgpu-controller.conf, and restart slurmctld"
    if config.get("PriorityType", "") != "priority/multifactor":
        yield f"PriorityType is {config.get('PriorityType', 'unknown')}, so nothing is ordered: {mend}"
    if config.get("PreemptType", "") != "preempt/qos" or "REQUEUE" not in config.get("PreemptMode", ""):
        yield f"jobs are ordered and never displaced, because PreemptType is not preempt/qos by REQUEUE: {mend}"
    if "CALCULATE_RUNNING" not in config.get("PriorityFlags", ""):
        yield f"PriorityFlags lacks CALCULATE_RUNNING, so running jobs keep their priority: {mend}"


def read_config(text: str) -> dict[str, str]:
    """Read `scontrol show config`."""
    rows = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, equals, value in rows if equals}
