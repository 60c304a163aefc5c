"""The OCI hooks at the beginning and at the end of a container without a ConvGPU volume."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from convgpu.client.scheduler import SchedulerRefused, SchedulerUnavailable
from convgpu.protocol.layout import DRIVER_FOLDER
from convgpu.runtime.edits import volume_options
from convgpu.runtime.mounting import mount_folder
from convgpu.runtime.scheduler_client import Registration


def begin(directory: Path, state: dict[str, Any]) -> None:
    """Register a container and mount its folder; if that fails, the registration is undone.

    Args:
        directory: of the scheduler.
        state: of the container, as the OCI runtime gives it to its hooks.

    Raises:
        SchedulerRefused, SchedulerUnavailable, OSError: the container must not start.
    """
    bundle = Path(state["bundle"])
    config = json.loads((bundle / "config.json").read_bytes())
    registration = Registration(directory, state["id"], begins=True)
    folder = registration.begin(volume_options(config))
    root = str(bundle / config["root"]["path"])
    try:
        mount_folder(int(state["pid"]), root, folder, read_only=not (folder / DRIVER_FOLDER).is_dir())
    except OSError:
        with suppress(SchedulerRefused, SchedulerUnavailable):
            registration.end()
        raise


def end(directory: Path, state: dict[str, Any]) -> None:
    """Remove a container that ended from the scheduler; if that fails, the Engine's list shows it later."""
    Registration(directory, state["id"], begins=False).end()
