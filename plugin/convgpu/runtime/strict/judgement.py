"""What the strict rules of a site say of a container that starts: its mounts and devices as they really are.

Authorization judges all of a request when it is made. Paths can lead elsewhere afterwards, a restart policy asks
nobody, and a form can say what authorization does not see; so mounts, devices, namespaces and capabilities are judged
here once more, at each start. Pure but for what `HostView` looks up.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from convgpu.protocol.site.strictness import says_strict
from convgpu.runtime.gpu_requests import IsGpuNumber
from convgpu.runtime.paths import READ_ONLY, allows_path, is_at_or_below, normal, path_entry

# Below the Engine's own folder: what it mounts itself.
_ENGINES: Final = ("containers", "volumes", "plugins", "swarm")
_INIT: Final = re.compile(r"/usr/(?:\S+/)?(?:docker-init|tini)[^/]*")
# A container without one of these has the host's; in the names of the list.
_NAMESPACES: Final = ("network", "pid", "ipc", "uts")
# By this the namespace of another container's process is named (`joined`); its own the Engine leaves to the runtime.
_OTHERS: Final = re.compile(r"/proc/(?:\./[0-9]+/fd|[0-9]+/ns)/")
# Of each container, by the Engine's default.
_CAPABILITIES: Final = frozenset({
    "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
    "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
})  # fmt: skip

Numbers = frozenset[tuple[int, int]]


class NotListed(ValueError):  # noqa: N818 - the state of a container
    """A container would get what the list of the site lacks; the text begins with the rule's name."""


@dataclass(frozen=True, slots=True)
class StrictRules:
    """The entries of a site's list that the runtime judges by."""

    paths: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostMount:
    """A mount of a path of the host that the list permits.

    Attributes:
        number: in the configuration.
        path: where its source leads, without links.
        writes: through it something can be written.
        recursive: it shows what is mounted below, too.
    """

    number: int
    path: str
    writes: bool
    recursive: bool


@dataclass(frozen=True, slots=True)
class HostView:
    """What is looked up on the host.

    Attributes:
        engine_root: the Engine's own folder.
        real_path: returns where a path leads now, None for one that cannot be opened.
        mounts_below: returns the mount points below a folder of the host.
        numbers_of: returns the numbers of the device nodes at or below a path.
        cdi_paths: paths that files of CDI devices name, which root wrote.
        is_gpu: tells whether numbers belong to a GPU, which has rules of its own.
        is_hosts: tells whether a file of a namespace is that of the host.
        made: where the container mounts what the Engine makes if it is missing.
    """

    engine_root: str
    real_path: Callable[[str], str | None]
    mounts_below: Callable[[str], list[str]]
    numbers_of: Callable[[str], Numbers]
    is_gpu: IsGpuNumber
    cdi_paths: frozenset[str] = field(default_factory=frozenset)
    is_hosts: Callable[[str], bool] = lambda _: False
    made: frozenset[str] = field(default_factory=frozenset)


def read_strict(raw: bytes) -> StrictRules | None:
    """Return the list in a site's rules; None where rules are not strict.

    Raises:
        NotListed: they are strict, and cannot be read.
    """
    if not says_strict(raw):
        return None
    try:
        document = tomllib.loads(raw.decode())
        table = document.get("strict") or {}
        sections = ("paths", "devices", "capabilities", "namespaces", "ids", "accept")
        return StrictRules(**{name: tuple(map(str, table.get(name, ()))) for name in sections})
    except (ValueError, AttributeError, TypeError) as error:
        raise NotListed(f"the strict rules of this site cannot be read: {error}") from error


def refuse_unlisted(config: Mapping[str, Any], rules: StrictRules, host: HostView) -> list[HostMount]:
    """Return the mounts of a container that show paths of the host beside the Engine's own.

    Raises:
        NotListed: it has what the list lacks.
    """
    _refuse_devices(config, rules, host)
    _refuse_namespaces(config, rules, host)
    _refuse_capabilities(config, rules)
    found = []
    for number, mount in enumerate(config.get("mounts") or ()):
        shown = _shown(mount, host)
        for number_shown, (path, writes) in enumerate(shown):
            if not allows_path(rules.paths, path, writes=writes):
                # The first is told by the text that was asked for, or else where links of root's folders lead.
                told = path if number_shown else str(mount.get("source"))
                raise _path_not_listed(told, mount, writes=writes)
        for path, writes in shown[:1]:
            _refuse_made(mount, path, rules, host)
            found.append(HostMount(number, path, writes, "rbind" in (mount.get("options") or ())))
    return found


def _refuse_made(mount: Mapping[str, Any], path: str, rules: StrictRules, host: HostView) -> None:
    """Refuse what the Engine has made, or would, below a writable entry: it does so before this, at each start.

    A container that never starts no restart policy starts again, of which nobody is asked (decision 171).
    """
    source = normal(str(mount.get("source")))
    entries = (normal(entry) for entry in rules.paths if not entry.endswith(READ_ONLY))
    below = (each for entry in entries for each in (path, source) if each != entry and is_at_or_below(each, entry))
    if normal(str(mount.get("destination"))) in host.made and any(below):
        raise NotListed(
            f"strict-paths: the Engine would make {source} if it is missing, as root and by its name, where users can "
            f"exchange names. Say --mount type=bind,source={source},target={mount.get('destination')} in place of -v"
        )


def _path_not_listed(path: str, mount: Mapping[str, Any], *, writes: bool) -> NotListed:
    entry = path_entry(path, writes=writes)
    what = f"{entry}, mounted at {mount.get('destination')}, is not there, leads elsewhere, or"
    return _not_listed("paths", what, entry)


def _not_listed(section: str, what: str, entry: str) -> NotListed:
    return NotListed(
        f"strict-{section}: {what} is not in the list of this site. Leave it out, or ask the administrator for an "
        f"entry: {section} = [{entry!r}]"
    )


def _refuse_devices(config: Mapping[str, Any], rules: StrictRules, host: HostView) -> None:
    listed = frozenset(pair for path in rules.devices if path.startswith("/") for pair in host.numbers_of(path))
    for device in (config.get("linux") or {}).get("devices") or ():
        path, pair = str(device.get("path")), (int(device.get("major") or 0), int(device.get("minor") or 0))
        if not is_at_or_below(normal(path), "/dev") or _touches_host(normal(path), config):
            # The runtime makes the node there, also where that is a folder of the host.
            raise NotListed(
                f"strict-devices: {path} is no place for a device. Name one below /dev, without mounts in it"
            )
        if not (pair in listed or host.is_gpu(*pair) or path in host.cdi_paths):
            raise _not_listed("devices", f"the device {path} ({device.get('type')} {pair[0]}:{pair[1]})", path)


def _touches_host(path: str, config: Mapping[str, Any]) -> bool:
    """Tell whether a mount of a folder lies at or above a path, and below /dev or at it."""
    places = (normal(str(mount.get("destination"))) for mount in config.get("mounts") or () if is_bind(mount))
    return any(is_at_or_below(path, place) and is_at_or_below(place, "/dev") for place in places)


def is_bind(mount: Mapping[str, Any]) -> bool:
    """Tell whether a mount shows a folder or file that is somewhere already."""
    return mount.get("type") == "bind" or bool({"bind", "rbind"} & set(mount.get("options") or ()))


def _refuse_namespaces(config: Mapping[str, Any], rules: StrictRules, host: HostView) -> None:
    linux = config.get("linux")
    if linux is None:
        return
    paths = {str(row.get("type")): str(row.get("path") or "") for row in linux.get("namespaces") or ()}
    for name in _NAMESPACES:
        path = paths.get(name)
        kind = "host" if path is None or (path and host.is_hosts(path)) else "container" if _OTHERS.match(path) else ""
        entry = f"{name}={kind}"
        if kind and entry not in rules.namespaces:
            raise _not_listed("namespaces", f"the {name} namespace of the {kind}", entry)


def _refuse_capabilities(config: Mapping[str, Any], rules: StrictRules) -> None:
    sets = (config.get("process") or {}).get("capabilities") or {}
    for name in sorted({str(each).removeprefix("CAP_") for rows in sets.values() for each in rows or ()}):
        if name not in _CAPABILITIES and not {name, "ALL"} & set(rules.capabilities):
            raise _not_listed("capabilities", f"the capability {name}", name)


def _shown(mount: Mapping[str, Any], host: HostView) -> list[tuple[str, bool]]:
    """Return each path of the host that a mount shows beside the Engine's own, and whether it can be written."""
    source, options = str(mount.get("source") or ""), set(mount.get("options") or ())
    if not is_bind(mount):
        return []
    path, writes = host.real_path(source) if source.startswith("/") else None, not options & {"ro", "rro"}
    if path is None:  # in the same words as for one that is there
        raise _path_not_listed(source, mount, writes=writes)
    engines = (f"{host.engine_root}/{name}" for name in _ENGINES)
    if path == source and any(is_at_or_below(path, folder) for folder in engines):
        return []
    if not writes and (source in host.cdi_paths or _INIT.fullmatch(path)):
        return []
    # What is mounted below a read-only one stays writable.
    half = not writes and "rro" not in options and "rbind" in options
    return [(path, writes), *((below, True) for below in (host.mounts_below(path) if half else ()))]
