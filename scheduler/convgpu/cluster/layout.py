"""Where a cluster's settings lie, as `convgpu slurm setup` writes them."""

from typing import Final

SETTINGS_FILE: Final = "/etc/slurm/convgpu.json"
SETTINGS_VARIABLE: Final = "CONVGPU_SLURM"
