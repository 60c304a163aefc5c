"""The processes that NVML lists of a device."""

from collections.abc import Callable
from typing import Any

import pynvml


def listed_on(handle: object) -> dict[int, int] | None:
    """Return the bytes that each process holds on a device, by the pid that it has for who asks; None: not available.

    One unknown figure makes all unusable: a process left out would seem to hold nothing. Who only draws (OpenGL) is in
    a list of its own; who does both is in both, with the same figure (an H100).

    Raises:
        pynvml.NVMLError: the driver has no answer.
    """
    rows = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    if any(row.usedGpuMemory is None for row in rows):
        return None
    drawing = or_none(pynvml.nvmlDeviceGetGraphicsRunningProcesses, handle) or ()
    held = {row.pid: int(row.usedGpuMemory) for row in drawing if row.usedGpuMemory is not None}
    return held | {row.pid: int(row.usedGpuMemory) for row in rows}


def or_none(query: Callable[..., Any], *arguments: object) -> Any:
    """Return NVML's answer, None if there is none."""
    try:
        return query(*arguments)
    except pynvml.NVMLError:
        return None
