"""Reads the settings of a container that a request leaves to the Engine: volumes, image, default runtime."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from convgpu.authz.ports import EngineUnreachable, HostFacts, Ports
from convgpu.authz.requests import go_json
from convgpu.authz.requests.container import ContainerSettings, MountSettings, environment, read_inspected
from convgpu.authz.subject.injection import RUNTIME
from convgpu.authz.subject.large_calls import FEW_THINGS, LargeCalls
from convgpu.authz.subject.turns import Turns
from convgpu.runtime.gpu_requests import asking_variable, is_plain

# Names of Docker's own volume driver; a volume whose driver is not named has this one.
LOCAL_DRIVERS: Final = frozenset({"", "local"})

# Calls that ask about volumes, each of which costs the Engine and us some milliseconds, come in turns. One whose volume
# the Engine holds ends after ten seconds; nobody waits for that so long.
_AT_ONCE: Final = 8
_PATIENCE: Final = 3.0


class ContainerReader:
    """Reads containers from the Engine; several threads may use it.

    Args:
        plugin: its name in the Engine.
        ports: the Engine, and the scheduler in its place.
        large: bounds calls that name much.
    """

    def __init__(self, plugin: str, ports: Ports, large: LargeCalls) -> None:
        self._plugin = plugin
        self._engine = ports.engine
        self._scheduler = ports.scheduler
        self._large = large
        self._small = Turns(_AT_ONCE, _PATIENCE)

    def complete(self, container: ContainerSettings, *, foreseen: bool = False) -> ContainerSettings:
        """Return a requested container with the settings that come from existing volumes and from the image.

        Args:
            container: as it is asked for.
            foreseen: its start is judged now as well, for which the image's variables count.

        Raises:
            EngineUnreachable: they are needed and the Engine does not answer.
            Denied: too many calls that name much are judged at once.
        """
        with self._turn(len(container.mounts), sum(mount.kind == "volume" for mount in container.mounts)):
            mounts = tuple(chain.from_iterable(self._with_drivers(container.mounts)))
        container = replace(container, mounts=mounts)
        needed = bool(container.image) and (foreseen or self._depends_on_image(container))
        image = self._image(container.image) if needed else None
        if image is None:
            return container
        config = go_json.child(image, "config")
        merged = {**environment(go_json.texts(config, "env")), **container.environment}
        return replace(container, environment=merged, known=True)

    def image_volumes(self, name: str) -> int:
        """Return how many volumes an image makes for a container; 0 if the Engine has it not, or does not answer."""
        return len(go_json.child(go_json.child(self._image(name) or {}, "config"), "volumes")) if name else 0

    def inspect(self, name: str) -> ContainerSettings | None:
        """Return an existing container; None if the Engine has none of this name.

        Raises:
            EngineUnreachable: the Engine does not answer.
        """
        document = self._engine.container(name)
        if document is None:
            return None
        rows = list(go_json.children(document, "mounts"))
        with self._turn(len(rows), sum(go_json.text(row, "driver") in LOCAL_DRIVERS for row in rows)):
            return read_inspected(document, self._volume_options(rows))

    @contextmanager
    def _turn(self, things: int, volumes: int) -> Iterator[None]:
        """Wait for the turn of a call that names so many things, and may ask about so many volumes."""
        few = self._small.turn(volumes) if volumes and things <= FEW_THINGS else nullcontext()
        with self._large.turn(things=things), few:
            yield

    def _volume_options(self, rows: Iterable[Mapping[str, object]]) -> dict[str, Mapping[str, str]]:
        names = (go_json.text(row, "name") for row in rows if go_json.text(row, "driver") in LOCAL_DRIVERS)
        return {name: go_json.map_of_texts(self._engine.volume(name) or {}, "options") for name in names if name}

    def host_facts(self, container: ContainerSettings, *, strict: bool = False) -> HostFacts:
        """Return the Engine's settings; the defaults for a plain container, which is judged without the Engine.

        Raises:
            EngineUnreachable: the container depends on them and the Engine does not answer.
        """
        if strict or container.known or _depends_on_host(container):
            return self._engine.facts()
        if container.runtime or not (container.device_requests or container.devices):
            return HostFacts()
        try:
            return self._engine.facts()  # the default runtime may inject a limit
        except EngineUnreachable:
            return HostFacts()

    def _depends_on_image(self, container: ContainerSettings) -> bool:
        if container.device_requests and "LD_PRELOAD" not in container.environment:
            return True
        runtime = container.runtime
        if not runtime and (asking_variable(container.environment) or container.service):
            runtime = self._engine.facts().default_runtime
        return bool(runtime) and not is_plain(runtime)

    def _with_drivers(self, mounts: Iterable[MountSettings]) -> Iterator[Iterable[MountSettings]]:
        """Return each mount with driver and options of a volume that exists.

        A request can name options beside it. Where it names no other driver, the Engine takes the volume that exists,
        and the options where that has gone since: both are judged.
        """
        answers = True
        for mount in mounts:
            found = mount
            if mount.kind == "volume" and mount.source:
                try:
                    found = self._existing(mount) if answers else self._unanswered(mount)
                except EngineUnreachable:
                    answers = False  # each further question would wait as long
                    found = self._unanswered(mount)
            if not mount.options:
                yield (found,)
            elif found is not mount and mount.driver in LOCAL_DRIVERS:
                yield mount, found
            else:
                yield (mount,)

    def _unanswered(self, mount: MountSettings) -> MountSettings:
        """The scheduler knows which volumes are ours; the Engine is asked again at the start."""
        is_ours = not mount.driver and self._scheduler.find(mount.source) is not None
        return replace(mount, driver=self._plugin) if is_ours else mount

    def _existing(self, mount: MountSettings) -> MountSettings:
        volume = self._engine.volume(mount.source)
        if volume is None:
            return mount
        options = go_json.map_of_texts(volume, "options")
        return replace(mount, driver=go_json.text(volume, "driver"), options=options, asked=mount.driver)

    def _image(self, name: str) -> Mapping[str, Any] | None:
        try:
            return self._engine.image(name)
        except EngineUnreachable:
            return None


def _depends_on_host(container: ContainerSettings) -> bool:
    if any(mount.kind == "bind" or mount.options for mount in container.mounts):
        return True
    if not container.runtime:
        return asking_variable(container.environment) is not None
    # Another runtime is refused where ours is the default (checks/host.py, `other_runtime`), whatever volume it is.
    may_get_gpu = container.names_devices or container.volumes_from or any(m.kind == "volume" for m in container.mounts)
    return container.runtime != RUNTIME and bool(may_get_gpu)
