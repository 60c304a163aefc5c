"""The settings of the cluster, as `convgpu slurm setup` wrote them."""

from pathlib import Path

from convgpu.cli.cluster.slurm_client import settings_path
from convgpu.cli.terminal.errors import Unavailable
from convgpu.cluster import settings as stored


def settings() -> stored.Settings:
    """Return the cluster's settings.

    Raises:
        Unavailable: there are none, or they cannot be read.
    """
    return read_settings(settings_path())


def read_settings(path: Path) -> stored.Settings:
    """Return the settings of a file, as `settings` does."""
    try:
        return stored.read_settings(path.read_bytes())
    except FileNotFoundError as error:
        raise Unavailable(f"there is no {path}, which says what the nodes have.\nType: convgpu slurm setup") from error
    except (OSError, ValueError) as error:
        raise Unavailable(f"{path}: {error}.\nType: convgpu slurm setup") from error
