"""Where files lie: inside containers, in a container's folder, and in the scheduler's directory.

The folder of a container is mounted at MOUNT_PATH inside it (docs/architecture.md, What lies where).
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` is not imported on the quick path of `convgpu run` (decision 143)
if TYPE_CHECKING:
    from typing import Final

# Names in a container's folder; PRELOAD_FILE also lies in the scheduler's directory, the same for all containers.
LIBRARY_FILE: Final = "libconvgpu.so"
PRELOAD_FILE: Final = "ld.so.preload"
SOCKET_FILE: Final = "scheduler.sock"
DRIVER_FOLDER: Final = "driver"  # only with simulated devices, also in the scheduler's directory

# Names in the scheduler's directory.
ADMIN_SOCKET_FILE: Final = "admin.sock"
LOCK_FILE: Final = "lock"  # who holds its flock works in the directory
CONTAINERS_FOLDER: Final = "containers"

# Paths inside a container.
MOUNT_PATH: Final = "/run/convgpu"
LIBRARY_PATH: Final = f"{MOUNT_PATH}/{LIBRARY_FILE}"
DRIVER_PATH: Final = f"{MOUNT_PATH}/{DRIVER_FOLDER}"
PRELOAD_PATH: Final = "/etc/ld.so.preload"  # read by the dynamic linker (ld.so(8))


def reader_socket(run: str, plugin: str) -> str:
    """Return where members of the readers' group ask a plugin: below the folder `run` of the Engine's socket."""
    name = plugin.partition(":")[0].replace("/", "_")
    return f"{run}/convgpu/{name}.sock"
