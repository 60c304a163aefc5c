"""Takes the calls of a GPU's driver from a container without a GPU. Pure.

Who has a GPU can send its open device nodes to others, through a socket in a volume (unix(7), SCM_RIGHTS). The receiver
needs no permission of the device cgroup, which is asked when a node is opened. But all that it can do with a driver is
`ioctl` on such a descriptor, and the number of each request says whose it is (ioctl(2);
Documentation/userspace-api/ioctl/ioctl-number.rst).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from convgpu.runtime.oci_config import read_device_settings
from convgpu.runtime.strict.call_filter import Rule, having, leave_out, permit, refuses_unnamed

# The bits of a request by which it is told: its type, from the highest bit on, and its direction.
_BITS: Final = (15, 14, 13, 12, 11, 10, 9, 8, 31, 30)
_REQUEST: Final = 1  # the argument
# Requests of type 0 without a direction: those of NVIDIA's UVM driver (uvm_ioctl.h), of which nothing works before
# UVM_INITIALIZE. Two other ones that programs make: FIBMAP and FIGETBSZ (linux/fs.h).
_UVM: Final = f"{0:08b}00"
_OF_FILES: Final = (1, 2)
_WHOLE: Final = 0xFFFFFFFF
# By type: the major number of the only other devices that know such requests (linux/fb.h, drm/drm.h). NVIDIA's driver
# takes `F` on /dev/nvidiactl and /dev/nvidiaN (nv-ioctl-numbers.h), and `d` on /dev/dri.
_TYPES: Final = {"F": 29, "d": 226}


def without_driver_calls(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a container whose programs call no GPU's driver.

    Without a filter of calls they may. A container that may open screens, or GPUs of others, keeps their requests.

    Args:
        config: of a container that asks for no GPU of ours.
    """
    linux = dict(config.get("linux") or {})
    seccomp = linux.get("seccomp") or {}
    if not refuses_unnamed(seccomp):
        return dict(config)
    kept, permitted = leave_out(seccomp, ("ioctl",))
    if "ioctl" in permitted:
        kept += (permit("ioctl", condition) for condition in _others(_refused_types(config)))
    return {**config, "linux": linux | {"seccomp": {**seccomp, "syscalls": kept}}}


def _refused_types(config: Mapping[str, Any]) -> Iterator[str]:
    """Return what requests begin with, in the order of _BITS."""
    settings = read_device_settings(config, lambda _, __: False)
    opened = {rule.major for rule in settings.rules if rule.kind != "b" and set("rw") & set(rule.access)}
    yield _UVM
    yield from (f"{ord(kind):08b}" for kind, major in _TYPES.items() if not opened & {major, None})


def _others(refused: Iterator[str]) -> Iterator[Rule]:
    """Return conditions of which each other request meets one, and none that begins so."""
    yield from (having(_REQUEST, _WHOLE, request) for request in _OF_FILES)
    yield from _beside("", tuple(refused))


def _beside(begin: str, refused: tuple[str, ...]) -> Iterator[Rule]:
    if not any(each.startswith(begin) for each in refused):
        bits = [1 << bit for bit in _BITS[: len(begin)]]
        yield having(_REQUEST, sum(bits), sum(bit for bit, sign in zip(bits, begin, strict=True) if sign == "1"))
    elif begin not in refused:
        yield from _beside(f"{begin}0", refused)
        yield from _beside(f"{begin}1", refused)
