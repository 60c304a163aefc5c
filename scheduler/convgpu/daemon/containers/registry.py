"""The registry of containers: their volumes, options, mounts and sockets."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from convgpu.core import events as e
from convgpu.core.gangs import Member
from convgpu.core.liveness import LivenessDecision, Mount, evaluate
from convgpu.core.residency.events import ElasticSet, UnifiedSet
from convgpu.core.volume_options import (
    DeviceCapacity,
    OptionError,
    Terms,
    beside_host,
    parse_limits,
    parse_options,
)
from convgpu.daemon.containers.acceptor import ConnectionAcceptor
from convgpu.daemon.containers.checks import check_member, check_reuse_counts, read_terms
from convgpu.daemon.containers.folders import Folders
from convgpu.daemon.containers.sockets import MAX_UNMOUNTED, ContainerSockets
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.storage.history import History
from convgpu.daemon.storage.rows import Volume
from convgpu.daemon.storage.run_times import describe_run
from convgpu.daemon.storage.volumes import VolumeTable
from convgpu.logs.cause import current_cause
from convgpu.protocol.event_kinds import EventKind

log = logging.getLogger(__name__)


class ContainerRefusedError(Exception):
    """A refused request. `code`: `invalid`, `unknown` or `busy`; the text is for the user."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(slots=True)
class VolumeContainer:
    """A volume with its options as parsed."""

    volume: Volume
    terms: Terms

    @property
    def runs(self) -> bool:
        """Whether the container runs, by the last liveness decision."""
        return self.volume.state == "running"

    @property
    def is_injected(self) -> bool:
        """Whether `convgpu-runtime` registered it: by its id, as which it is mounted or the Engine knows it."""
        volume = self.volume
        return volume.name in volume.mounts or (volume.engine is not None and volume.engine.id == volume.name)


class ContainerRegistry:
    """All containers by the name of their volume.

    Attributes:
        granule: limit in bytes of a container that names none; 0: such a one is refused.
        host_memory: bytes of the host's memory that one container may have beside a device (`backing=unified`).
        contexts: bytes of each device that a CUDA context takes at least, where one was seen.

    Args:
        devices: the capacities of the devices, kept up to date.
        wall_clock: Unix seconds.
    """

    def __init__(
        self,
        store: VolumeTable,
        folders: Folders,
        driver: MachineDriver,
        sessions: SessionRegistry,
        history: History,
        devices: Sequence[DeviceCapacity],
        wall_clock: Callable[[], float],
    ) -> None:
        self.by_name: dict[str, VolumeContainer] = {}
        self._store = store
        self._folders = folders
        self._driver = driver
        self._sessions = sessions
        self._history = history
        self._devices = devices
        self._wall_clock = wall_clock
        self.granule = 0
        self.host_memory: Mapping[str, int] = {}
        self.contexts: Mapping[str, int] = {}
        self._unusable: dict[str, str] = {}  # volumes of an earlier run, with the reason
        self._opened: ContainerSockets | None = None

    @property
    def is_restored(self) -> bool:
        """Whether `restore` was called; before, no container has a socket."""
        return self._opened is not None

    @property
    def devices(self) -> list[DeviceCapacity]:
        """The devices as they are now, drained or not."""
        drained, host = self._driver.machine.drained, self.host_memory
        now = [replace(d, drained=d.uuid in drained, host=host.get(d.uuid, 0)) for d in self._devices]
        return [replace(d, context=self.contexts.get(d.uuid, 0)) for d in now]

    def restore(self, acceptor: ConnectionAcceptor) -> None:
        """Open the volumes that an earlier scheduler left.

        A volume that cannot be used now (a device is missing, or smaller) stays in the database. External memory does
        not make a volume unusable, nor a drained device: its container may be running.

        Args:
            acceptor: gets the connections to the sockets of containers.
        """
        self._opened = ContainerSockets(self._folders, acceptor, lambda name: bool(self._sessions.of(name)))
        opened: list[Volume] = []
        known = sorted(self._store.all(), key=lambda one: (one.state != "running", one.since))  # whose programs wait
        for later, volume in zip(reversed(range(len(known))), known, strict=True):
            try:
                self._reopen(volume, listens=later < MAX_UNMOUNTED or volume.state == "running")
            except (OptionError, OSError) as error:
                log.error("volume %s of an earlier run cannot be used now: %s", volume.name, error)
                self._unusable[volume.name] = str(error)
                continue
            opened.append(volume)
        for volume in sorted(opened, key=lambda volume: volume.since):  # the machine orders containers by their starts
            if volume.state != "created":  # a gang does not wait for one that has ended
                is_running = volume.state == "running"
                self._driver.dispatch((e.ContainerStarted if is_running else e.ContainerEnded)(volume.name))

    def create(self, name: str, options: dict[str, str]) -> None:
        """Create a volume. An existing volume with the same options is no error.

        Raises:
            ContainerRefusedError: invalid options, or the volume exists with other options.
            OSError: it cannot be written; nothing has changed.
        """
        if (existing := self.by_name.get(name)) is not None:
            if options == existing.volume.options:
                return
            if not existing.is_injected or existing.runs or self._sessions.of(name):
                text = f"volume {name} exists with other options; remove it first: docker volume rm {name}"
                raise ContainerRefusedError("invalid", text)
            self.remove(name)  # of a start whose end was never registered; Docker has no such volume to remove
        now = self._wall_clock()
        volume = Volume(name, options, now, since=now)
        try:
            terms = parse_options(options, self.devices)
            volume.choice = terms.choice
            self.check_gang(name, terms, terms.limits)
            self._check_reuse(name, terms, terms.limits)
            container = self._open(volume, terms, terms.limits)
        except OptionError as error:
            raise ContainerRefusedError("invalid", str(error)) from error
        volume.limits = dict(container.terms.limits)
        try:
            self._store.add(volume)
        except OSError:
            self._close(container)
            raise
        self._unusable.pop(name, None)
        cause = current_cause() or f"create:{name}"
        self._history.add(EventKind.CREATED, name, cause, limits=dict(container.terms.limits) or None)

    def _reopen(self, volume: Volume, *, listens: bool) -> None:
        """Open a volume of an earlier run, checked by nominal capacities; devices without capacity are left out."""
        devices = [replace(device, capacity=device.nominal, context=0, drained=False) for device in self.devices]
        terms, limits = read_terms(volume, devices)
        if limits and volume.placed is not None and not limits.keys() >= set(volume.placed.devices):
            volume.placed = None
        self._open(volume, terms, limits, listens=listens)

    def prepare(self, name: str, *, mounted: bool) -> None:
        """See to the files of a volume, which a container or `docker cp` may have changed. Raises OSError."""
        self._folders.restore(name)
        self._sockets.open(name, mounted=mounted)

    def _open(
        self, volume: Volume, terms: Terms, limits: Mapping[str, int], *, listens: bool = True
    ) -> VolumeContainer:
        container = VolumeContainer(volume, terms)
        if listens:
            self.prepare(volume.name, mounted=container.runs)
        self.by_name[volume.name] = container
        created = e.ContainerCreated(
            volume.name,
            limits,
            terms.wait,
            terms.priority,
            is_whole=terms.is_whole,
            gang=terms.gang,
            gang_size=terms.gang_size,
            choice=terms.choice,
            placed=volume.placed,
        )
        self._driver.dispatch(created)
        self._set_elastic(container, limits)
        return container

    def check_gang(self, name: str, terms: Terms, limits: Mapping[str, int]) -> None:
        """Check that a container can belong to its gang with these limits.

        Raises:
            OptionError: it cannot; the text names what would do.
        """
        known = [(other, container.terms) for other, container in self.by_name.items()]
        check_member(self._driver.machine, known, self._devices, Member(name, terms, limits))

    def _check_reuse(self, name: str, terms: Terms, limits: Mapping[str, int]) -> None:
        check_reuse_counts(self._driver.machine, Member(name, terms, limits), self._devices)

    def _set_elastic(self, container: VolumeContainer, limits: Mapping[str, int]) -> None:
        if container.terms.is_unified:
            self._driver.dispatch(UnifiedSet(container.volume.name))
        if container.terms.may_leave and limits:
            epoch = int(self._wall_clock() * 1000)  # so that no stop has the number of one of an earlier scheduler
            self._driver.dispatch(ElasticSet(container.volume.name, container.terms.fixed_shares(limits), epoch))

    def fixed_shares(self, name: str) -> Mapping[str, int]:
        """Return what processes of a container may have at once of memory that cannot leave, in bytes per device."""
        container = self.by_name.get(name)
        return {} if container is None else container.terms.fixed_shares(container.volume.limits)

    def most_fixed(self, name: str) -> Mapping[str, int]:
        """Return the most of it, in bytes per device: the option `fixed`, without it the limit."""
        container = self.by_name.get(name)
        if container is None:
            return {}
        is_free = container.terms.fixed is None
        return container.volume.limits if is_free else container.terms.fixed_shares(container.volume.limits)

    def may_leave(self, name: str) -> bool:
        """Say whether the memory of a container may leave its devices."""
        return name in self.by_name and self.by_name[name].terms.may_leave

    def is_unified(self, name: str) -> bool:
        """Say whether the memory of a container is managed by the driver, and may be more than its device has."""
        return name in self.by_name and self.by_name[name].terms.is_unified

    @property
    def _sockets(self) -> ContainerSockets:
        assert self._opened is not None, "call restore before any socket is made"  # noqa: S101
        return self._opened

    def _close(self, container: VolumeContainer) -> None:
        name = container.volume.name
        del self.by_name[name]
        self._sockets.close(name)
        self._driver.dispatch(e.ContainerRemoved(name))
        self._folders.remove(name)

    def declare(self, name: str, memory: str) -> None:
        """Set the limits of a container from its variable CONVGPU_MEMORY, unless it has limits already.

        Raises:
            OptionError: no such container, no variable, or an invalid limit.
            OSError: it cannot be written; nothing has changed.
        """
        container = self.by_name.get(name)
        if container is None:
            raise OptionError("the volume of this container is removed: start the container again")
        if container.volume.limits:
            return
        memory = memory or (str(self.granule) if self.granule else "")
        if not memory:
            raise OptionError(
                "this container has no GPU memory limit: give its volume one (volume-opt=memory=2g) "
                "or the container a variable (-e CONVGPU_MEMORY=2g)"
            )
        own = {device.uuid for device in container.terms.devices}
        devices = [device for device in self.devices if device.uuid in own]  # by current capacities
        if container.terms.is_unified:
            devices = [beside_host(device) for device in devices]
        limits = parse_limits(memory, devices, container.terms.choice)
        self.check_gang(name, container.terms, limits)
        self._check_reuse(name, container.terms, limits)
        self._store.set_limits(name, limits, self._wall_clock())
        container.volume.limits = limits
        self._driver.dispatch(e.LimitsSet(name, limits))
        self._set_elastic(container, limits)

    def mount(self, name: str, mount_id: str) -> str:
        """Count a mount and return the mountpoint.

        Raises:
            ContainerRefusedError: unknown name, or as many containers as may are on its devices.
            OSError: it cannot be written; nothing has changed.
        """
        container = self.require(name)
        others = container.volume.mounts.keys() - {name} if mount_id == name else container.is_injected
        if others:
            raise ContainerRefusedError("busy", f"{name} is a container as well: name the volume otherwise")
        if not container.runs:
            try:
                self._check_reuse(name, container.terms, container.volume.limits)
            except OptionError as error:
                raise ContainerRefusedError("invalid", str(error)) from error
        self.prepare(name, mounted=container.runs)
        mounts = dict(container.volume.mounts)
        now = self._wall_clock()
        count = mounts[mount_id].count if mount_id in mounts else 0
        mounts[mount_id] = Mount(count + 1, now)
        self.apply(container, evaluate(mounts, connected=False, now=now), f"mount:{mount_id}")
        return self.mountpoint(name)

    def mountpoint(self, name: str) -> str:
        """Return the folder of a volume."""
        return self._folders.mountpoint(name)

    def unmount(self, name: str, mount_id: str) -> None:
        """Count an unmount; the last one ends the container. A surplus unmount is logged and ignored.

        Raises:
            ContainerRefusedError: unknown name.
            OSError: it cannot be written; nothing has changed.
        """
        container = self.require(name)
        mounts = dict(container.volume.mounts)
        mount = mounts.pop(mount_id, None)
        if mount is None:
            log.warning("unmount of %s with id %s, which is not mounted", name, mount_id)
        elif mount.count > 1:
            mounts[mount_id] = Mount(mount.count - 1, mount.since)
        self.apply(container, evaluate(mounts, connected=False, now=self._wall_clock()), f"unmount:{mount_id}")

    def apply(self, container: VolumeContainer, decision: LivenessDecision, cause: str) -> None:
        """Apply a liveness decision; it is saved before it takes effect.

        Raises:
            OSError: it cannot be written; nothing has changed.
        """
        volume = container.volume
        name, ran = volume.name, container.runs
        if decision.runs == ran and decision.mounts == volume.mounts:
            return
        has_changed = decision.runs != ran
        began = volume.since
        state = "running" if decision.runs else "ended" if ran else volume.state
        since = self._wall_clock() if has_changed else volume.since
        self._store.set_mounts(name, decision.mounts, state, since)
        volume.mounts, volume.state, volume.since = dict(decision.mounts), state, since
        if has_changed:
            self._sockets.mark(name, mounted=decision.runs)
            self._driver.dispatch(e.ContainerStarted(name) if decision.runs else e.ContainerEnded(name))
            kind = EventKind.MOUNTED if decision.runs else EventKind.ENDED
            run = {} if decision.runs else describe_run(volume, since - began)
            self._history.add(kind, name, current_cause() or cause, **run)

    def remove(self, name: str) -> None:
        """Remove a volume; an unknown name is no error.

        Raises:
            ContainerRefusedError: processes of the container are still connected.
            OSError: it cannot be written; nothing has changed.
        """
        container = self.by_name.get(name)
        if container is not None and self._sessions.of(name):
            raise ContainerRefusedError("busy", f"volume {name} is in use: stop its container first")
        if container is None and name not in self._unusable:
            return
        if container is not None and container.is_injected and container.runs:
            raise ContainerRefusedError("busy", f"container {name:.12} runs with this limit: stop it first")
        self._store.remove(name)
        if container is None:
            del self._unusable[name]
            self._folders.remove(name)
        else:
            self._close(container)
            engine_name = container.volume.engine.name if container.volume.engine else None
            self._history.add(EventKind.REMOVED, name, current_cause() or f"remove:{name}", name=engine_name)

    def close(self) -> None:
        """Stop listening."""
        if self._opened is not None:
            self._opened.close_all()

    def names(self) -> list[str]:
        """Return the names of all volumes, unusable ones included."""
        return [*self.by_name, *self._unusable]

    def require(self, name: str) -> VolumeContainer:
        """Return a container.

        Raises:
            ContainerRefusedError: unknown name, or a volume that cannot be used now.
        """
        if name in self._unusable:
            raise ContainerRefusedError("invalid", f"volume {name} cannot be used now: {self._unusable[name]}")
        try:
            return self.by_name[name]
        except KeyError:
            raise ContainerRefusedError("unknown", f"no volume {name}") from None
