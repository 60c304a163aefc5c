"""What the total quotas of a site are used for now, for its administrators."""

from collections.abc import Iterable, Mapping

from convgpu.authz.facts.owners import Left, Owners, Present, QuotaSubject
from convgpu.authz.ports import EnginePort, SchedulerPort
from convgpu.authz.site.rules import Rules
from convgpu.protocol.records import Device, Record


class QuotaUse(Record, frozen=True):
    """What the containers of a user or a label have of one GPU, in bytes, and how much they may have.

    `kind` is `user` or `label`; `running` adds up the limits of those that run, `left` is what ended ones left.
    """

    kind: str
    name: str
    device: str
    running: int
    left: int
    total_quota: int


def find_present(owners: Owners, scheduler: SchedulerPort, engine: EnginePort) -> Present:
    """Return what there is of containers now; ask the Engine only where the scheduler does not know.

    Raises:
        EngineUnreachable, SchedulerUnavailable, SchedulerRefused: who is asked does not answer.
    """
    known = {record.name: record for record in scheduler.all()}
    states: Mapping[str, str] = engine.states() if owners.need_states(known) else {}
    return Present(known, states, left_behind(scheduler.devices()))


def left_behind(devices: Iterable[Device]) -> list[Left]:
    """Return what containers left behind that have ended, or whose processes have."""
    return [
        Left(one.name, device.uuid, one.size, one.is_charged)
        for device in devices
        for one in device.unlimited
        if one.is_left
    ]


class Quotas:
    """Reads the use of quotas.

    Each start is judged, so a total is above its quota only if containers started that nobody asked about: the Engine
    starts stopped ones by their restart policy when it starts itself, and the quota may be smaller than it was.

    Args:
        owners: of the containers that were admitted.
        scheduler: knows the limits.
        engine: knows whether a container runs that the scheduler does not know.
    """

    def __init__(self, owners: Owners, scheduler: SchedulerPort, engine: EnginePort) -> None:
        self._owners = owners
        self._scheduler = scheduler
        self._engine = engine

    def read(self, rules: Rules) -> tuple[QuotaUse, ...]:
        """Return what each total quota is used for on each GPU where it is; nobody is asked if there is no quota.

        Raises:
            EngineUnreachable, SchedulerUnavailable, SchedulerRefused: who is asked does not answer.
        """
        if not any(one.total_quota for one in (*rules.users.values(), *rules.labels.values())):
            return ()
        self._owners.settle_starts(self._engine)
        with self._owners.lock:
            present = find_present(self._owners, self._scheduler, self._engine)
            return tuple(
                use
                for subject in self._owners.subjects()
                if (bound := _bound(rules, subject)) is not None
                for use in self._uses(subject, bound, present)
            )

    def _uses(self, subject: QuotaSubject, bound: int, present: Present) -> list[QuotaUse]:
        running = self._owners.running_total(subject, present, excluded=())
        left = self._owners.left_total(subject, present, excluded=())
        used = sorted(uuid for uuid in {*running, *left} if running[uuid] + left[uuid] > 0)
        return [QuotaUse(subject.kind, subject.name, uuid, running[uuid], left[uuid], bound) for uuid in used]


def _bound(rules: Rules, subject: QuotaSubject) -> int | None:
    """Return a quota in bytes: a plain number, because msgspec encodes no subclass of int."""
    allowance = rules.allowance(subject.name) if subject.kind == "user" else rules.labels.get(subject.name)
    return None if allowance is None or allowance.total_quota is None else int(allowance.total_quota)
