"""The CDI specification on the Engine's host: its right content, and findings about the existing file.

The command writes it and not the plugin (docs/decisions/0019-the-command-writes-the-cdi-file.md).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from convgpu.cli.terminal.findings import Finding
from convgpu.protocol.records import Devices
from convgpu.runtime.cdi import KIND, specification
from convgpu.runtime.edits import Host

NAME: Final = "convgpu.json"
FOLDER: Final = Path("/etc/cdi")
_AGAIN: Final = "Write it again: sudo convgpu install cdi"


def wanted(host: Host, devices: Devices) -> dict[str, Any]:
    """Return the specification for the devices of a plugin."""
    return specification(host, max((device.capacity for device in devices.devices), default=0))


def read(file: Path) -> dict[str, Any] | None:
    """Return the specification in a file; None if it is not one of ours, or not there."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("kind") == KIND else None


def is_ours(file: Path) -> bool:
    """Tell whether `convgpu install cdi` made a file."""
    return read(file) is not None


def judge(folders: Sequence[str], expected: dict[str, Any]) -> list[Finding]:
    """Return findings about the specifications in the folders that the Engine reads; none if there is no file."""
    findings = []
    for file in (Path(folder) / NAME for folder in folders):
        found = read(file)
        if found is None:
            continue
        if found.get("containerEdits") != expected["containerEdits"]:
            seen = f"{file} is that of another plugin or program: containers of its devices do not start"
            findings.append(Finding("CDI", "fail", seen, _AGAIN))
        elif found != expected:
            findings.append(Finding("CDI", "warn", f"{file} lists other sizes than these GPUs have", _AGAIN))
        else:
            sizes = expected["devices"]
            seen = f"--device {KIND}=SIZE: " + (f"up to {sizes[-1]['name']}" if sizes else "no size fits")
            findings.append(Finding("CDI", "ok", seen))
    return findings
