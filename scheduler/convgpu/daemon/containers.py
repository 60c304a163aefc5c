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
        self._accept: Callable[[str, socket.socket], None] = lambda _, sock: sock.close()

    def restore(self, accept: Callable[[str, socket.socket], None]) -> None:
        """Take up what an earlier scheduler left. A volume that does not fit any more is logged and left out.

        Args:
            accept: gets the name of a volume and each socket that a process of its container connects with.
        """
        self._accept = accept
        for volume in self._store.load():
            try:
                container = self._open(volume)
            except (OptionError, OSError) as error:
                log.error("volume %s of an earlier run is left out: %s", volume.name, error)
                continue
            if container.mounted:
                self._sessions.happen(e.ContainerStarted(volume.name))
        self._save()

    def create(self, name: str, options: dict[str, str], now: float) -> None:
        """Make a volume at `now` (Unix seconds); again with the same options is no error.

        Raises:
            ContainerRefusedError: the options cannot be, or the name has others.
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
        self._save()
        self._sessions.history.add("created", name, f"create:{name}", limits=dict(container.terms.limits) or None)

    def _open(self, volume: Volume) -> Container:
        terms = parse_options(volume.options, self._devices)
        folder = self._store.make_folder(volume.name)
        listener = Listener(self._loop, folder / "scheduler.sock", 0o666, lambda sock: self._accept(volume.name, sock))
        container = Container(volume, terms, listener, limited=bool(terms.limits))
        self.by_name[volume.name] = container
        self._sessions.happen(e.ContainerCreated(volume.name, terms.limits, terms.wait))
        return container

    def declare(self, name: str, memory: str) -> None:
        """Set the limits of a container whose volume names none, by its CONVGPU_MEMORY; the first word counts.

        Raises:
            OptionError: there is none, or it cannot be.
        """
        container = self.by_name[name]
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
        mounts = container.volume.mounts
        first = not container.mounted
        mounts[mount_id] = mounts.get(mount_id, 0) + 1
        container.volume.ended = False
        self._save()
        if first:
            self._sessions.happen(e.ContainerStarted(name))
            self._sessions.history.add("mounted", name, f"mount:{mount_id}")
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
        mounts = container.volume.mounts
        if mount_id not in mounts:
            log.warning("unmount of %s with id %s, which is not mounted", name, mount_id)
            return
        mounts[mount_id] -= 1
        if mounts[mount_id] == 0:
            del mounts[mount_id]
        container.volume.ended = not mounts
        self._save()
        if not container.mounted:
            self._sessions.happen(e.ContainerEnded(name))
            self._sessions.history.add("ended", name, f"unmount:{mount_id}")

    def remove(self, name: str) -> None:
        """Forget a volume; an unknown one is no error.

        Raises:
            ContainerRefusedError: processes of the container are still connected.
        """
        container = self.by_name.get(name)
        if container is None:
            return
        if self._sessions.of(name):
            raise ContainerRefusedError("busy", f"volume {name} is in use: stop its container first")
        container.listener.close()
        del self.by_name[name]
        self._sessions.happen(e.ContainerRemoved(name))
        self._sessions.history.add("removed", name, f"remove:{name}")
        self._store.remove_folder(name)
        self._save()

    def close(self) -> None:
        """Stop listening."""
        for container in self.by_name.values():
            container.listener.close()

    def _known(self, name: str) -> Container:
        try:
            return self.by_name[name]
        except KeyError:
            raise ContainerRefusedError("unknown", f"no volume {name}") from None

    def _save(self) -> None:
        self._store.save(container.volume for container in self.by_name.values())
