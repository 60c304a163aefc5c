"""Reads the subject of a judgement: each fact about it is asked for once."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from convgpu.authz.facts.owners import limits_of
from convgpu.authz.ports import HostDevicePort, HostFacts, Ports
from convgpu.authz.requests.container import ContainerSettings, MountSettings, read_request, request_lengths
from convgpu.authz.requests.service import read_service, service_lengths
from convgpu.authz.site.rules import Rules
from convgpu.authz.subject.containers import LOCAL_DRIVERS, ContainerReader
from convgpu.authz.subject.gpu import find_gpu
from convgpu.authz.subject.injection import find_injection
from convgpu.authz.subject.large_calls import LargeCalls, count_things, refuse_too_many, refuse_too_many_named
from convgpu.authz.subject.subject import Caller, Subject
from convgpu.cluster.layout import LABEL
from convgpu.runtime.gpu_requests import is_plain
from convgpu.runtime.paths import READ_ONLY, is_at_or_below, normal, plain


class SubjectReader:
    """Reads subjects; several threads may use it.

    Args:
        plugin: its name in the Engine.
        ports: what is asked.
        large: bounds calls that name much.
    """

    def __init__(self, plugin: str, ports: Ports, large: LargeCalls | None = None) -> None:
        self._plugin = plugin
        self._ports = ports
        self._large = large or LargeCalls()
        self._containers = ContainerReader(plugin, ports, self._large)

    def requested(self, document: Mapping[str, object], caller: Caller) -> Subject:
        """Return the container that the body of `POST /containers/create` asks for.

        Raises:
            go_json.Ambiguous: the body can be read in two ways.
            EngineUnreachable: the judgement depends on the Engine's answer.
            Denied: it names too much, or too many calls that do are judged at once.
        """
        refuse_too_many_named(request_lengths(document))
        container = read_request(document)
        if caller.rules.strict_list is not None:
            refuse_too_many(container, self._containers.image_volumes(container.image))
        foreseen = container.removes_itself and bool(caller.rules.users or caller.rules.labels)
        return self._new(self._complete(container, foreseen=foreseen), caller)

    def tasks(self, specification: Mapping[str, object], caller: Caller) -> Subject:
        """Return the container that the tasks of a Swarm service will be.

        Raises:
            go_json.Ambiguous, EngineUnreachable, Denied: see `requested`.
        """
        refuse_too_many_named(service_lengths(specification))
        container = self._complete(read_service(specification))
        runtime = self._ports.engine.facts().default_runtime
        if not is_plain(runtime) and not container.known and "NVIDIA_VISIBLE_DEVICES" not in container.environment:
            # The tasks' image is not on this host, and on every node this runtime would give what the image asks for.
            container = replace(container, environment={**container.environment, "NVIDIA_VISIBLE_DEVICES": "all"})
        return self._new(container, caller)

    def existing(self, name: str, caller: Caller) -> Subject | None:
        """Return a container that the Engine has; None if it has none of this name.

        Raises:
            EngineUnreachable: the Engine does not answer.
        """
        container = self._containers.inspect(name)
        return None if container is None else self._subject(container, caller)

    def starting(self, name: str, caller: Caller, *, checkpoint: bool) -> Subject | None:
        """Return a container that is to start, as `existing` does."""
        subject = self.existing(name, caller)
        if subject is None:
            return None
        subject = replace(subject, neighbours=self._neighbours(subject))
        return replace(subject, starts=True, checkpoint=checkpoint, joined=self._joined(subject))

    def volume(self, options: Mapping[str, str], caller: Caller) -> Subject:
        """Return a call about a volume of driver `local`."""
        path, strict = options.get("device", ""), caller.rules.strict_list is not None
        resolved = {path: follow(self._ports.devices, path, strict=strict)}
        return Subject(caller, self._plugin, host=self._ports.engine.facts(), resolved=resolved)

    def without_container(self, caller: Caller) -> Subject:
        """Return a call that is about no container."""
        return Subject(caller, self._plugin)

    def _complete(self, container: ContainerSettings, *, foreseen: bool = False) -> ContainerSettings:
        refuse_too_many(container)
        return self._containers.complete(container, foreseen=foreseen)

    def _new(self, container: ContainerSettings, caller: Caller) -> Subject:
        subject = self._subject(container, caller)
        limits = {name: limits for name in _names(subject.volumes) if (limits := self._volume_limits(name))}
        gpus = tuple(self._ports.scheduler.devices()) if _names_gpus(subject) else ()
        subject = replace(subject, neighbours=self._neighbours(subject), gpus=gpus)
        return replace(subject, volume_limits=limits, joined=self._joined(subject))

    def _subject(self, container: ContainerSettings, caller: Caller) -> Subject:
        with self._large.turn(things=count_things(container)):
            return self._look(container, caller)

    def _look(self, container: ContainerSettings, caller: Caller) -> Subject:
        strict = caller.rules.strict_list is not None
        host = self._containers.host_facts(container, strict=strict)
        devices = self._ports.devices
        volumes = (mount for mount in container.mounts if mount.kind == "volume")
        job = container.labels.get(LABEL, "") if caller.rules.require == "slurm" else ""
        folders = _written_folders(caller.rules, host)
        resolved = {
            **{path: follow(devices, path, strict=strict) for path in _host_paths(container)},
            # The Engine follows these itself, and works in the root folder.
            **{path: _end(devices, path, strict=strict) for path in (f"/{each}" for each in container.devices)},
        }
        made = {mount.source for mount in (container.mounts if strict else ()) if mount.made}
        written = frozenset(source for source in made if _is_written(devices, source, folders))
        gpu = find_gpu(container, container.runtime or host.default_runtime, devices)
        return Subject(
            caller=caller,
            plugin=self._plugin,
            container=container,
            job_shares=tuple(self._ports.jobs.shares(job)) if job else (),
            host=host,
            volumes=tuple(mount for mount in volumes if is_same_plugin(mount.driver, self._plugin)),
            gpu=gpu.setting,
            unsearched=gpu.unsearched,
            injection=find_injection(container, host),
            resolved=resolved,
            written=written,
            missing=frozenset(source for source in made - written if devices.is_missing(resolved[source])),
        )

    def _volume_limits(self, name: str) -> Mapping[str, int]:
        record = self._ports.scheduler.find(name)
        # What the runtime registered is no volume (decision 219): one of its name would be new.
        return {} if record is None or record.injected else limits_of(record)

    def _neighbours(self, subject: Subject) -> tuple[Subject, ...]:
        if subject.caller.rules.strict_list is None:
            return ()
        container = subject.container
        modes = (container.pid_mode, container.ipc_mode, container.rest.network_mode, container.rest.cgroup)
        names = dict.fromkeys(name for kind, _, name in (mode.partition(":") for mode in modes) if kind == "container")
        found = (self.existing(name, subject.caller) for name in names)
        return tuple(neighbour for neighbour in found if neighbour is not None)

    def _joined(self, subject: Subject) -> str:
        kind, _, name = subject.container.pid_mode.partition(":")
        other = self.existing(name, subject.caller) if kind == "container" else None
        return name if other is not None and other.hook_folders else ""


def is_same_plugin(driver: str, plugin: str) -> bool:
    """Tell whether two names mean the same plugin: the Engine reads them as those of images, `latest` without a tag."""
    return bool(driver) and _with_tag(driver) == _with_tag(plugin)


def _with_tag(name: str) -> str:
    for default in ("index.docker.io/", "docker.io/", "library/"):
        name = name.removeprefix(default)
    # A colon before the last slash belongs to a registry's port.
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def _names_gpus(subject: Subject) -> bool:
    """Tell whether the container names GPUs, and a volume of it does not: then the limit is for those."""
    options = [volume.options for volume in subject.volumes]
    return bool(subject.container.chosen) and any("gpus" not in o and ":" not in o.get("memory", "") for o in options)


def _names(volumes: tuple[MountSettings, ...]) -> Iterator[str]:
    return (mount.source for mount in volumes if mount.source)


def follow(devices: HostDevicePort, path: str, *, strict: bool = False) -> str:
    """Return where a path leads; `/` where `..` behind a link is read in two ways.

    The Engine takes `..` out of the text of a bind mount, and leaves that of a volume's device to the kernel.
    """
    leads = _end(devices, path, strict=strict)
    return leads if plain(path) == path or _end(devices, plain(path), strict=strict) == leads else "/"


def _end(devices: HostDevicePort, path: str, *, strict: bool) -> str:
    return devices.way(path).end if strict and path.startswith("/") else devices.resolve(path)


def _written_folders(rules: Rules, host: HostFacts) -> tuple[str, ...]:
    """Return folders in which containers exchange names: writable entries of the list, and the Engine's volumes."""
    entries = () if rules.strict_list is None else rules.strict_list.paths
    return (normal(host.docker_root), *(normal(entry) for entry in entries if not entry.endswith(READ_ONLY)))


def _is_written(devices: HostDevicePort, path: str, folders: tuple[str, ...]) -> bool:
    """Tell whether others than root may exchange names on the way of a path."""
    way = devices.way(path).folders
    return any(is_at_or_below(each, top) for each in way for top in folders) or any(map(devices.others_write, way))


def _host_paths(container: ContainerSettings) -> Iterator[str]:
    for mount in container.mounts:
        if mount.kind == "bind":
            yield mount.source
        elif mount.kind == "volume" and mount.driver in LOCAL_DRIVERS and mount.options:
            yield mount.options.get("device", "")
