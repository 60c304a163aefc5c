"""Simulated devices: the folder from which the simulated driver is loaded (docs/architecture.md)."""

import hashlib
import uuid
from pathlib import Path
from typing import Final

from convgpu.daemon.system.atomic_files import deliver, is_delivered
from convgpu.protocol.sizes import parse_size

PREFIX: Final = "simulated:"
LIBRARIES: Final = ("libcuda.so.1", "libnvidia-ml.so.1")
CONTROL_FILE: Final = "devices"  # a copy of a program's descriptor of it keeps the program's memory
FILES: Final = (*LIBRARIES, "devices", "state")


def parse_devices(text: str) -> list[int]:
    """Return the sizes in bytes of `simulated:16GiB[,16GiB...]`.

    Raises:
        ValueError: with the allowed form.
    """
    try:
        return [parse_size(size) for size in text.removeprefix(PREFIX).split(",")]
    except ValueError as error:
        raise ValueError(f"{text!r}: write simulated:16GiB or simulated:16GiB,24GiB ({error})") from error


def prepare_driver(folder: Path, source: Path, staging: Path, sizes: list[int], settle: int) -> None:
    """Fill `folder` with the simulated driver and its devices.

    An existing state file stays, because programs of an earlier scheduler may be using it, unless the devices have
    changed.

    Args:
        folder: to fill.
        source: folder of the libraries.
        staging: a folder beside it.
        sizes: of the devices, in bytes.
        settle: microseconds that the driver needs to free a GiB of an ended process.

    Raises:
        OSError: `source` lacks the libraries, or the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES:
        digest = hashlib.sha256((source / name).read_bytes()).digest()
        if not is_delivered(folder / name, digest, 0o755):
            deliver(source / name, folder / name, 0o755, staging)
    # UUIDs are derived from positions, so that devices stay the same after a restart.
    rows = [f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'convgpu {n}')} {size}" for n, size in enumerate(sizes)]
    description = "\n".join([*rows, f"settle_us_per_gib={settle}", ""])
    devices, state = folder / "devices", folder / "state"
    if not devices.exists() or devices.read_text() != description:
        state.unlink(missing_ok=True)
        deliver(description.encode(), devices, 0o644, staging)
    if not state.exists():
        state.touch()
        state.chmod(0o666)  # programs run as any user; touch() applied the umask
