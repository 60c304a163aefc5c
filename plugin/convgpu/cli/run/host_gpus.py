"""GPUs, libraries and tools of this machine."""

import os
import platform
import re
from pathlib import Path
from typing import Final

from convgpu.cli.run.gpu_access import CDI_KIND, Host, HostGpu, has_toolkit

_CDI_FOLDERS: Final = ("/etc/cdi", "/var/run/cdi")
_LIBRARIES: Final = (
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-gpucomp.so.*",
)
_NODES: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


def inspect_host(root: Path = Path("/")) -> Host:
    """Return the GPUs, libraries and tools of this machine; `root`: its root folder."""
    nodes = [f"/dev/{name}" for name in _NODES if (root / "dev" / name).exists()]
    libraries: dict[str, str] = {}
    for folder in _library_folders(root):
        for pattern in _LIBRARIES:
            for file in sorted(folder.glob(pattern)):
                libraries.setdefault(file.name, os.path.realpath(file))
    return Host(
        toolkit=has_toolkit(),
        cdi=any(_names_gpus(file) for folder in _CDI_FOLDERS for file in (root / folder[1:]).glob("*")),
        gpus=_list_gpus(root),
        nodes=tuple(nodes),
        libraries=libraries if "libcuda.so.1" in libraries else None,
        smi="/usr/bin/nvidia-smi" if (root / "usr/bin/nvidia-smi").exists() else None,
    )


def _library_folders(root: Path) -> list[Path]:
    machine = platform.machine()
    names = (f"usr/lib/{machine}-linux-gnu", "usr/lib64", "usr/lib", "usr/local/nvidia/lib64", "usr/lib/wsl/lib")
    return [root / name for name in names]


def _names_gpus(file: Path) -> bool:
    try:
        return CDI_KIND in file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _list_gpus(root: Path) -> tuple[HostGpu, ...]:
    """Return the GPUs that the kernel driver lists, or else those that have device files."""
    found = []
    for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        text = file.read_text(encoding="utf-8", errors="replace")
        uuid, minor = re.search(r"GPU UUID:\s*(\S+)", text), re.search(r"Device Minor:\s*(\d+)", text)
        if uuid and minor:
            found.append(HostGpu(uuid[1], int(minor[1])))
    if found:
        return tuple(found)
    minors = sorted(int(node.name[6:]) for node in (root / "dev").glob("nvidia[0-9]*") if node.name[6:].isdecimal())
    return tuple(HostGpu("", minor) for minor in minors)
