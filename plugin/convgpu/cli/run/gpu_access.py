"""Access of containers to the GPUs: NVIDIA's container toolkit, CDI, or devices and libraries of the host."""

from __future__ import annotations

import os

from convgpu.cli.run.csv_row import read_row
from convgpu.protocol.quick.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Final

LIBRARIES_AT: Final = "/run/nvidia/lib"  # not below /usr, which may be a read-only mount
CDI_KIND: Final = "nvidia.com/gpu"
_TOOLKIT: Final = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")


class Access(Record):
    """The options that give a container its GPUs.

    Attributes:
        words: options of `docker run`.
        library_path: where the container finds the driver's libraries, None where they are on its search path.
        how: in words, for --dry-run.
    """

    words: tuple[str, ...]
    library_path: str | None
    how: str


class HostGpu(Record):
    """A GPU as the kernel driver lists it: in the order of the PCI bus, as NVML does."""

    uuid: str
    minor: int


class Host(Record):
    """GPUs, libraries and tools of this machine, which is the Engine's.

    Attributes:
        toolkit: NVIDIA's container toolkit is installed.
        cdi: a CDI specification of NVIDIA's lies in a folder that the Engine reads.
        gpus: that the kernel driver lists.
        nodes: device files beside those of the GPUs.
        libraries: name -> file.
        smi: nvidia-smi, None if there is none.
    """

    toolkit: bool = False
    cdi: bool = False
    gpus: tuple[HostGpu, ...] = ()
    nodes: tuple[str, ...] = ()
    libraries: Mapping[str, str] | None = None
    smi: str | None = None


class NoAccess(LookupError):  # noqa: N818 - the state of a host
    """No container can get access to a GPU; the text is for the user."""


def parse_count(value: str | None) -> int | None:
    """Return how many GPUs the scheduler is to choose for `any`, `any:2`, `2` or `count=2`; None for other forms."""
    counts = map(_count, read_row(value or ""))
    return next((count for count in counts if count is not None), None)


def without_count(value: str) -> str:
    """Return the value of Docker's `--gpus` that gives all GPUs in place of a count."""
    return ",".join("all" if _count(field) is not None else field for field in read_row(value))


def _count(field: str) -> int | None:
    """Return the number that one field of `--gpus` asks for."""
    word, colon, number = field.partition(":")
    if word == "any" and not colon:
        return 1
    count = number if word == "any" else field.removeprefix("count=")
    return int(count) if count.isascii() and count.isdecimal() and int(count) > 0 else None


def parse_gpus(value: str | None) -> tuple[str, ...] | None:
    """Return indices or UUIDs that Docker's `--gpus` means; None for all, and where the scheduler is to choose.

    Raises:
        ValueError: it is none of Docker's forms.
    """
    found: list[tuple[str, ...] | None] = []
    for field in read_row(value or "all"):
        key, _, rest = field.partition("=")
        if field == "all" or (key == "count" and rest in {"all", "-1"}) or _count(field) is not None:
            found.append(None)
        elif key == "device" and rest:
            found.append(tuple(rest.split(",")))
        elif key not in {"capabilities", "driver", "options"}:
            found += [None, None]
    if len(found) > 1:
        forms = "write any, a count (2), all, device=0 or '\"device=0,GPU-uuid\"', as for docker"
        raise ValueError(f"{value!r} names no GPUs: {forms}")
    return found[0] if found else None


def has_toolkit() -> bool:
    """Say whether NVIDIA's container toolkit is installed on this machine."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return any(os.access(f"{folder}/{name}", os.X_OK) for folder in folders for name in _TOOLKIT)


def by_toolkit(asked: str | None) -> Access:
    """Return the access that NVIDIA's container toolkit gives; `asked`: as for `choose`."""
    return Access(("--gpus", asked or "all"), None, "NVIDIA's container toolkit")


def has_runtime(info: Mapping[str, Any]) -> bool:
    """Say whether the Engine has NVIDIA's runtime; `info`: of the Engine."""
    return "nvidia" in (info.get("Runtimes") or {})


def choose(info: Mapping[str, Any], host: Host | None, asked: str | None, gpus: Sequence[str] | None) -> Access:
    """Return how containers get access to this Engine's GPUs.

    Args:
        info: of the Engine.
        host: what this machine has; None if the Engine runs on another one.
        asked: the user's `--gpus`, as it was written.
        gpus: what it means; None for all.

    Raises:
        NoAccess: there is none.
    """
    discovered = [str(row.get("ID")) for row in info.get("DiscoveredDevices") or ()]
    if has_runtime(info) or host is None or host.toolkit:
        return by_toolkit(asked)
    if any(name.startswith(f"{CDI_KIND}=") for name in discovered) or (info.get("CDISpecDirs") and host.cdi):
        names = [f"{CDI_KIND}={gpu}" for gpu in gpus or ("all",)]
        return Access(tuple(word for name in names for word in ("--device", name)), None, "CDI")
    if not host.libraries or "/dev/nvidiactl" not in host.nodes:
        raise NoAccess(
            "this host has no way to give a GPU to a container: neither NVIDIA's container toolkit, nor a CDI "
            "specification, nor the driver's devices and libcuda.so.1.\nInstall the driver (nvidia-smi must work), or "
            "play without a card: docker plugin set convgpu CONVGPU_DEVICES=simulated:16GiB"
        )
    return _from_host(host, gpus)


def _from_host(host: Host, gpus: Sequence[str] | None) -> Access:
    chosen = range(len(host.gpus))
    if gpus is not None:
        places = {name: place for place, gpu in enumerate(host.gpus) for name in (str(place), gpu.uuid)}
        unknown = [name for name in gpus if name not in places]
        if unknown:
            raise NoAccess(f"this host has no GPU {unknown[0]!r}.\nSee which there are: nvidia-smi -L")
        chosen = [places[name] for name in gpus]  # type: ignore[assignment]
    nodes = [f"/dev/nvidia{host.gpus[place].minor}" for place in chosen] + list(host.nodes)
    words = [word for node in nodes for word in ("--device", node)]
    files = {f"{LIBRARIES_AT}/{name}": file for name, file in sorted((host.libraries or {}).items())}
    if host.smi is not None:
        files["/usr/bin/nvidia-smi"] = host.smi
    for target, source in files.items():
        words += ["--mount", f"type=bind,src={source},dst={target},readonly"]
    return Access(tuple(words), LIBRARIES_AT, "devices and libraries of this host")
