"""Reconciliation with the Engine's list: ended containers, orphaned volumes and folders, names for people."""

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from convgpu.core.liveness import Listing, evaluate
from convgpu.daemon.containers.folders import Folders
from convgpu.daemon.containers.registry import ContainerRegistry, VolumeContainer
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.storage.volumes import VolumeTable
from convgpu.protocol.records import EngineContainer
from convgpu.protocol.requests import ListedContainer, ReportEngineList

log = logging.getLogger(__name__)

# Seconds. The Engine creates a volume here before it lists it: younger volumes may be missing in a list.
_NEW: Final = 60.0


class Reconciliation:
    """Compares the Engine's list with what is known of containers.

    `volume_of`: names of volumes by the Engine's ids of the containers that have them.

    Args:
        wall_clock: Unix seconds.
    """

    def __init__(
        self,
        containers: ContainerRegistry,
        sessions: SessionRegistry,
        store: VolumeTable,
        folders: Folders,
        wall_clock: Callable[[], float],
    ) -> None:
        volumes = store.all()
        self.volume_of = {volume.engine.id: volume.name for volume in volumes if volume.engine is not None}
        self._containers = containers
        self._sessions = sessions
        self._store = store
        self._folders = folders
        self._wall_clock = wall_clock
        self._swept = False

    def listed(self, listed: ReportEngineList) -> bool:
        """Take a list, and return whether any container runs.

        Raises:
            OSError: what follows could not be written.
        """
        having: dict[str, list[ListedContainer]] = defaultdict(list)
        for one in listed.containers:
            for name in one.volumes:
                having[name].append(one)
        self.volume_of = {one.id: name for name, them in having.items() for one in them}
        connected = self._sessions.by_container()
        for name, container in list(self._containers.by_name.items()):
            self._compare(container, Listing(listed.asked, tuple(one.state for one in having[name])), name in connected)
            self._name(container, having[name])
        known = {*listed.volumes, *(name for name, them in having.items() if them)}
        if listed.volumes:
            self._collect(known, listed.asked)
        if not self._swept:
            self._swept = True
            for folder in self._folders.remove_orphans([*self._containers.names(), *known]):
                log.warning("folder %s belonged to no volume and is removed", folder)
        return any(container.runs for container in self._containers.by_name.values())

    def _compare(self, container: VolumeContainer, listing: Listing, connected: bool) -> None:
        volume = container.volume
        if not container.runs and not listing.runs:
            return
        decision = evaluate(
            volume.mounts, connected=connected, listing=listing, since=volume.since, now=self._wall_clock()
        )
        for mount_id in volume.mounts.keys() - decision.mounts.keys():
            log.warning("mount %s of %s has no running container any more and is forgotten", mount_id, volume.name)
        self._containers.apply(container, decision, "listed")

    def _name(self, container: VolumeContainer, having: list[ListedContainer]) -> None:
        """Keep the container that has the volume: a running one, or the newest, which the Engine lists first."""
        if not having:
            return
        running = [one for one in having if Listing(0.0, (one.state,)).runs]
        one = (running or having)[0]
        engine = EngineContainer(id=one.id, name=one.name, image=one.image)
        if container.volume.engine != engine:
            container.volume.engine = engine
            self._store.set_engine(container.volume.name, engine)

    def _collect(self, known: set[str], asked: float) -> None:
        """Remove volumes that the Engine has forgotten; never one that may be in use or is new."""
        for name, container in list(self._containers.by_name.items()):
            volume = container.volume
            old = max(volume.created, volume.since) + _NEW < asked
            if name not in known and old and not container.runs and not self._sessions.of(name):
                log.warning("the Engine knows volume %s no more: it is removed", name)
                self._containers.remove(name)
