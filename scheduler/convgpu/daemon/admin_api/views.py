"""Records of containers and devices for administrators."""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal

from convgpu.core.turns.views import ResidenceView
from convgpu.core.volume_options import parse_pause_and_priority
from convgpu.daemon.admin_api.card_turns import CardTurns
from convgpu.daemon.audit.capacity import Capacities
from convgpu.daemon.audit.report import AuditReport
from convgpu.daemon.containers.pause_text import PauseText
from convgpu.daemon.containers.registry import ContainerRefusedError, VolumeContainer
from convgpu.daemon.gpu.nvml import Device
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import Session
from convgpu.protocol import records
from convgpu.protocol.records import Telemetry

# Rows of containers that are made at once; one takes some 20 us.
_SLICE: Final = 50


class Views:
    """Makes records of the current state of containers and devices.

    Args:
        pauses: of the containers that are shown; knows deadlines and estimates.
        devices: all devices of the host.
        capacities: of the devices, kept up to date.
        report: of the audit.
        turns: on the cards.
    """

    def __init__(
        self,
        pauses: PauseText,
        driver: MachineDriver,
        sessions: SessionRegistry,
        devices: Sequence[Device],
        capacities: Capacities,
        report: AuditReport,
        turns: CardTurns,
    ) -> None:
        self._pauses, self._containers = pauses, pauses.containers
        self._driver = driver
        self._sessions = sessions
        self._capacities = capacities
        self._report = report
        self._turns = turns
        self._devices = devices

    def container(self, name: str) -> records.Containers:
        """Return one container.

        Raises:
            ContainerRefusedError: no container has that name.
        """
        if name not in self._containers.by_name:
            raise ContainerRefusedError("unknown", f"no volume {name}")
        return records.Containers(containers=(self._container(self._containers.by_name[name], self._waiting()),))

    async def containers(self) -> records.Containers:
        """Return all containers, oldest first; each as it is when its row is made, in between others have their turns.

        Of those that are made or removed meanwhile, some may be left out.
        """
        known, waiting = self._containers.by_name, self._waiting()
        chosen = sorted(known.values(), key=lambda container: (container.volume.created, container.volume.name))
        found = []
        for first in range(0, len(chosen), _SLICE):
            present = (one for one in chosen[first : first + _SLICE] if known.get(one.volume.name) is one)
            found += [self._container(container, waiting) for container in present]
            await asyncio.sleep(0)
        return records.Containers(containers=tuple(found))

    def active_containers(self) -> records.ActiveContainers:
        """Return the containers that run or wait, with what figures of them need, and how many others there are."""
        sessions, waiting = self._sessions.by_container(), self._waiting(behind=False)
        holders = frozenset(self._driver.machine.holders)
        found, others = [], Counter[tuple[Literal["created", "running", "ended"], str | None]]()
        for name, container in self._containers.by_name.items():
            state, engine = container.volume.state, container.volume.engine
            residence = self._driver.machine.residence(name)
            stance = residence.state if residence else None
            waits, processes = waiting.get(name, ()), len(sessions.get(name, ()))
            if not waits and not processes and not (state == "running" and (engine or name in holders)):
                others[state, stance] += 1
                continue
            waited_for = {row.uuid for row in waits}
            has_shares = waits or name in holders
            row = records.ActiveContainer(
                name=name,
                engine=engine,
                state="waiting" if waits else "running",
                residency=stance,
                processes=processes,
                devices=tuple(self._shares(name, residence, waited_for)) if has_shares else (),
                waiting=tuple(waits),
            )
            found.append(row)
        counts = (records.ContainerCount(*each, count) for each, count in others.items())
        return records.ActiveContainers(tuple(found), tuple(counts))

    def _container(
        self, container: VolumeContainer, all_waiting: Mapping[str, Sequence[records.Waiting]]
    ) -> records.Container:
        volume = container.volume
        residence, sessions = self._driver.machine.residence(volume.name), self._sessions.of(volume.name)
        waiting = all_waiting.get(volume.name, ())
        state: Literal["created", "running", "waiting", "ended"] = "running" if sessions else volume.state
        since = volume.since
        if waiting:
            state, since = "waiting", min(allocation.since for allocation in waiting)
        return records.Container(
            name=volume.name,
            engine=volume.engine,
            priority=container.terms.priority,
            wait=container.terms.wait,
            admit="whole" if container.terms.is_whole else "part",
            gang=container.terms.gang,
            since=since,
            mountpoint=self._containers.mountpoint(volume.name),
            created=volume.created,
            state=state,
            mounts=sum(mount.count for mount in volume.mounts.values()),
            devices=tuple(self._shares(volume.name, residence)),
            sessions=tuple(self._session(session) for session in sessions),
            waiting=tuple(waiting),
            residency=residence.state if residence else None,
            suspended=residence is not None and residence.is_suspended,
            turn=self._turns.of(volume.name),
            deep=residence is not None and residence.is_deep,
            backing="unified" if container.terms.is_unified else "vmm",
            placement=self._placement(volume.name),
            injected=container.is_injected,
            own_priority=parse_pause_and_priority(volume.options)[1] if "priority" in volume.changed else None,
        )

    def _shares(
        self, name: str, residence: ResidenceView | None, waited_for: Collection[str] | None = None
    ) -> list[records.Share]:
        """Return what a container has of its devices; of those without a grant only the ones that it waits for.

        `waited_for`: None for all of them.
        """
        return [
            records.Share(
                uuid=uuid,
                limit=account.limit,
                grant=account.grant,
                usage=self._sessions.used_of(account, uuid) + account.charged,
                seen=self._report.seen_of(name, uuid),
                target=account.target,
                out=residence.out.get(uuid, 0) if residence else 0,
                fixed=residence.fixed.get(uuid, 0) if residence else 0,
                peak=self._sessions.peak(name, uuid),
                learned=account.learned,
            )
            for uuid, account in self._driver.machine.accounts(name).items()
            if waited_for is None or account.grant or uuid in waited_for
        ]

    def _placement(self, name: str) -> records.Placement | None:
        machine = self._driver.machine
        choice, placement = machine.choice(name), machine.placement(name)
        if choice is None:
            return None
        rows = placement.compared if placement else ()
        return records.Placement(
            count=choice.count,
            limits=dict(machine.offer(name)),
            uuids=placement.devices if placement else (),
            policy=placement.policy if placement else "",
            compared=tuple(
                records.ComparedDevice(
                    uuid=row.device,
                    limit=row.limit,
                    capacity=row.capacity,
                    free=row.free,
                    promised=row.promised,
                    containers=row.containers,
                    obstacle=row.obstacle,
                )
                for row in rows
            ),
        )

    def _session(self, session: Session) -> records.Session:
        usage = tuple(
            records.SessionShare(uuid=uuid, usage=self._sessions.used_by(session, uuid)) for uuid in session.rows
        )
        return records.Session(pid=session.pid, program=session.program, since=session.since, devices=usage)

    def _waiting(self, *, behind: bool = True) -> dict[str, list[records.Waiting]]:
        """Return what waits by container; `behind`: with the containers that it waits for, and until when about."""
        grouped: dict[str, list[records.Waiting]] = {}
        waits = self._driver.explain(behind=behind)
        for allocation in self._driver.machine.waiting:
            pending, wait = self._sessions.pending[allocation.request], waits[allocation.request]
            row = records.Waiting(
                uuid=allocation.device,
                size=allocation.size,
                call=pending.call,
                pid=pending.session.pid,
                since=pending.since,
                missing=max(0, wait.missing - wait.free),
                reason=wait.reason,
                ahead=wait.ahead,
                behind=wait.behind,
                free=wait.free,
                deadline=self._pauses.deadline(pending),
                estimate=self._pauses.estimate(wait.behind),
            )
            grouped.setdefault(allocation.container, []).append(row)
        return grouped

    def devices(self) -> list[records.Device]:
        """Return all devices, those without capacity included."""
        capacity = {row.uuid: row.capacity for row in self._capacities.rows}
        return [self._device(device, capacity[device.uuid]) for device in self._devices]

    def surviving(self) -> tuple[str, ...]:
        """Return a line for each that was ended some seconds ago and is still there."""
        return tuple(
            f"{name} was ended, and is still there: {why}" for name, why in sorted(self._report.surviving.items())
        )

    def _device(self, device: Device, capacity: int) -> records.Device:
        figures = self._driver.machine.device(device.uuid)
        pool, promised = self._turns.host_pool(device.uuid)
        return records.Device(
            uuid=device.uuid,
            index=device.index,
            name=device.name,
            total=self._capacities.total[device.uuid],
            capacity=capacity,
            granted=figures.usable - figures.free,
            used=self._sessions.used_on(device.uuid),
            settling=self._driver.machine.settling(device.uuid),
            external=self._capacities.external[device.uuid],
            health=self._report.health.get(device.uuid, "ok"),
            drained=device.uuid in self._driver.machine.drained,
            out=self._driver.machine.out(device.uuid),
            granule=self._containers.granule,
            reuse_count=self._driver.machine.reuse(device.uuid),
            elastic=self._driver.machine.elastic_beside("", device.uuid),
            pool=pool,
            promised=capacity + promised,
            moves=self._turns.on(device.uuid),
            telemetry=self._report.telemetry.get(device.uuid, Telemetry()),
            unlimited=(
                *self._report.unlimited.get(device.uuid, ()),
                *self._report.left.get(device.uuid, ()),
                *self._capacities.outliving.rows(device.uuid),
            ),
        )
