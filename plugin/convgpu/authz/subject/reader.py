"""Reads the subject of a judgement: asks the Engine, the host and the scheduler once for each fact."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from convgpu.authz.ports import EngineUnreachable, HostFacts, Ports
from convgpu.authz.requests import go_json
from convgpu.authz.requests.container import (
    ContainerSettings,
    MountSettings,
    environment,
    read_inspected,
    read_request,
)
from convgpu.authz.requests.service import read_service
from convgpu.authz.subject.gpu import find_gpu
from convgpu.authz.subject.injection import find_injection
from convgpu.authz.subject.subject import Caller, Subject
from convgpu.protocol.records import Container
from convgpu.runtime.gpu_requests import asking_variable, is_plain

_LOCAL_DRIVERS: Final = frozenset({"", "local"})


class SubjectReader:
    """Reads subjects; several threads may use it.

    Args:
        plugin: its name in the Engine.
        ports: what is asked.
    """

    def __init__(self, plugin: str, ports: Ports) -> None:
        self._plugin = plugin
        self._ports = ports

    def requested(self, document: Mapping[str, object], caller: Caller) -> Subject:
        """Return the container that the body of `POST /containers/create` asks for.

        Raises:
            go_json.Ambiguous: the body can be read in two ways.
            EngineUnreachable: the judgement depends on the Engine's answer.
        """
        return self._new(self._complete(read_request(document)), caller)

    def tasks(self, specification: Mapping[str, object], caller: Caller) -> Subject:
        """Return the container that the tasks of a Swarm service will be.

        Raises:
            go_json.Ambiguous, EngineUnreachable: see `requested`.
        """
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
        container = self._inspect(name)
        return None if container is None else self._subject(container, caller)

    def starting(self, name: str, caller: Caller, *, checkpoint: bool) -> Subject | None:
        """Return a container that is to start, as `existing` does."""
        subject = self.existing(name, caller)
        if subject is None:
            return None
        return replace(subject, starts=True, checkpoint=checkpoint, joined=self._joined(subject))

    def volume(self, options: Mapping[str, str], caller: Caller) -> Subject:
        """Return a call about a volume of driver `local`."""
        path = options.get("device", "")
        resolved = {path: self._ports.devices.resolve(path)}
        return Subject(caller, self._plugin, host=self._ports.engine.facts(), resolved=resolved)

    def without_container(self, caller: Caller) -> Subject:
        """Return a call that is about no container."""
        return Subject(caller, self._plugin)

    def _new(self, container: ContainerSettings, caller: Caller) -> Subject:
        subject = self._subject(container, caller)
        limits = {name: limits for name in _names(subject.volumes) if (limits := self._volume_limits(name))}
        return replace(subject, volume_limits=limits, joined=self._joined(subject))

    def _subject(self, container: ContainerSettings, caller: Caller) -> Subject:
        host = self._host_facts(container)
        devices = self._ports.devices
        volumes = (mount for mount in container.mounts if mount.kind == "volume")
        return Subject(
            caller=caller,
            plugin=self._plugin,
            container=container,
            host=host,
            volumes=tuple(mount for mount in volumes if is_same_plugin(mount.driver, self._plugin)),
            gpu=find_gpu(container, container.runtime or host.default_runtime, devices),
            injection=find_injection(container, host),
            resolved={path: devices.resolve(path) for path in _host_paths(container)},
        )

    def _volume_limits(self, name: str) -> Mapping[str, int]:
        record = self._ports.scheduler.find(name)
        return {} if record is None else limits_of(record)

    def _joined(self, subject: Subject) -> str:
        kind, _, name = subject.container.pid_mode.partition(":")
        other = self.existing(name, subject.caller) if kind == "container" else None
        return name if other is not None and other.hook_folders else ""

    def _complete(self, container: ContainerSettings) -> ContainerSettings:
        """Add the settings that a request takes from volumes that exist, and from the image."""
        container = replace(container, mounts=tuple(map(self._with_driver, container.mounts)))
        image = self._image(container.image) if container.image and self._depends_on_image(container) else None
        if image is None:
            return container
        config = go_json.child(image, "config")
        merged = {**environment(go_json.texts(config, "env")), **container.environment}
        return replace(container, environment=merged, known=True)

    def _depends_on_image(self, container: ContainerSettings) -> bool:
        if container.device_requests and "LD_PRELOAD" not in container.environment:
            return True
        runtime = container.runtime
        if not runtime and (asking_variable(container.environment) or container.service):
            runtime = self._ports.engine.facts().default_runtime
        return bool(runtime) and not is_plain(runtime)

    def _with_driver(self, mount: MountSettings) -> MountSettings:
        """Add driver and options of a volume that exists."""
        if mount.kind != "volume" or not mount.source or mount.options:
            return mount
        try:
            volume = self._ports.engine.volume(mount.source)
        except EngineUnreachable:
            # The scheduler tells our volumes from others; the Engine is asked again at the start.
            is_ours = not mount.driver and self._ports.scheduler.find(mount.source) is not None
            return replace(mount, driver=self._plugin) if is_ours else mount
        if volume is None:
            return mount
        return replace(mount, driver=go_json.text(volume, "driver"), options=go_json.map_of_texts(volume, "options"))

    def _image(self, name: str) -> Mapping[str, Any] | None:
        try:
            return self._ports.engine.image(name)
        except EngineUnreachable:
            return None

    def _inspect(self, name: str) -> ContainerSettings | None:
        document = self._ports.engine.container(name)
        if document is None:
            return None
        options: dict[str, Mapping[str, str]] = {}
        for row in go_json.children(document, "mounts"):
            volume = go_json.text(row, "name")
            if volume and go_json.text(row, "driver") in _LOCAL_DRIVERS:
                options[volume] = go_json.map_of_texts(self._ports.engine.volume(volume) or {}, "options")
        return read_inspected(document, options)

    def _host_facts(self, container: ContainerSettings) -> HostFacts:
        """Return the Engine's settings; a plain container needs none, so that it starts without the Engine's answer."""
        if container.known or _depends_on_host(container):
            return self._ports.engine.facts()
        if container.runtime or not (container.device_requests or container.devices):
            return HostFacts()
        try:
            return self._ports.engine.facts()  # the default runtime may inject a limit
        except EngineUnreachable:
            return HostFacts()


def is_same_plugin(driver: str, plugin: str) -> bool:
    """Tell whether two names mean the same plugin; a missing tag is `latest`, as for the Engine."""
    return bool(driver) and _with_tag(driver) == _with_tag(plugin)


def limits_of(record: Container) -> dict[str, int]:
    """Return the limits of one of the scheduler's containers, in bytes by device."""
    return {share.uuid: share.limit for share in record.devices if share.limit}


def _with_tag(name: str) -> str:
    # A colon before the last slash belongs to a registry's port.
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def _names(volumes: tuple[MountSettings, ...]) -> Iterator[str]:
    return (mount.source for mount in volumes if mount.source)


def _host_paths(container: ContainerSettings) -> Iterator[str]:
    for mount in container.mounts:
        if mount.kind == "bind":
            yield mount.source
        elif mount.kind == "volume" and mount.driver in _LOCAL_DRIVERS and mount.options:
            yield mount.options.get("device", "")


def _depends_on_host(container: ContainerSettings) -> bool:
    return any(mount.kind == "bind" or mount.options for mount in container.mounts) or (
        not container.runtime and asking_variable(container.environment) is not None
    )
