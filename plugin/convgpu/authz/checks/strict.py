"""What a container needs beyond what everybody may have, and what of it the strict list of a site lacks. Pure.

The same function says what is refused and what `convgpu policy write` writes, so a list that was written for a
container permits it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from convgpu.authz.checks.networks import endpoint_needs
from convgpu.authz.checks.preload import is_preload_file
from convgpu.authz.requests.container import CDI_NAME, HIDDEN, LIMIT_DEVICE, MountSettings
from convgpu.authz.site.strict_list import Need, StrictList
from convgpu.authz.subject.host_facts import removes_through_links
from convgpu.authz.subject.injection import RUNTIME
from convgpu.authz.subject.reader import is_same_plugin
from convgpu.authz.subject.subject import Subject
from convgpu.authz.verdict import Refusal
from convgpu.protocol.layout import MOUNT_PATH, PRELOAD_PATH
from convgpu.runtime.gpu_requests import is_nvidia_node, is_plain, visible_devices
from convgpu.runtime.paths import is_at_or_below, normal, path_entry, touches

LOCAL_TYPES: Final = frozenset({"", "local"})
# Logs that stay the Engine's own files, or go to the journal.
_LOGS: Final = frozenset({"", "json-file", "local", "none", "journald"})
_FREE_SECURITY: Final = re.compile(r"no-new-privileges([=:]true)?|seccomp=builtin|apparmor=docker-default")
# Of a tmpfs. Others, such as `bind` and `remount`, make another mount of it, or change where others see it.
TMPFS_OPTIONS: Final = frozenset({
    "defaults", "ro", "rw", "suid", "nosuid", "dev", "nodev", "exec", "noexec", "sync", "async", "dirsync", "mand",
    "nomand", "atime", "noatime", "diratime", "nodiratime", "relatime", "norelatime", "strictatime", "nostrictatime",
    "size", "mode", "uid", "gid", "nr_inodes", "nr_blocks", "mpol", "huge", "noswap", "inode32", "inode64",
})  # fmt: skip
_MAX_OPTION: Final = 80  # characters of a security option; a longer one is a whole profile
_MASKED: Final = frozenset(
    {
        "/proc/acpi",
        "/proc/kcore",
        "/proc/keys",
        "/proc/latency_stats",
        "/proc/sched_debug",
        "/proc/scsi",
        "/proc/timer_list",
        "/sys/firmware",
    }
)
_NVIDIA_GPU: Final = re.compile(r"(?:runtime\.)?nvidia\.com/gpu=.+")
# Devices that NVIDIA's runtime, behind ours, gives beside a GPU if a variable says `enabled` (its internal/modifier).
_SWITCHES: Final = {
    "NVIDIA_MOFED": "/dev/infiniband",
    "NVIDIA_GDRCOPY": "/dev/gdrdrv",
    "NVIDIA_GDS": "/dev/nvidia-fs",
    "NVIDIA_NVSWITCH": "/dev/nvidia-nvswitch",
}
_IMEX: Final = "NVIDIA_IMEX_CHANNELS", "/dev/nvidia-caps-imex-channels"
# The first Engine that makes read-only what is mounted below a read-only mount.
_RECURSIVE: Final = (25, 0)
# The Engine gives such names to volumes without one.
_ANONYMOUS: Final = re.compile("[0-9a-f]{64}")
# Such names, and the IDs of containers, of which commands take the first digits too.
_LIKE_AN_ID: Final = re.compile("[0-9a-f]{12,64}")
_REMOVAL: Final = Need("accept", "removal", "the Engine follows links when it removes folders")
_VOLUME_COPY: Final = Need("fields", "volume copy", "a volume that the Engine fills")


def needs(subject: Subject) -> Iterator[Need]:
    """Return everything that a container needs beyond what everybody may have."""
    for part in (_capabilities, _namespaces, mount_needs, device_needs, _runtime, _options, _logs, _rest):
        yield from part(subject)


def beyond_list(subject: Subject) -> Iterator[Refusal]:
    """Refuse what the strict list of the site lacks; nothing without one."""
    if subject.caller.rules.strict_list is None:
        return
    yield from _unfit_engine(subject)
    # Of a container that exists the Engine shows its own options of logs, too.
    passed = subject.container.rest.costly if subject.container.id else ()
    yield from unlisted(subject, (need for need in needs(subject) if need.value not in passed))
    yield from _volumes_of_others(subject)
    yield from _filled_volumes(subject)
    yield from _half_read_only(subject)
    yield from _movable_hook(subject)
    for neighbour in subject.neighbours:
        for refusal in unlisted(neighbour, needs(neighbour)):
            name = neighbour.container.id[:12]
            text = f"{name}, whose namespace it joins, has more: {refusal.text}"
            yield replace(refusal, text=text)


def _unfit_engine(subject: Subject) -> Iterator[Refusal]:
    """Refuse containers on an Engine that can be led to empty any folder of the host, unless the site accepts that.

    It does so where it removes a container's files or a volume, which nobody can forbid: `--rm` does it too.
    """
    permitted = subject.caller.rules.strict_list
    if permitted is not None and removes_through_links(subject.host.go) and not permitted.covers(_REMOVAL):
        yield Refusal(
            _REMOVAL.rule,
            f"{_REMOVAL.shown} (it was built with {subject.host.go or 'an unknown Go'}): by that its users empty any "
            "folder of the host.\nTake one of Go 1.22.4 or later, or accept that: accept = ['removal']",
            has_entry=True,
        )


def unlisted(subject: Subject, wanted: Iterator[Need]) -> Iterator[Refusal]:
    """Refuse those needs that the list of the site does not cover."""
    permitted = subject.caller.rules.strict_list
    # So it is, too, while a file cannot be used of which nothing was in force before.
    hint = "\nNo entry is in force at all; `convgpu authz status` says why." if permitted == StrictList() else ""
    for need in wanted:
        if permitted is not None and not permitted.covers(need):
            yield Refusal(
                need.rule,
                f"{need.shown:.200} is not in the list of this site.\n"
                f"Leave it out, or ask the administrator for an entry: {need.section} = [{_entry(need)!r}]{hint}",
                has_entry=True,
                detail="" if need.asked in {"", need.value} else f"it leads to {need.value}",
            )


def _entry(need: Need) -> str:
    return (need.asked or need.value)[:200]


def _capabilities(subject: Subject) -> Iterator[Need]:
    for name in sorted(subject.container.capabilities):
        yield Need("capabilities", name, f"--cap-add {name}")


def _namespaces(subject: Subject) -> Iterator[Need]:
    container, rest = subject.container, subject.container.rest
    modes = {
        "network": rest.network_mode,
        "pid": container.pid_mode,
        "ipc": container.ipc_mode,
        "uts": rest.uts_mode,
        "userns": container.userns_mode,
        "cgroup": rest.cgroup,
    }
    for name, mode in modes.items():
        kind = mode.partition(":")[0]
        if mode == "host" or mode.startswith("container:"):
            yield Need("namespaces", f"{name}={kind}", f"--{name} {mode}")
    if rest.cgroupns_mode == "host" and subject.host.cgroupns != "host":
        yield Need("namespaces", "cgroupns=host", "--cgroupns host")


def mount_needs(subject: Subject) -> Iterator[Need]:
    """Return what the container's mounts need."""
    for mount in subject.container.mounts:
        if mount.kind == "bind" and not is_preload_file(mount, subject.host):
            yield _path(mount.source, subject, writes=not mount.read_only)
        elif mount.kind == "volume" and mount not in subject.volumes:
            yield from _volume(mount)
    yield from _asked_drivers(subject)


def _asked_drivers(subject: Subject) -> Iterator[Need]:
    """Return the drivers that a request names beside volumes that exist, and for those of its image.

    The Engine looks each of them up, and by a path finds a socket of whoever asks, before it says that the volume has
    another one. From then on it asks that program about every new volume.
    """
    asked = {mount.asked for mount in subject.container.mounts} | {subject.container.rest.volume_driver}
    for driver in sorted(asked - LOCAL_TYPES):
        if not is_same_plugin(driver, subject.plugin):
            yield Need("drivers", driver, f"the volume driver {driver}")


def _volume(mount: MountSettings) -> Iterator[Need]:
    if mount.driver in LOCAL_TYPES:
        yield from local_volume_needs(mount.options)
    else:
        yield Need("drivers", mount.driver, f"the volume driver {mount.driver}")


def local_volume_needs(options: Mapping[str, str]) -> Iterator[Need]:
    """Return what a volume of driver `local` needs, by its options."""
    if not options:
        return
    if not _is_bind(options) and options.keys() - {"size"}:
        kind = options.get("type", "") or "none"
        yield Need("volumes", kind, f"a volume with type={kind}")


def odd_volume(options: Mapping[str, str], subject: Subject) -> Iterator[Refusal]:
    """Refuse, where rules are strict, volumes of driver `local` that are bind mounts, and odd options of a tmpfs.

    The Engine mounts them itself, by the text of their path, and copies into them what the image has at the target,
    setuid files too.
    """
    if subject.caller.rules.strict_list is None:
        return
    words = (word.partition("=")[0] for word in options.get("o", "").split(","))
    odd = [word for word in words if word and word not in TMPFS_OPTIONS] if options.get("type") == "tmpfs" else []
    if odd and not _is_bind(options):
        yield Refusal("strict-fields", f"{odd[0]:.40} is no option for a volume of type tmpfs.\nLeave it out.")
    if _is_bind(options):
        device = options.get("device", "")
        yield Refusal(
            "strict-volumes",
            "a volume that is a bind mount, which no entry permits.\n"
            f"Mount the path itself: --mount type=bind,source={device},target=TARGET",
        )


def _volumes_of_others(subject: Subject) -> Iterator[Refusal]:
    """Refuse ConvGPU volumes that were made for one container, and so have the name that the Engine drew, or its ID.

    Who mounts one takes of that container's limit, and has it ended when the memory is more than that. A container that
    exists shows its own by such a name.
    """
    for mount in subject.volumes:
        if _LIKE_AN_ID.fullmatch(mount.source) and (not subject.container.id or mount.subpath == HIDDEN):
            yield Refusal(
                "strict-names",
                f"{mount.source:.12} may be the limit of another container, which nobody else mounts.\n"
                "Leave the volume's name out, or give it one that is not of hexadecimal digits alone.",
            )


def _filled_volumes(subject: Subject) -> Iterator[Refusal]:
    """Refuse volumes that the Engine would fill from the image while others have them.

    It does that when the container is made, as root of the host and by names, which whoever has the volume exchanges
    for links. One without a name nobody has, if nobody may mount it by the name that the Engine gives it.
    """
    permitted = subject.caller.rules.strict_list
    if subject.container.id or (permitted is not None and permitted.covers(_VOLUME_COPY)):
        return  # the container exists: what was to be filled is
    entry = "An entry permits it to all: fields = ['volume copy']"
    for mount in subject.container.mounts:
        if mount.kind != "volume" or mount in subject.volumes:
            continue
        name = mount.source
        if _ANONYMOUS.fullmatch(name):
            text = f"{name:.12}... may be a volume without a name, which the Engine fills for somebody right now."
            again = "Give the volume a name (docker compose: up --renew-anon-volumes)."
            yield Refusal("strict-names", f"{text}\n{again} {entry}", has_entry=True)
        elif mount.filled:
            text = f"the Engine would fill the volume {name:.60} from the image as root, through links of who has it."
            words = f"-v {name:.60}:{mount.target:.60}:nocopy, or volume-nocopy in a --mount."
            yield Refusal("strict-fields", f"{text}\nSay {words} {entry}", has_entry=True)


def _is_bind(options: Mapping[str, str]) -> bool:
    return bool({"bind", "rbind"} & set(options.get("o", "").split(",")))


def _path(source: str, subject: Subject, *, writes: bool) -> Need:
    entry, shown = (path_entry(path, writes=writes) for path in (subject.resolved[source], source))
    return Need("paths", entry, f"the mount of {shown}", path_entry(normal(source), writes=writes))


def device_needs(subject: Subject) -> Iterator[Need]:
    """Return what the container's devices need."""
    container = subject.container
    for path in container.devices:
        is_name = CDI_NAME.fullmatch(path) is not None
        real, asked = (path, path) if is_name else (subject.resolved["/" + path], normal("/" + path))
        # One of NVIDIA's needs a limit, by another rule; that a link of root's leads there is not told.
        if not (is_nvidia_node(real) and is_nvidia_node(asked)):
            yield Need("devices", real, f"--device {path}", asked)
    for rule in container.device_rules:
        yield Need("devices", rule, f"--device-cgroup-rule {rule!r}")
    for name in dict.fromkeys((*container.rest.requested, *_by_variable(subject))):
        if CDI_NAME.fullmatch(name) and not (name.startswith(LIMIT_DEVICE) or _NVIDIA_GPU.fullmatch(name)):
            yield Need("devices", name, f"the CDI device {name}")
    yield from _switched_devices(subject) if subject.gpu is not None else ()
    for driver in container.rest.request_drivers:
        if driver not in {"", "nvidia", "cdi"}:
            yield Need("devices", f"driver={driver}", f"a device of driver {driver}")


def _switched_devices(subject: Subject) -> Iterator[Need]:
    environment = subject.container.environment
    for variable, path in _SWITCHES.items():
        if environment.get(variable) == "enabled":
            yield Need("devices", path, f"{path}, which {variable}=enabled gives,")
    variable, path = _IMEX
    if environment.get(variable):
        yield Need("devices", path, f"{path}, of which {variable} names channels,")


def _by_variable(subject: Subject) -> Iterator[str]:
    """Return the devices that NVIDIA's runtime, behind ours, would look up as CDI devices."""
    if not is_plain(subject.container.runtime or subject.host.default_runtime):
        for value in visible_devices(subject.container.environment):
            yield from map(str.strip, value.split(",") if "=" in value else ())


def _runtime(subject: Subject) -> Iterator[Need]:
    runtime = subject.container.runtime or subject.host.default_runtime
    if runtime == RUNTIME:
        return
    shown = f"the runtime {runtime or 'of the Engine'}, which judges no start"
    yield Need("runtimes", runtime, f"{shown} (--runtime {RUNTIME} does)")
    yield from restart_needs(subject, subject.container.rest.restart)


def restart_needs(subject: Subject, restart: str) -> Iterator[Need]:
    """Return what a restart policy needs: our runtime judges each start, another one does not."""
    runtime = subject.container.runtime or subject.host.default_runtime
    if runtime != RUNTIME and restart not in {"", "no"}:
        yield Need("restarts", restart, f"--restart {restart} with the runtime {runtime}")


def _options(subject: Subject) -> Iterator[Need]:
    container, rest = subject.container, subject.container.rest
    for text in container.security_options:
        option = text.replace(":", "=", 1) if "=" not in text.partition(":")[0] else text
        if len(option) > _MAX_OPTION:
            option = f"{option.partition('=')[0]}=custom"
        if not _FREE_SECURITY.fullmatch(option):
            yield Need("security", option, f"--security-opt {option}")
    for name in container.annotations:
        yield Need("security", f"annotation={name}", f"--annotation {name}")
    for name in rest.sysctls:
        yield Need("sysctls", name, f"--sysctl {name}")
    if container.cgroup_parent:
        yield Need("cgroups", container.cgroup_parent, f"--cgroup-parent {container.cgroup_parent}")


def _rest(subject: Subject) -> Iterator[Need]:
    rest = subject.container.rest
    if rest.log_driver not in _LOGS and rest.log_driver != subject.host.log_driver:
        yield Need("drivers", f"log={rest.log_driver}", f"--log-driver {rest.log_driver}")
    if rest.masked_paths is not None and not subject.container.privileged:
        given = "" if rest.masked_paths else ", which MaskedPaths: [] means,"
        for path in sorted(_MASKED - set(rest.masked_paths)):
            yield Need("masks", path, f"{path} without a mask{given}")
    yield from endpoint_needs(rest.endpoint_options)
    for name in rest.unknown:
        yield Need("fields", name, f"the field {name} of the request, which ConvGPU does not know or give freely,")


def _logs(subject: Subject) -> Iterator[Need]:
    for option in subject.container.rest.costly:
        yield Need("fields", option, f"--log-opt {option.removeprefix('log ')}, by which the Engine does any work,")


def _half_read_only(subject: Subject) -> Iterator[Refusal]:
    """Refuse /proc and /sys, read-only at their top only: cgroups below can be written, by which devices open."""
    if subject.host.engine >= _RECURSIVE:
        return
    for mount in subject.container.mounts:
        if mount.kind == "bind" and touches(subject.resolved[mount.source], ("/proc", "/sys")) is not None:
            yield Refusal(
                "strict-paths",
                f"what is mounted below {mount.source} stays writable, on an Engine before 25.\nLeave the mount out.",
            )


def _movable_hook(subject: Subject) -> Iterator[Refusal]:
    """Refuse mounts in which the hook's own places lie: whoever has such a folder elsewhere can take them away."""
    if not subject.needs_hook:
        return
    for mount in subject.container.mounts:
        target = normal(mount.target)
        if mount.kind in {"bind", "volume"} and any(
            target != place and is_at_or_below(place, target) for place in (MOUNT_PATH, PRELOAD_PATH)
        ):
            yield Refusal(
                "strict-paths",
                f"the hook lies below {mount.target}, whose owner could move it away.\nMount a folder further down.",
            )
