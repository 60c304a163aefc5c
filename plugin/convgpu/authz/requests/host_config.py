"""The settings of a container's HostConfig that only strict rules judge. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from convgpu.authz.requests import go_json
from convgpu.authz.requests.engine_work import odd_log_options

# By these a container takes a share of the host's time and space, has a network of its own, or looks otherwise. They
# open nothing of the host, and no other container. Not the speeds of disks: who waits in a slow O_DIRECT read survives
# SIGKILL, and keeps a GPU's memory (decision 178).
_FREE: Final = frozenset({
    "memory", "memoryreservation", "memoryswap", "memoryswappiness", "kernelmemory", "kernelmemorytcp",
    "oomkilldisable", "oomscoreadj", "cpushares", "nanocpus", "cpuperiod", "cpuquota", "cpurealtimeperiod",
    "cpurealtimeruntime", "cpusetcpus", "cpusetmems", "cpucount", "cpupercent", "iomaximumiops", "iomaximumbandwidth",
    "pidslimit", "ulimits", "shmsize", "blkioweight", "blkioweightdevice", "autoremove", "portbindings",
    "publishallports", "dns", "dnsoptions", "dnssearch", "extrahosts", "groupadd", "readonlyrootfs", "tmpfs",
    "init", "consolesize", "isolation", "containeridfile", "storageopt", "capdrop",
})  # fmt: skip
# These are read, and judged.
_READ: Final = frozenset({
    "binds", "mounts", "volumesfrom", "volumedriver", "capadd", "cgroupnsmode", "cgroupparent", "cgroup", "ipcmode",
    "pidmode", "utsmode", "usernsmode", "networkmode", "privileged", "securityopt", "sysctls", "runtime", "devices",
    "devicecgrouprules", "devicerequests", "annotations", "maskedpaths", "readonlypaths", "logconfig", "restartpolicy",
})  # fmt: skip
# Fields of a Config: where a request has no HostConfig, both lie side by side.
_CONFIG: Final = frozenset({
    "image", "cmd", "env", "labels", "user", "workingdir", "entrypoint", "tty", "openstdin", "stdinonce",
    "attachstdin", "attachstdout", "attachstderr", "hostname", "domainname", "exposedports", "volumes", "healthcheck",
    "stopsignal", "stoptimeout", "shell", "networkdisabled", "macaddress", "onbuild", "argsescaped",
    "networkingconfig", "hostconfig", "platform",
})  # fmt: skip
# Shares of a device's speed: the Engine looks for its path as root of the host, and says whether there is one.
SPEEDS: Final = (
    "blkioweightdevice", "blkiodevicereadbps", "blkiodevicewritebps", "blkiodevicereadiops", "blkiodevicewriteiops",
)  # fmt: skip
_DEVICE: Final = re.compile(r"/dev/(?:[a-z]+/by-[a-z]+/)?[\w:-][\w:.+-]*", re.ASCII)
# Not `image`, and no `subpath`: the Engine follows links in such a part as root, on the host, and says where they end.
_MOUNT_KINDS: Final = frozenset({"bind", "volume", "tmpfs"})
_MOUNT: Final = frozenset({"type", "source", "target", "readonly", "consistency", "clusteroptions"})
_MOUNT_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "bindoptions": frozenset({
        "propagation", "nonrecursive", "createmountpoint", "readonlynonrecursive", "readonlyforcerecursive",
    }),
    "volumeoptions": frozenset({"nocopy", "labels", "driverconfig"}),
    "tmpfsoptions": frozenset({"sizebytes", "mode", "options"}),
}  # fmt: skip
# Parts of a HostConfig that have fields of their own.
_PARTS: Final[Mapping[str, frozenset[str]]] = {
    "logconfig": frozenset({"type", "config"}),
    "restartpolicy": frozenset({"name", "maximumretrycount"}),
}


@dataclass(frozen=True, slots=True)
class HostConfigRest:
    """What a container's HostConfig says beside `ContainerSettings`.

    Attributes:
        masked_paths: word for word; None for the Engine's default.
        volume_driver: of volumes that name none, and of those that the image asks for.
        restart: the restart policy's name.
        request_drivers: drivers of its device requests.
        requested: devices that these name; a capability can lead a name to the driver `cdi`, too.
        endpoint_options: for the drivers of the networks that it joins, name and value.
        costly: options of its log by which the Engine itself could take any time or memory.
        unknown: fields with a value that ConvGPU does not know.
    """

    network_mode: str = ""
    uts_mode: str = ""
    cgroupns_mode: str = ""
    cgroup: str = ""
    sysctls: tuple[str, ...] = ()
    masked_paths: tuple[str, ...] | None = None
    log_driver: str = ""
    volume_driver: str = ""
    restart: str = ""
    request_drivers: tuple[str, ...] = ()
    requested: tuple[str, ...] = ()
    endpoint_options: tuple[tuple[str, str], ...] = ()
    costly: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def read_rest(host: Mapping[str, object], networks: Mapping[str, object]) -> HostConfigRest:
    """Return the rest of a HostConfig, and of the container's places in networks by their names.

    Raises:
        go_json.Ambiguous: it can be read in two ways.
    """
    requests = go_json.children(host, "devicerequests")
    masked = go_json.texts(host, "maskedpaths") if go_json.field(host, "maskedpaths") is not None else None
    return HostConfigRest(
        network_mode=go_json.text(host, "networkmode"),
        uts_mode=go_json.text(host, "utsmode"),
        cgroupns_mode=go_json.text(host, "cgroupnsmode"),
        cgroup=go_json.text(host, "cgroup"),
        sysctls=tuple(go_json.child(host, "sysctls")),
        masked_paths=None if masked is None else tuple(masked),
        log_driver=go_json.text(go_json.child(host, "logconfig"), "type"),
        volume_driver=go_json.text(host, "volumedriver"),
        restart=go_json.text(go_json.child(host, "restartpolicy"), "name"),
        request_drivers=tuple(go_json.text(row, "driver") for row in requests),
        requested=tuple(name for row in requests for name in go_json.texts(row, "deviceids")),
        endpoint_options=endpoint_options(networks.values()),
        costly=tuple(odd_log_options(host)),
        unknown=tuple(_unknown(host)),
    )


def endpoint_options(endpoints: Iterable[object]) -> tuple[tuple[str, str], ...]:
    """Return the options for drivers of a container's places in networks, each once."""
    rows = (go_json.map_of_texts(each, "driveropts") for each in endpoints if isinstance(each, dict))
    return tuple(dict.fromkeys(row for options in rows for row in options.items()))


def odd_updates(document: Mapping[str, object]) -> Iterator[str]:
    """Return fields with a value of `POST /containers/NAME/update` that are neither a share nor a restart policy."""
    yield from others(document, _FREE | {"restartpolicy"})
    yield from _odd_speeds(document)


def beside(document: Mapping[str, object]) -> tuple[str, ...]:
    """Return fields with a value that lie beside a HostConfig and are no container's Config.

    Engines up to 28 take some of them where the HostConfig lacks them, such as `VolumeDriver`.
    """
    return tuple(name for name, value in document.items() if value and go_json.fold(name) not in _CONFIG)


def _unknown(host: Mapping[str, object]) -> Iterator[str]:
    yield from others(host, _FREE | _READ | _CONFIG)
    yield from _odd_speeds(host)
    if "" in go_json.texts(host, "groupadd"):  # at which Engine 28.5 ends the start amid its work, and answers nothing
        yield "GroupAdd of no group"
    for mount in go_json.children(host, "mounts"):
        if (kind := go_json.text(mount, "type")) not in _MOUNT_KINDS:
            yield f"mount type {kind}"
        yield from (f"mount {name}" for name in others(mount, _MOUNT | _MOUNT_OPTIONS.keys()))
        for part, known in _MOUNT_OPTIONS.items():
            yield from (f"mount {part} {name}" for name in others(go_json.child(mount, part), known))
    for part, known in _PARTS.items():
        yield from (f"{part} {name}" for name in others(go_json.child(host, part), known))


def others(document: Mapping[str, object], known: frozenset[str]) -> Iterator[str]:
    """Return the fields with a value that are not among these."""
    return (name for name, value in document.items() if value and go_json.fold(name) not in known)


def _odd_speeds(host: Mapping[str, object]) -> Iterator[str]:
    for name in SPEEDS:
        paths = (go_json.text(row, "path") for row in go_json.children(host, name))
        yield from (f"{name} of {path}" for path in paths if not _DEVICE.fullmatch(path))
