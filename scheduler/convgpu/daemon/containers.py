"""The containers that Docker told us about: their volumes, terms, mounts and sockets."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from convgpu.core import events as e
from convgpu.daemon.connection import Listener
from convgpu.daemon.options import DeviceCapacity, OptionError, Terms, parse_limits, parse_options
from convgpu.daemon.sessions import Sessions
from convgpu.daemon.store import Store, Volume
from convgpu.protocol import journal

log = logging.getLogger(__name__)


class ContainerRefusedError(Exception):
    """A request of Docker that cannot be granted. `code`: `invalid`, `unknown` or `busy`; the text is for the user."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(slots=True)
class Container:
    """A volume of ours, and what belongs to it while it exists. `limited`: it has its limits."""

    volume: Volume
    terms: Terms
    listener: Listener
    limited: bool

    @property
    def mounted(self) -> bool:
        """Is it mounted at least once?"""
        return any(self.volume.mounts.values())


class Containers:
    """All containers by the name of their volume."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: Store,
        sessions: Sessions,
        devices: Sequence[DeviceCapacity],
    ) -> None:
        self.by_name: dict[str, Container] = {}
        self._loop = loop
        self._store = store
        self._sessions = sessions
        self._devices = devices
        self._unfit: dict[str, tuple[Volume, str]] = {}  # of an earlier run, with the reason
        self._accept: Callable[[str, socket.socket], None] = lambda _, sock: sock.close()
        self._on_removed: Callable[[str], None] = lambda _: None

    def restore(self, accept: Callable[[str, socket.socket], None], on_removed: Callable[[str], None]) -> None:
        """Take up what an earlier scheduler left.

        A volume that cannot be taken up now (a device is full, or gone) is kept for a better time.

        Args:
            accept: gets the name of a volume and each socket that a process of its container connects with.
            on_removed: gets the name of a volume that is gone.
        """
        self._accept = accept
        self._on_removed = on_removed
        for volume in self._store.load():
            try:
                container = self._open(volume)
            except (OptionError, OSError) as error:
                log.error("volume %s of an earlier run cannot be used now: %s", volume.name, error)
                self._unfit[volume.name] = (volume, str(error))
                continue
            if container.mounted:
                self._sessions.happen(e.ContainerStarted(volume.name))

    def create(self, name: str, options: dict[str, str], now: float) -> None:
        """Make a volume at `now` (Unix seconds); again with the same options is no error.

        Raises:
            ContainerRefusedError: the options cannot be, or the name has others.
            OSError: it cannot be written; nothing has changed.
        """
        if name in self.by_name:
            if options != self.by_name[name].volume.options:
                text = f"volume {name} exists with other options; remove it first: docker volume rm {name}"
                raise ContainerRefusedError("invalid", text)
            return
        try:
            container = self._open(Volume(name, options, now))
        except OptionError as error:
            raise ContainerRefusedError("invalid", str(error)) from error
        try:
            self._save()
        except OSError:
            self._close(container)
            raise
        self._unfit.pop(name, None)
        cause = journal.current() or f"create:{name}"
        self._sessions.history.add("created", name, cause, limits=dict(container.terms.limits) or None)

    def _open(self, volume: Volume) -> Container:
        terms = parse_options(volume.options, self._devices)
        folder = self._store.make_folder(volume.name)
        path = folder / "scheduler.sock"
        listener = Listener(self._loop, path, 0o666, self._store.staging, lambda sock: self._accept(volume.name, sock))
        container = Container(volume, terms, listener, limited=bool(terms.limits))
        self.by_name[volume.name] = container
        self._sessions.happen(e.ContainerCreated(volume.name, terms.limits, terms.wait, terms.priority))
        return container

    def _close(self, container: Container) -> None:
        name = container.volume.name
        container.listener.close()
        del self.by_name[name]
        self._on_removed(name)
        self._sessions.happen(e.ContainerRemoved(name))
        self._store.remove_folder(name)

    def declare(self, name: str, memory: str) -> None:
        """Set the limits of a container whose volume names none, by its CONVGPU_MEMORY; the first word counts.

        Raises:
            OptionError: there is none, or it cannot be.
        """
        container = self.by_name.get(name)
        if container is None:
            raise OptionError("the volume of this container is removed: start the container again")
        if container.limited:
            return
        if not memory:
            raise OptionError(
                "this container has no GPU memory limit: give its volume one (volume-opt=memory=2g) "
                "or the container a variable (-e CONVGPU_MEMORY=2g)"
            )
        limits = parse_limits(memory, container.terms.devices)
        container.limited = True
        self._sessions.happen(e.LimitsSet(name, limits))

    def mount(self, name: str, mount_id: str) -> str:
        """Count a mount and return the mountpoint.

        Raises:
            ContainerRefusedError: unknown name.
        """
        container = self._known(name)
        first = not container.mounted
        mounts = dict(container.volume.mounts)
        mounts[mount_id] = mounts.get(mount_id, 0) + 1
        self._change(container, mounts)
        if first:
            self._sessions.happen(e.ContainerStarted(name))
            self._sessions.history.add("mounted", name, journal.current() or f"mount:{mount_id}")
        return self.mountpoint(name)

    def mountpoint(self, name: str) -> str:
        """Return the folder of a volume."""
        return str(self._store.folder(name))

    def unmount(self, name: str, mount_id: str) -> None:
        """Count an unmount; the last one ends the container. One too many is logged and forgotten.

        Raises:
            ContainerRefusedError: unknown name.
        """
        container = self._known(name)
        mounts = dict(container.volume.mounts)
        if mount_id not in mounts:
            log.warning("unmount of %s with id %s, which is not mounted", name, mount_id)
            return
        mounts[mount_id] -= 1
        self._change(container, {each: count for each, count in mounts.items() if count})
        if not container.mounted:
            self._sessions.happen(e.ContainerEnded(name))
            self._sessions.history.add("ended", name, journal.current() or f"unmount:{mount_id}")

    def _change(self, container: Container, mounts: dict[str, int]) -> None:
        """Set the mounts, saved before anything follows from them; unsaved they stay as they were."""
        volume = container.volume
        before = (volume.mounts, volume.ended)
        volume.mounts, volume.ended = mounts, not mounts
        try:
            self._save()
        except OSError:
            volume.mounts, volume.ended = before
            raise

    def remove(self, name: str) -> None:
        """Forget a volume; an unknown one is no error.

        Raises:
            ContainerRefusedError: processes of the container are still connected.
        """
        container = self.by_name.get(name)
        if container is None:
            if self._unfit.pop(name, None) is not None:
                self._store.remove_folder(name)
                self._save()
            return
        if self._sessions.of(name):
            raise ContainerRefusedError("busy", f"volume {name} is in use: stop its container first")
        self._close(container)
        self._sessions.history.add("removed", name, journal.current() or f"remove:{name}")
        self._save()

    def close(self) -> None:
        """Stop listening."""
        for container in self.by_name.values():
            container.listener.close()

    def _known(self, name: str) -> Container:
        if name in self._unfit:
            raise ContainerRefusedError("invalid", f"volume {name} cannot be used now: {self._unfit[name][1]}")
        try:
            return self.by_name[name]
        except KeyError:
            raise ContainerRefusedError("unknown", f"no volume {name}") from None

    def _save(self) -> None:
        kept = [volume for volume, _ in self._unfit.values()]
        self._store.save([*kept, *(container.volume for container in self.by_name.values())])
