"""The CDI specification: `docker run --device convgpu.io/memory=2g IMAGE`. Pure.

https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md, version 0.6.0.
"""

from typing import Any, Final

from convgpu.runtime.edits import LIBRARY, MOUNT_PATH, Host, mounts, stages

KIND: Final = "convgpu.io/memory"
_VERSION: Final = "0.6.0"
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_HALVES: Final = (256, 512, 768, 1536, 2560)  # MiB, beside each whole GiB


def names(capacity: int) -> tuple[str, ...]:
    """Return the sizes that can be asked for on a device of `capacity` bytes: each is a device of its own in CDI."""
    whole = [f"{gib}g" for gib in range(1, capacity // _GIB + 1)]
    parts = [f"{mib}m" for mib in _HALVES if mib * _MIB <= capacity]
    return (*parts, *whole)


def specification(host: Host, capacity: int) -> dict[str, Any]:
    """Return the specification as the Engine reads it from /etc/cdi; `capacity`: of the largest device, in bytes.

    A device's environment goes before the user's `-e`, so each device says only what its name means.
    """
    common: dict[str, Any] = {
        "env": [f"LD_PRELOAD={LIBRARY}"],
        "mounts": [_mount(mount) for mount in mounts(host)],
        "hooks": [{"hookName": stage, **hook} for stage, hook in stages(host).items()],
    }
    if host.simulated:
        common["env"].append(f"LD_LIBRARY_PATH={MOUNT_PATH}/driver")
    devices = [{"name": name, "containerEdits": {"env": [f"CONVGPU_MEMORY={name}"]}} for name in names(capacity)]
    return {"cdiVersion": _VERSION, "kind": KIND, "devices": devices, "containerEdits": common}


def _mount(mount: dict[str, Any]) -> dict[str, Any]:
    return {
        "hostPath": mount["source"],
        "containerPath": mount["destination"],
        "type": mount["type"],
        "options": mount["options"],
    }
