"""Devices without a card: the folder from which the simulated driver is loaded (docs/architecture.md)."""

import os
import shutil
import uuid
from pathlib import Path
from typing import Final

from convgpu.protocol.sizes import parse_size

PREFIX: Final = "simulated:"
LIBRARIES: Final = ("libcuda.so.1", "libnvidia-ml.so.1")
FILES: Final = (*LIBRARIES, "devices", "state")


def parse_devices(text: str) -> list[int]:
    """Return the sizes in bytes that `simulated:16GiB[,16GiB...]` names.

    Raises:
        ValueError: with the form that is allowed.
    """
    try:
        return [parse_size(size) for size in text.removeprefix(PREFIX).split(",")]
    except ValueError as error:
        raise ValueError(f"{text!r}: write simulated:16GiB or simulated:16GiB,24GiB ({error})") from error


def prepare_driver(folder: Path, source: Path, sizes: list[int], settle: int) -> None:
    """Fill `folder` with the simulated driver and its devices.

    A state file that is there is kept, because programs of an earlier scheduler may be using it, unless the
    devices are others now.

    Args:
        folder: to fill.
        source: where the libraries are.
        sizes: of the devices, in bytes.
        settle: microseconds that the driver needs to free a GiB of a process that ended.

    Raises:
        OSError: `source` lacks the libraries, or the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES:
        replace_file(source / name, folder / name, 0o755)
    # The same devices after a restart: their UUIDs follow from their places.
    rows = [f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'convgpu {n}')} {size}" for n, size in enumerate(sizes)]
    description = "\n".join([*rows, f"settle_us_per_gib={settle}", ""])
    devices, state = folder / "devices", folder / "state"
    if not devices.exists() or devices.read_text() != description:
        state.unlink(missing_ok=True)
        devices.write_text(description)
    if not state.exists():
        state.touch()
        state.chmod(0o666)  # programs run as any user, and umask had its say in touch()


def link_driver(driver: Path, folder: Path) -> None:
    """Make the driver's files appear in a container's folder: the same inodes, so that containers compete."""
    folder.mkdir(exist_ok=True)
    for name in FILES:
        target = folder / name
        if not target.exists() or not target.samefile(driver / name):
            target.unlink(missing_ok=True)
            os.link(driver / name, target)


def replace_file(source: Path, target: Path, mode: int) -> None:
    """Copy by renaming over the target: a program that has the old one mapped keeps it."""
    if target.exists() and target.read_bytes() == source.read_bytes():
        return
    fresh = target.with_name(f".{target.name}.new")
    shutil.copyfile(source, fresh)
    fresh.chmod(mode)
    fresh.replace(target)
