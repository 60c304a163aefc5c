"""Reconciliation with the Engine's list: ended containers, orphaned volumes and folders, names of containers."""

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from convgpu.core.liveness import Listing, evaluate
from convgpu.daemon.containers.folders import Folders
from convgpu.daemon.containers.registry import ContainerRegistry, VolumeContainer
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.storage.volumes import VolumeTable
from convgpu.protocol.engine_container import EngineContainer
from convgpu.protocol.requests import ListedContainer, ReportEngineList

log = logging.getLogger(__name__)

# Seconds. The Engine creates a volume here before it lists it: a list may lack volumes younger than this.
_MIN_AGE: Final = 60.0


class Reconciliation:
    """Compares the Engine's list with the registry of containers.

    Attributes:
        volume_of: the name of a volume by the Engine's id of the container that mounts it.

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
        self._removed_orphans = False
        self._unprepared: set[str] = set()  # running containers whose files could not be seen to

    def listed(self, listed: ReportEngineList) -> bool:
        """Compare a list, and return whether any container runs.

        Raises:
            OSError: a change could not be written.
        """
        users: dict[str, list[ListedContainer]] = defaultdict(list)
        for entry in listed.containers:
            for name in entry.volumes:
                users[name].append(entry)
        self.volume_of = {entry.id: name for name, entries in users.items() for entry in entries}
        connected = self._sessions.by_container()
        for name, container in list(self._containers.by_name.items()):
            entries = users.get(name, [])
            if not entries and not container.runs:
                continue  # there may be thousands that nobody uses
            self._compare(container, Listing(listed.asked, tuple(entry.state for entry in entries)), name in connected)
            self._set_engine(container, entries)
        known = {*listed.volumes, *users}
        self._remove_unlisted(known, listed)
        if not self._removed_orphans:
            self._removed_orphans = True
            for folder in self._folders.remove_orphans([*self._containers.names(), *known]):
                log.warning("folder %s belonged to no volume and is removed", folder)
        return any(container.runs for container in self._containers.by_name.values())

    def named(self, entry: ListedContainer) -> None:
        """Note how the Engine names a container that starts, before any list has it."""
        for name in entry.volumes:
            container = self._containers.by_name.get(name)
            if container is not None:
                self.volume_of[entry.id] = name
                self._set_engine(container, [entry])

    def _compare(self, container: VolumeContainer, listing: Listing, connected: bool) -> None:
        volume = container.volume
        if not container.runs and not listing.runs:
            return
        decision = evaluate(
            volume.mounts, connected=connected, listing=listing, since=volume.since, now=self._wall_clock()
        )
        for mount_id in volume.mounts.keys() - decision.mounts.keys():
            log.warning("mount %s of %s has no running container any more and is forgotten", mount_id, volume.name)
        if decision.runs and (not container.runs or volume.name in self._unprepared):
            self._prepare(volume.name, mounted=container.runs)
        self._containers.apply(container, decision, "listed")

    def _prepare(self, name: str, *, mounted: bool) -> None:
        """See to the files of a container that runs already. If that fails it runs on, and the next list retries."""
        try:
            self._containers.prepare(name, mounted=mounted)
            self._unprepared.discard(name)
        except OSError as error:
            if name not in self._unprepared:
                log.error("volume %s is in use, and its files cannot be seen to: %s", name, error)
            self._unprepared.add(name)

    def _set_engine(self, container: VolumeContainer, users: list[ListedContainer]) -> None:
        """Save the Engine's container of the volume: a running one, or the newest, which the Engine lists first."""
        if not users:
            return
        running = [entry for entry in users if Listing(0.0, (entry.state,)).runs]
        entry = (running or users)[0]
        engine = EngineContainer(id=entry.id, name=entry.name, image=entry.image, labels=entry.labels)
        if container.volume.engine != engine:
            container.volume.engine = engine
            self._store.set_engine(container.volume.name, engine)

    def _remove_unlisted(self, known: set[str], listed: ReportEngineList) -> None:
        """Remove volumes that the Engine does not list, unless they may be in use or are new.

        An Engine that lists no volume at all may have lost them, and they come back; injected limits go by containers.
        """
        for name, container in list(self._containers.by_name.items()):
            volume = container.volume
            old = max(volume.created, volume.since) + _MIN_AGE < listed.asked
            unlisted = name not in known and bool(container.is_injected or listed.volumes)
            if unlisted and old and not container.runs and not self._sessions.of(name):
                log.warning("the Engine knows volume %s no more: it is removed", name)
                self._containers.remove(name)
