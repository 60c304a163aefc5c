"""The settings of a container that rules depend on, in one form for a request, a service and the Engine's answer."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from convgpu.authz.requests import go_json
from convgpu.authz.requests.engine_work import long_lines, odd_ends
from convgpu.authz.requests.host_config import SPEEDS, HostConfigRest, beside, read_rest
from convgpu.runtime.paths import plain

# vendor.com/class=name, as the Container Device Interface qualifies a device.
CDI_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]*/[A-Za-z][A-Za-z0-9._-]*=.+", re.DOTALL)
# In place of the unknown subpath of a volume from another container; clients cannot send it, because it is absolute.
HIDDEN: Final = "/"
# A CDI device of ours: it gives no GPU, but injects a limit and the hook (convgpu.runtime.cdi).
LIMIT_DEVICE: Final = "convgpu.io/memory="
_ASKED: Final = "asked"
_IMPLIED: Final = "implied"
_MAX_GPUS: Final = 64  # a larger number stands for all GPUs


@dataclass(frozen=True, slots=True)
class MountSettings:
    """A mount of a container.

    Attributes:
        kind: `bind`, `volume`, `tmpfs`, or another text of the client.
        source: path on the host, or name of a volume; empty for an anonymous one.
        target: path in the container, made `plain`; its image decides whether /var/run is a link there.
        driver: of a volume; empty if it is not named.
        asked: the driver that a request names for a volume, which may exist and have another one.
        filled: a request gives a volume by its name, and does not keep the Engine from filling it from the image.
        options: of the volume's driver.
        read_only: nothing can be written through it, nor through what is mounted below it.
        made: of a bind, that the Engine makes its source where that is missing.
        words: names of the options of a tmpfs.
        relabels: the Engine sets labels of SELinux in what is mounted: `asked`; `implied`, where it does so at all; or
            empty.
        subpath: the part of the volume that is mounted; `HIDDEN` if there may be one that the Engine does not show.
    """

    kind: str
    source: str
    target: str
    driver: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = False
    subpath: str = ""
    asked: str = ""
    filled: bool = False
    made: bool = False
    words: tuple[str, ...] = ()
    relabels: str = ""


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """The settings of a container, asked for or existing.

    Attributes:
        id: the Engine's, of an existing container.
        name: the Engine's, of an existing container.
        state: the Engine's, of an existing container: `created`, `running`, `exited`...
        environment: as the process gets it: the last value of each name.
        chosen: the GPUs that --gpus asks for, by index, UUID or CDI name with commas between; empty for no choice.
        led_on: devices named where others than the Engine's driver `cdi` may find CDI devices: in requests of other
            drivers (Engine 28.2), and in annotations (NVIDIA's runtime).
        known: complete, with the settings that come from the image and from other containers.
        readonly_paths: word for word, because a path that leads nowhere protects nothing; None for the default.
        relabels_from: it asks for labels of SELinux for the volumes of others, too.
        removes_itself: the Engine removes it when it ends (`--rm`).
        stop_timeout: seconds that the Engine waits for its end before it kills it; 0: its default.
        service: it is a task of a Swarm service, whose start is not judged.
        rest: what only strict rules judge.
        opaque: texts that can expand to anything when a task of the service starts.
    """

    id: str = ""
    name: str = ""
    state: str = ""
    image: str = ""
    image_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[MountSettings, ...] = ()
    volumes_from: tuple[str, ...] = ()
    relabels_from: bool = False
    device_requests: int = 0
    chosen: str = ""
    cdi_names: tuple[str, ...] = ()
    led_on: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    device_rules: tuple[str, ...] = ()
    runtime: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    privileged: bool = False
    capabilities: frozenset[str] = frozenset()
    pid_mode: str = ""
    ipc_mode: str = ""
    userns_mode: str = ""
    cgroup_parent: str = ""
    security_options: tuple[str, ...] = ()
    readonly_paths: tuple[str, ...] | None = None
    known: bool = False
    removes_itself: bool = False
    stop_timeout: int = 0
    service: bool = False
    rest: HostConfigRest = field(default_factory=HostConfigRest)
    opaque: tuple[str, ...] = ()

    @property
    def names_devices(self) -> bool:
        """Whether it asks for devices, or may open some."""
        return bool(self.devices or self.device_rules or self.device_requests)


def read_request(document: Mapping[str, object]) -> ContainerSettings:
    """Return the container that the body of `POST /containers/create` asks for.

    Without a HostConfig, Engines up to 26 take its fields from the top level, and so does this reader.

    Raises:
        go_json.Ambiguous: the request can be read in two ways.
    """
    host = _host_config(document)
    mounts = [*_binds(host), *read_mounts(host), *_anonymous(document, host)]
    networks = go_json.child(go_json.child(document, "networkingconfig"), "endpointsconfig")
    container = _read(document, host, mounts, networks)
    more = () if host is document else beside(document)
    return replace(container, rest=replace(container.rest, unknown=(*container.rest.unknown, *more)))


def request_lengths(document: Mapping[str, object]) -> Iterator[int]:
    """Return how many things each list of the body of a create names, before anything is made of them."""
    host = _host_config(document)
    yield go_json.length(document, "volumes")
    lists = ("mounts", "binds", "tmpfs", "devices", "devicecgrouprules", "volumesfrom", "devicerequests")
    for name in (*lists, *SPEEDS):
        yield go_json.length(host, name)
    for request in go_json.children(host, "devicerequests"):
        yield go_json.length(request, "deviceids")


def _host_config(document: Mapping[str, object]) -> Mapping[str, object]:
    absent = go_json.field(document, "hostconfig") is None
    return document if absent else go_json.child(document, "hostconfig")


def read_inspected(document: Mapping[str, object], volumes: Mapping[str, Mapping[str, str]]) -> ContainerSettings:
    """Return the container in the Engine's answer to `GET /containers/ID/json`.

    Args:
        document: the answer.
        volumes: the options of each of its volumes of driver `local`.
    """
    config, host = go_json.child(document, "config"), go_json.child(document, "hostconfig")
    requested = list(read_mounts(host))
    binds = list(_binds(host))
    subpaths = {mount.target: mount.subpath for mount in (*requested, *binds)}
    asked = {mount.target: mount.relabels for mount in binds if mount.relabels == _ASKED}
    # Of --volumes-from the Engine makes all, also what the other container only mounts.
    kept = {mount.target for mount in requested if mount.kind == "bind" and not mount.made}
    # A volume from --volumes-from keeps its subpath there, and the Engine does not show it.
    inherited = HIDDEN if go_json.texts(host, "volumesfrom") else ""
    mounts = [
        MountSettings(
            kind=go_json.text(row, "type"),
            source=go_json.text(row, "name") or go_json.text(row, "source"),
            target=plain(go_json.text(row, "destination")),
            driver=go_json.text(row, "driver"),
            options=volumes.get(go_json.text(row, "name"), {}),
            read_only=go_json.field(row, "rw") is False,
            subpath=subpaths.get(plain(go_json.text(row, "destination")), inherited),
            relabels=asked.get(plain(go_json.text(row, "destination"))) or _relabels_shown(row),
            made=go_json.text(row, "type") == "bind" and plain(go_json.text(row, "destination")) not in kept,
        )
        for row in go_json.children(document, "mounts")
    ]
    # The Engine's list shows neither --tmpfs nor whether mounts below a read-only one can be written.
    others = [mount for mount in requested if mount.kind != "volume"]
    networks = go_json.child(go_json.child(document, "networksettings"), "networks")
    return _with_identity(_read(config, host, [*mounts, *others], networks), document, config)


def _with_identity(
    container: ContainerSettings, document: Mapping[str, object], config: Mapping[str, object]
) -> ContainerSettings:
    """Return the container with what only one that exists has."""
    timeout = go_json.field(config, "stoptimeout")
    return replace(
        container,
        known=True,
        id=go_json.text(document, "id"),
        name=go_json.text(document, "name").lstrip("/"),
        state=go_json.text(go_json.child(document, "state"), "status"),
        image_id=go_json.text(document, "image"),
        stop_timeout=timeout if isinstance(timeout, int) else 0,
    )


def environment(rows: Sequence[str]) -> dict[str, str]:
    """Return the variables that `NAME=VALUE` rows set; a bare `NAME` removes a default only, and no row before it."""
    return {name: value for name, equals, value in (row.partition("=") for row in rows) if equals}


def _read(
    config: Mapping[str, object],
    host: Mapping[str, object],
    mounts: Sequence[MountSettings],
    networks: Mapping[str, object],
) -> ContainerSettings:
    requests = go_json.children(host, "devicerequests")
    tmpfs = (
        MountSettings("tmpfs", "", plain(target), words=_option_words(options.split(",")))
        for target, options in go_json.map_of_texts(host, "tmpfs").items()
    )
    rest = read_rest(host, networks)
    readonly = go_json.texts(host, "readonlypaths") if go_json.field(host, "readonlypaths") is not None else None
    return ContainerSettings(
        image=go_json.text(config, "image"),
        labels=go_json.map_of_texts(config, "labels"),
        environment=environment(go_json.texts(config, "env")),
        mounts=(*mounts, *tmpfs),
        volumes_from=tuple(each.partition(":")[0] for each in go_json.texts(host, "volumesfrom")),
        relabels_from=any(_relabels(each.partition(":")[2], _ASKED) for each in go_json.texts(host, "volumesfrom")),
        device_requests=sum(not _is_limit_only(request) for request in requests),
        chosen=",".join(name for row in requests if not _is_limit_only(row) for name in _chosen(row)),
        # A request of another driver, and a device's path, can read like a CDI device and inject nothing.
        cdi_names=tuple(name for row in requests if _is_of_cdi(row) for name in _names(row) if _is_cdi(name)),
        led_on=tuple(_led_on(host, requests)),
        devices=tuple(go_json.text(device, "pathonhost") for device in go_json.children(host, "devices")),
        device_rules=tuple(go_json.texts(host, "devicecgrouprules")),
        runtime=go_json.text(host, "runtime"),
        annotations=go_json.map_of_texts(host, "annotations"),
        privileged=go_json.flag(host, "privileged"),
        removes_itself=go_json.flag(host, "autoremove"),
        capabilities=frozenset(map(capability, go_json.words(host, "capadd"))),
        pid_mode=go_json.text(host, "pidmode"),
        ipc_mode=go_json.text(host, "ipcmode"),
        userns_mode=go_json.text(host, "usernsmode"),
        cgroup_parent=go_json.text(host, "cgroupparent"),
        security_options=tuple(go_json.texts(host, "securityopt")),
        readonly_paths=None if readonly is None else tuple(readonly),
        rest=replace(rest, unknown=(*rest.unknown, *odd_ends(config), *long_lines(host, config))),
    )


def _binds(host: Mapping[str, object]) -> Iterator[MountSettings]:
    driver = go_json.text(host, "volumedriver")
    for bind in go_json.texts(host, "binds"):
        source, colon, rest = bind.partition(":")
        target, _, mode = rest.partition(":")
        modes = mode.split(",")
        read_only, relabels = "ro" in modes, _relabels(mode, _ASKED)
        # The Engine's default for its own volumes.
        implied = relabels or ("" if mode else _IMPLIED)
        if not colon:
            yield MountSettings("volume", "", plain(bind), driver, relabels=_IMPLIED)
        elif source.startswith("/"):
            yield MountSettings("bind", source, plain(target), read_only=read_only, made=True, relabels=relabels)
        else:
            filled = "nocopy" not in modes
            yield MountSettings(
                "volume", source, plain(target), driver, read_only=read_only, filled=filled, relabels=implied
            )


def read_mounts(host: Mapping[str, object]) -> Iterator[MountSettings]:
    """Return the mounts in the long form: of a container's HostConfig, or of a service's ContainerSpec."""
    for mount in go_json.children(host, "mounts"):
        bind, options = go_json.child(mount, "bindoptions"), go_json.child(mount, "volumeoptions")
        config, tmpfs = go_json.child(options, "driverconfig"), go_json.child(mount, "tmpfsoptions")
        kind, source = go_json.text(mount, "type"), go_json.text(mount, "source")
        yield MountSettings(
            kind=kind,
            source=source,
            target=plain(go_json.text(mount, "target")),
            driver=go_json.text(config, "name"),
            options=go_json.map_of_texts(config, "options"),
            read_only=go_json.flag(mount, "readonly") and not go_json.flag(bind, "readonlynonrecursive"),
            subpath=go_json.text(options, "subpath"),
            filled=kind == "volume" and bool(source) and not go_json.flag(options, "nocopy"),
            made=kind == "bind" and go_json.flag(bind, "createmountpoint"),
            relabels=_IMPLIED if kind == "volume" else "",
            words=_option_words(row[0] for row in go_json.lists_of_texts(tmpfs, "options") if row),
        )


def _relabels(mode: str, answer: str) -> str:
    """Return the answer where the mode of a mount has the Engine set labels of SELinux."""
    return answer if {"z", "Z"} & set(mode.split(",")) else ""


def _relabels_shown(row: Mapping[str, object]) -> str:
    """Return the same of a mount that the Engine shows: of volumes it shows its default, too."""
    return _relabels(go_json.text(row, "mode"), _ASKED if go_json.text(row, "type") == "bind" else _IMPLIED)


def _option_words(options: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the options of a tmpfs, without their values."""
    return tuple(name for name in (option.partition("=")[0] for option in options) if name)


def _anonymous(document: Mapping[str, object], host: Mapping[str, object]) -> Iterator[MountSettings]:
    for target in go_json.child(document, "volumes"):
        yield MountSettings("volume", "", plain(target), go_json.text(host, "volumedriver"))


def _names(request: Mapping[str, object]) -> list[str]:
    """Return the devices that a request names; a request without any is for GPUs, as an empty name says."""
    return go_json.texts(request, "deviceids") or [""]


def _chosen(request: Mapping[str, object]) -> Iterator[str]:
    """Return the GPUs that a request names; a number stands for as many, counted from the first."""
    count = go_json.field(request, "count")
    yield from go_json.texts(request, "deviceids")
    yield from map(str, range(count if isinstance(count, int) and count < _MAX_GPUS else 0))


def _led_on(host: Mapping[str, object], requests: Sequence[Mapping[str, object]]) -> Iterator[str]:
    yield from (name for row in requests if not _is_of_cdi(row) for name in go_json.texts(row, "deviceids"))
    yield from go_json.map_of_texts(host, "annotations").values()


def _is_limit_only(request: Mapping[str, object]) -> bool:
    return _is_of_cdi(request) and all(map(_is_limit, _names(request)))


def _is_of_cdi(request: Mapping[str, object]) -> bool:
    return go_json.text(request, "driver") == "cdi"


def _is_cdi(name: str) -> bool:
    return CDI_NAME.fullmatch(name) is not None


def _is_limit(name: str) -> bool:
    return name.startswith(LIMIT_DEVICE)


def capability(name: str) -> str:
    """Return the name of a capability in the form of the rules: `SYS_ADMIN`."""
    return name.strip().upper().removeprefix("CAP_")
