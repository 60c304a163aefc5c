"""Settings that administrators change while containers run: limits, drained devices, the policy; kept over restarts."""

import secrets
from collections.abc import Sequence
from typing import Final

from convgpu.core import events as e
from convgpu.core.residency.events import ResumeAsked, SuspendAsked
from convgpu.core.volume_options import DeviceCapacity, OptionError, parse_limits
from convgpu.daemon.containers.registry import ContainerRefusedError, ContainerRegistry, VolumeContainer
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.storage.history import History
from convgpu.daemon.storage.store import Store
from convgpu.logs.cause import current_cause
from convgpu.policies.memory import POLICIES
from convgpu.protocol import records
from convgpu.protocol.event_kinds import EventKind

_SUSPENDED: Final = "suspended"  # names of volumes, which have no spaces


class LiveSettings:
    """Changes settings, and restores those that an earlier scheduler was given.

    Args:
        capacities: of the devices, kept up to date.
        policy: the value of the setting. A policy that was chosen live stays until the setting changes.
    """

    def __init__(
        self,
        containers: ContainerRegistry,
        driver: MachineDriver,
        sessions: SessionRegistry,
        history: History,
        store: Store,
        capacities: Sequence[DeviceCapacity],
        policy: str,
    ) -> None:
        self._containers = containers
        self._driver = driver
        self._sessions = sessions
        self._history = history
        self._store = store
        self._capacities = capacities
        self._setting = policy

    def restore(self) -> None:
        """Drain devices and set targets as under the earlier scheduler. Its containers must be restored before.

        Raises:
            OSError: the database cannot be read.
        """
        assert self._containers.is_restored, "containers must be restored before their targets"  # noqa: S101
        for device in self._store.devices.drained() & {row.uuid for row in self._capacities}:
            self._driver.dispatch(e.DeviceDrained(device, drained=True))
        for name, targets in self._store.volumes.targets().items():
            if name in self._containers.by_name:
                self._driver.dispatch(e.LimitsChanged(name, targets))
        for name in self._suspended():
            if name in self._containers.by_name:
                self._driver.dispatch(SuspendAsked(name))

    def _suspended(self) -> list[str]:
        return list(filter(None, (self._store.settings.get(_SUSPENDED) or "").split(" ")))

    def suspend(self, name: str, *, suspended: bool) -> None:
        """Suspend a container until it is resumed, or resume it; over restarts too.

        Raises:
            ContainerRefusedError: no such container, or its memory may not leave its devices.
            OSError: it cannot be written; nothing has changed.
        """
        if not self._containers.require(name).terms.may_leave:
            text = f"the memory of {name} may not leave its GPUs: create its volume with the option suspend=auto"
            raise ContainerRefusedError("invalid", text)
        others = [other for other in self._suspended() if other != name and other in self._containers.by_name]
        self._store.settings.set(_SUSPENDED, " ".join([*others, name] if suspended else others) or None)
        self._driver.dispatch(SuspendAsked(name) if suspended else ResumeAsked(name))

    def set_limits(self, name: str, memory: str) -> records.LimitChanges:
        """Set targets for the limits; a lower limit comes into force as memory is freed.

        Raises:
            ContainerRefusedError: no such container, or an invalid limit.
            OSError: it cannot be written; nothing has changed.
        """
        container = self._containers.require(name)
        limits = self._parse(container, memory)
        if not container.volume.limits:
            self._containers.declare(name, memory)
        self._store.volumes.set_targets(name, limits)
        cause = current_cause() or f"set:{name}"
        self._history.add(EventKind.LIMITED, name, cause, limits=limits)
        self._driver.dispatch(e.LimitsChanged(name, limits))
        accounts = self._driver.machine.accounts(name)
        rows = [
            records.LimitChange(
                uuid=uuid,
                limit=accounts[uuid].limit,
                target=limit,
                usage=self._sessions.used(name, uuid) + accounts[uuid].charged,
            )
            for uuid, limit in limits.items()
        ]
        return records.LimitChanges(devices=tuple(rows))

    def _parse(self, container: VolumeContainer, memory: str) -> dict[str, int]:
        own = container.volume.limits or {device.uuid: 0 for device in container.terms.devices}
        try:
            limits = parse_limits(memory, [row for row in self._capacities if row.uuid in own])
            self._containers.check_gang(container.volume.name, container.terms, {**own, **limits})
        except OptionError as error:
            raise ContainerRefusedError("invalid", str(error)) from error
        return limits

    def drain(self, device: str, *, drained: bool) -> None:
        """Give no new grants on a device (UUID or index), or give them again.

        Raises:
            ContainerRefusedError: no such device.
            OSError: it cannot be written; nothing has changed.
        """
        for row in self._capacities:
            if device in {row.uuid, str(row.index)}:
                self._store.devices.set_drained(row.uuid, drained)
                self._driver.dispatch(e.DeviceDrained(row.uuid, drained=drained))
                return
        known = ", ".join(f"{row.index} ({row.uuid})" for row in self._capacities)
        raise ContainerRefusedError("unknown", f"no device {device!r}; devices: {known}")

    def choose_policy(self, name: str | None) -> records.PolicyChoice:
        """Choose another policy; None changes nothing.

        Raises:
            ContainerRefusedError: no such policy.
            OSError: it cannot be written; nothing has changed.
        """
        if name is not None:
            if name not in POLICIES:
                raise ContainerRefusedError("invalid", f"no policy {name!r}; there are {', '.join(sorted(POLICIES))}")
            self._store.settings.set("policy", f"{self._setting} {name}")
            self._driver.dispatch(e.PolicyChosen(name, draw_seed()))
        return records.PolicyChoice(policy=self.policy, known=tuple(sorted(POLICIES)))

    @property
    def policy(self) -> str:
        """The name of the current policy."""
        return self._driver.machine.policy.name


def draw_seed() -> int:
    """Return the seed of a policy that chooses at random."""
    return secrets.randbits(64)


def chosen_policy(store: Store, setting: str) -> str:
    """Return the name of the initial policy: the one chosen live, unless the setting has changed since."""
    then, _, chosen = (store.settings.get("policy") or "").partition(" ")
    return chosen if then == setting and chosen in POLICIES else setting
