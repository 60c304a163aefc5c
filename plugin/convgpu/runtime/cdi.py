"""The CDI specification: `docker run --device convgpu.io/memory=2g IMAGE`. Pure.

https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md, version 0.6.0.
"""

from typing import Any, Final

from convgpu.protocol.layout import DRIVER_PATH, LIBRARY_PATH
from convgpu.protocol.sizes import MIB
from convgpu.runtime.edits import Host, injected_hooks, injected_mounts

KIND: Final = "convgpu.io/memory"
_VERSION: Final = "0.6.0"
_PARTS: Final = (128, 256, 384, 512, 640, 768, 896)  # MiB
_HALVES: Final = 8  # GiB up to which there are halves


def names(capacity: int) -> tuple[str, ...]:
    """Return the sizes that can be asked for on a device of `capacity` bytes, the smallest first.

    CDI knows only names that its file lists, so each is a device of its own: eighths below 1 GiB, halves up to 8 GiB,
    whole GiB up to the capacity; and each as Docker writes it and in IEC form.
    """
    halves = [512 * half for half in range(2, 2 * _HALVES + 1)]
    whole = [1024 * gib for gib in range(_HALVES + 1, capacity // MIB // 1024 + 1)]
    sizes = [size for size in (*_PARTS, *halves, *whole) if size * MIB <= capacity]
    return tuple(name for size in sizes for name in _spellings(size))


def _spellings(mib: int) -> tuple[str, ...]:
    """Return the ways to write a size: 2g is 2048m and 2GiB, too."""
    gib, rest = divmod(mib, 1024)
    plain = (f"{mib}MiB", f"{mib}m")
    return plain if rest else (*plain, f"{gib}GiB", f"{gib}g")


def specification(host: Host, capacity: int) -> dict[str, Any]:
    """Return the specification as the Engine reads it from /etc/cdi; `capacity`: of the largest device, in bytes.

    A device's environment overrides the user's `-e`, so each device sets no more than its name means.
    """
    common: dict[str, Any] = {
        "env": [f"LD_PRELOAD={LIBRARY_PATH}"],
        "mounts": [_mount(mount) for mount in injected_mounts(host)],
        "hooks": [{"hookName": stage, **hook} for stage, hook in injected_hooks(host).items()],
    }
    if host.simulated:
        common["env"].append(f"LD_LIBRARY_PATH={DRIVER_PATH}")
    devices = [{"name": name, "containerEdits": {"env": [f"CONVGPU_MEMORY={name}"]}} for name in names(capacity)]
    return {"cdiVersion": _VERSION, "kind": KIND, "devices": devices, "containerEdits": common}


def _mount(mount: dict[str, Any]) -> dict[str, Any]:
    return {
        "hostPath": mount["source"],
        "containerPath": mount["destination"],
        "type": mount["type"],
        "options": mount["options"],
    }
