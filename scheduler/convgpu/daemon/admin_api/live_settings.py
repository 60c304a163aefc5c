"""Settings that administrators change while containers run: limits, drained devices, the policy; kept over restarts."""

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from convgpu.core import events as e
from convgpu.core.placement import PlacementPolicyChosen
from convgpu.core.residency.events import ResumeAsked, SuspendAsked
from convgpu.core.volume_options import OptionError, Terms, parse_limits, parse_pause_and_priority, parse_sizes
from convgpu.daemon.containers.registry import ContainerRefusedError, ContainerRegistry, VolumeContainer
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.storage.history import History
from convgpu.daemon.storage.settings import TAKEN_OFF
from convgpu.daemon.storage.store import Store
from convgpu.logs.cause import current_cause
from convgpu.policies.memory import POLICIES
from convgpu.policies.placement import PLACEMENT_POLICIES
from convgpu.protocol import records
from convgpu.protocol.event_kinds import EventKind
from convgpu.protocol.requests import FOREVER, SetLimits

_SUSPENDED: Final = "suspended"  # names of volumes
_DEEP: Final = "suspended_deep"  # of these, whose contexts leave as well


class LiveSettings:
    """Changes settings, and restores those that an earlier scheduler was given.

    Args:
        policy: the value of the setting. A policy that was chosen live stays until the setting changes.
        placement: the value of the setting, likewise.
    """

    def __init__(
        self,
        containers: ContainerRegistry,
        driver: MachineDriver,
        sessions: SessionRegistry,
        history: History,
        store: Store,
        policy: str,
        placement: str,
    ) -> None:
        self._containers = containers
        self._driver = driver
        self._sessions = sessions
        self._history = history
        self._store = store
        self._setting = policy
        self._placement_setting = placement

    def restore(self) -> None:
        """Drain devices and set targets as under the earlier scheduler. Its containers must be restored before.

        Raises:
            OSError: the database cannot be read.
        """
        assert self._containers.is_restored, "containers must be restored before their targets"  # noqa: S101
        for device in self._store.devices.drained() & {row.uuid for row in self._containers.devices}:
            self._driver.dispatch(e.DeviceDrained(device, drained=True))
        for name, targets in self._store.volumes.targets().items():
            if name in self._containers.by_name:
                self._driver.dispatch(e.LimitsChanged(name, targets))
        for name in self._store.settings.names(_SUSPENDED):
            if name in self._containers.by_name:
                self._driver.dispatch(SuspendAsked(name, name in self._store.settings.names(_DEEP)))

    def _keep(self, setting: str, name: str, *, kept: bool) -> None:
        others = [
            other
            for other in self._store.settings.names(setting)
            if other != name and other in self._containers.by_name
        ]
        self._store.settings.set(setting, " ".join([*others, name] if kept else others) or None)

    def suspend(self, name: str, *, suspended: bool, deep: bool = False) -> None:
        """Suspend a container until it is resumed, or resume it; over restarts too.

        One whose contexts have left keeps them out until it is resumed.

        Raises:
            ContainerRefusedError: no such container, or its memory may not leave its devices.
            OSError: it cannot be written; nothing has changed.
        """
        if not self._containers.require(name).terms.may_leave:
            text = f"the memory of {name} may not leave its GPUs: create its volume with the option suspend=auto"
            raise ContainerRefusedError("invalid", text)
        deep = suspended and (deep or name in self._store.settings.names(_DEEP))
        if deep:
            self._keep(TAKEN_OFF, name, kept=True)
        self._keep(_DEEP, name, kept=deep)
        self._keep(_SUSPENDED, name, kept=suspended)
        self._driver.dispatch(SuspendAsked(name, deep) if suspended else ResumeAsked(name))

    def change(self, request: SetLimits) -> records.LimitChanges:
        """Set targets for the limits of a container, its longest pause and its priority; all that is given, or nothing.

        A lower limit comes into force as memory is freed; the rest at once, for allocations that wait already, too.

        Raises:
            ContainerRefusedError: no such container, or an invalid value.
            OSError: it cannot be written; nothing has changed.
        """
        container = self._containers.require(request.name)
        name, volume = request.name, container.volume
        changed = volume.changed | changed_options(request)
        limits = {} if request.memory is None else self._check_limits(container, request.memory)
        if request.memory is not None and not volume.limits:
            self._containers.declare(name, request.memory)
        self._store.volumes.change(name, limits, changed)
        self._record_change(request, limits)
        if limits:
            self._driver.dispatch(e.LimitsChanged(name, limits))
        if changed != volume.changed:
            volume.changed = changed
            container.terms = with_pause_and_priority(container.terms, volume.options_in_force)
            self._driver.dispatch(e.TermsChanged(name, container.terms.wait, container.terms.priority))
        rows = tuple(self._describe(name, uuid, limit) for uuid, limit in limits.items())
        return records.LimitChanges(rows, container.terms.wait, container.terms.priority)

    def _check_limits(self, container: VolumeContainer, memory: str) -> dict[str, int]:
        if container.terms.is_unified:
            text = (
                f"the limit of {container.volume.name} says how much it may have beside its GPU (backing=unified): "
                "start it anew"
            )
            raise ContainerRefusedError("invalid", text)
        return self._parse(container, memory)

    def _record_change(self, request: SetLimits, limits: Mapping[str, int]) -> None:
        cause, by = current_cause() or f"set:{request.name}", request.by or None
        if limits:
            self._history.add(EventKind.LIMITED, request.name, cause, limits=dict(limits), by=by)
        options = {"wait": request.wait, "priority": request.priority}
        said = ", ".join(f"{option}={text}" for option, text in options.items() if text is not None)
        if said:
            self._history.add(EventKind.CHANGED, request.name, cause, reason=said, by=by)

    def _describe(self, name: str, uuid: str, target: int) -> records.LimitChange:
        account = self._driver.machine.account(name, uuid)
        if account is None:  # the scheduler chooses the container's devices, and this is none of them now
            return records.LimitChange(uuid=uuid, limit=target, target=target, usage=0)
        usage = self._sessions.used(name, uuid) + account.charged
        return records.LimitChange(uuid=uuid, limit=account.limit, target=target, usage=usage)

    def _parse(self, container: VolumeContainer, memory: str) -> dict[str, int]:
        own = container.volume.limits or {device.uuid: 0 for device in container.terms.devices}
        rows = [row for row in self._containers.devices if row.uuid in own]
        try:
            limits = parse_limits(memory, rows, container.terms.choice)
            if container.terms.choice is not None and container.volume.limits:
                # Where the new limit is too high it is set as well: it must not be placed there with the old one.
                limits = parse_sizes(memory, rows)
                self._check_place(container.volume.name, limits)
            self._containers.check_gang(container.volume.name, container.terms, {**own, **limits})
        except OptionError as error:
            raise ContainerRefusedError("invalid", str(error)) from error
        return limits

    def _check_place(self, name: str, limits: Mapping[str, int]) -> None:
        """Raise OptionError if a device on which the container is now could never hold its new limit."""
        placed = [row for row in self._containers.devices if self._driver.machine.account(name, row.uuid) is not None]
        parts = [f"{row.uuid}:{limits[row.uuid]}" for row in placed if row.uuid in limits]
        if parts:
            parse_limits(",".join(parts), placed)

    def drain(self, device: str, *, drained: bool, by: str = "") -> None:
        """Give no new grants on a device (UUID or index), or give them again.

        Raises:
            ContainerRefusedError: no such device.
            OSError: it cannot be written; nothing has changed.
        """
        for row in self._containers.devices:
            if device in {row.uuid, str(row.index)}:
                self._store.devices.set_drained(row.uuid, drained)
                self._record(EventKind.DRAINED if drained else EventKind.UNDRAINED, by, uuid=row.uuid)
                self._driver.dispatch(e.DeviceDrained(row.uuid, drained=drained))
                return
        known = ", ".join(f"{row.index} ({row.uuid})" for row in self._containers.devices)
        raise ContainerRefusedError("unknown", f"no device {device!r}; devices: {known}")

    def choose_policy(self, name: str | None, by: str = "") -> records.PolicyChoice:
        """Choose another policy; None changes nothing.

        Raises:
            ContainerRefusedError: no such policy.
            OSError: it cannot be written; nothing has changed.
        """
        if name is not None:
            if name not in POLICIES:
                raise ContainerRefusedError("invalid", f"no policy {name!r}; there are {', '.join(sorted(POLICIES))}")
            self._store.settings.set("policy", f"{self._setting} {name}")
            self._record(EventKind.POLICY, by, reason=name)
            self._driver.dispatch(e.PolicyChosen(name, draw_seed()))
        return records.PolicyChoice(policy=self.policy, known=tuple(sorted(POLICIES)))

    def choose_placement(self, name: str | None, by: str = "") -> records.PolicyChoice:
        """Choose another policy of placement; None changes nothing.

        Raises:
            ContainerRefusedError: no such policy.
            OSError: it cannot be written; nothing has changed.
        """
        known = tuple(sorted(PLACEMENT_POLICIES))
        if name is not None:
            if name not in PLACEMENT_POLICIES:
                raise ContainerRefusedError("invalid", f"no policy of placement {name!r}; there are {', '.join(known)}")
            self._store.settings.set("placement", f"{self._placement_setting} {name}")
            self._record(EventKind.POLICY, by, reason=f"placement {name}")
            self._driver.dispatch(PlacementPolicyChosen(name))
        return records.PolicyChoice(policy=self.placement, known=known)

    def _record(self, kind: EventKind, by: str, **fields: object) -> None:
        """Record a change that concerns no single container."""
        self._history.add(kind, "", current_cause() or f"{kind}", by=by or None, **fields)

    @property
    def placement(self) -> str:
        """The name of the current policy of placement."""
        return self._driver.machine.placement_policy

    @property
    def policy(self) -> str:
        """The name of the current policy."""
        return self._driver.machine.policy.name


def changed_options(request: SetLimits) -> dict[str, str | None]:
    """Return the options other than `memory` that a request changes; None takes one away.

    Raises:
        ContainerRefusedError: a value is none, or nothing is to be changed.
    """
    given = {"wait": request.wait, "priority": request.priority}
    changed: dict[str, str | None] = {option: text for option, text in given.items() if text is not None}
    if request.memory is None and not changed:
        raise ContainerRefusedError("invalid", "give what is to change: memory, wait or priority")
    if request.wait == FOREVER:
        changed["wait"] = None
    try:
        parse_pause_and_priority({option: text for option, text in changed.items() if text is not None})
    except OptionError as error:
        hint = f", or wait={FOREVER}" if "wait=" in str(error) else ""
        raise ContainerRefusedError("invalid", f"{error}{hint}") from error
    return changed


def with_pause_and_priority(terms: Terms, options: Mapping[str, str]) -> Terms:
    """Return terms with the longest pause and the priority that options say."""
    wait, priority = parse_pause_and_priority(options)
    return replace(terms, wait=wait, priority=priority)


def draw_seed() -> int:
    """Return the seed of a policy that chooses at random."""
    return secrets.randbits(64)


def chosen_placement(store: Store, setting: str) -> str:
    """Return the name of the initial policy of placement, as `chosen_policy`."""
    then, _, chosen = (store.settings.get("placement") or "").partition(" ")
    return chosen if then == setting and chosen in PLACEMENT_POLICIES else setting


def chosen_policy(store: Store, setting: str) -> str:
    """Return the name of the initial policy: the one chosen live, unless the setting has changed since."""
    then, _, chosen = (store.settings.get("policy") or "").partition(" ")
    return chosen if then == setting and chosen in POLICIES else setting
