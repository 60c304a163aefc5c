"""Where a cluster's settings and the files of its jobs lie, and how a job's containers are marked. Imports nothing."""

SETTINGS_FILE = "/etc/slurm/convgpu.json"  # as `convgpu slurm setup` writes it
SETTINGS_VARIABLE = "CONVGPU_SLURM"
LABEL = "convgpu.job"
NODE_LABEL = "convgpu.node"


def file_name(job: int, node: str) -> str:
    """Return the name of a job's file; with the node, because test clusters have several on one host."""
    return f"{job}.{node}.json"
