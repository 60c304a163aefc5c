"""Admits containers that start, within the total quotas of their user and labels."""

from collections.abc import Iterator, Mapping
from functools import cache

from convgpu.authz.checks.limits import asked_limit, missing_limit, too_large, volume_terms
from convgpu.authz.checks.slurm_job import beyond_share
from convgpu.authz.facts.owners import Owners, Present, QuotaSubject, limits_of
from convgpu.authz.ports import EnginePort, SchedulerPort
from convgpu.authz.quotas import find_present
from convgpu.authz.requests.engine_work import longest_stop
from convgpu.authz.requests.routes import Call
from convgpu.authz.subject.injection import expect_limits
from convgpu.authz.subject.subject import Subject
from convgpu.authz.verdict import Denied, Refusal
from convgpu.client.scheduler import SchedulerRefused
from convgpu.cluster.layout import LABEL
from convgpu.protocol.engine_container import EngineState
from convgpu.protocol.sizes import format_size

# Limits in bytes by device, by each name under which the scheduler knows a container.
_LimitsByName = Mapping[str, Mapping[str, int]]


class Admission:
    """Judges the starts of containers by the sums of what runs.

    Args:
        scheduler: knows the limits.
        owners: of the containers that were admitted.
        engine: knows whether a container runs that the scheduler does not know.
    """

    def __init__(self, scheduler: SchedulerPort, owners: Owners, engine: EnginePort) -> None:
        self._scheduler = scheduler
        self._owners = owners
        self._engine = engine

    def admit(self, subject: Subject, call: Call) -> Refusal | None:
        """Admit a container that starts and count it from now on, or return the refusal.

        A volume without a limit gets the container's CONVGPU_MEMORY, or the site's default, before its first program
        could ask for something else.

        Args:
            subject: the container.
            call: that starts it.

        Raises:
            Denied: the scheduler refuses that limit.
        """
        user = subject.caller.user
        if not subject.volumes and (subject.injected is None or subject.injected.memory is None):
            self._owners.starts.begin(user, call.name, ())
            return None
        self._settle(subject)
        # Queries to scheduler and Engine stay under the lock: `Owners.add` forgets every container that they do not
        # list, so an older list would forget one that another thread has just admitted.
        with self._owners.lock:
            limits = self._limits(subject)
            present = self._present()
            refusal = subject.first_refusal(self._refusals(subject, limits, present))
            if refusal is None and (given := self._give_limits(subject)):
                limits |= given  # which may be more than was expected: the scheduler reads what is asked for
                refusal = subject.first_refusal(self._refusals(subject, limits, present))
            if refusal is None:
                stops = call.action == "restart"
                waits = longest_stop(subject.container.stop_timeout, call.query) if stops else 0
                self._owners.starts.begin(user, call.name, limits, waits, container=subject.container.id)
                if limits:
                    self._count(subject, limits, present)
            return refusal

    def begin(self, user: str, call: str) -> None:
        """Note the start of a container of which nothing counts."""
        self._owners.starts.begin(user, call, ())

    def answered(self, user: str, call: str) -> None:
        """Note that the Engine has answered a call that starts the container of this name, or does not get it."""
        self._owners.starts.answered(user, call)

    def foresee(self, subject: Subject) -> Refusal | None:
        """Return why a container that is asked for would not be admitted, if it started now.

        For those that the Engine removes at their ends: `docker run --rm` waits for the removal of one whose start was
        refused, which never comes, before it says why (Docker's command line 28).
        """
        if not subject.volumes and (subject.injected is None or subject.injected.memory is None):
            return None
        self._settle(subject)
        with self._owners.lock:
            return subject.first_refusal(self._refusals(subject, self._expected(subject), self._present()))

    def _settle(self, subject: Subject) -> None:
        """Have the Engine asked about the starts without an answer that count when this container is judged."""
        counted = [one for one, allowance in subject.quotas if allowance.total_quota is not None]
        counted += [_job(subject)] if subject.needs_job else []
        names = {subject.container.id, *(mount.source for mount in subject.volumes)}
        self._owners.settle_starts(self._engine, subject.caller.user, counted, names)

    def _present(self) -> Present:
        return find_present(self._owners, self._scheduler, self._engine)

    def _expected(self, subject: Subject) -> _LimitsByName:
        """Return the limits that a container would start with; its new volumes have no names yet."""
        limits: dict[str, Mapping[str, int]] = {}
        container, devices = subject.container, self._scheduler.devices()
        expect = cache(lambda memory, gpus: expect_limits(memory, container, devices, gpus))  # under the owners' lock
        default = asked_limit(container.environment) or subject.caller.rules.default_limit
        for number, volume in enumerate(subject.volumes):
            record = self._scheduler.find(volume.source) if volume.source else None
            known = limits_of(record) if record is not None else {}
            memory, gpus = volume.options.get("memory") or default, volume.options.get("gpus", "")
            limits[volume.source or f"{number}"] = known or (expect(memory, gpus) if memory else {})
        if subject.injected is not None and subject.injected.memory is not None:
            limits[""] = expect_limits(subject.injected.memory, container, devices)
        return limits

    def _limits(self, subject: Subject) -> dict[str, Mapping[str, int]]:
        """Return the limits of the container's volumes, or the one that is injected, by the scheduler's names.

        Of a volume without one, that which it is going to have.
        """
        limits: dict[str, Mapping[str, int]] = {}
        container, devices = subject.container, self._scheduler.devices()
        expect = cache(lambda memory, gpus: expect_limits(memory, container, devices, gpus))  # under the owners' lock
        memory = self._asked(subject)
        for volume, gpus in {mount.source: mount.options.get("gpus", "") for mount in subject.volumes}.items():
            record = self._scheduler.find(volume)
            if record is not None:  # else the mount itself is going to fail
                expected = expect(memory, gpus) if memory else {}
                limits[volume] = limits_of(record) or expected
        if subject.injected is not None and subject.injected.memory is not None:
            limits[container.id] = expect_limits(subject.injected.memory, container, devices)
        return limits

    @staticmethod
    def _asked(subject: Subject) -> str | None:
        return asked_limit(subject.container.environment) or subject.caller.rules.default_limit

    def _give_limits(self, subject: Subject) -> dict[str, Mapping[str, int]]:
        """Give the container's volumes that have none its limit, and return these.

        Only to who is admitted: it is that of all who mount such a volume from then on.

        Raises:
            Denied: the scheduler refuses it.
        """
        given: dict[str, Mapping[str, int]] = {}
        memory = self._asked(subject)
        for volume in dict.fromkeys(mount.source for mount in subject.volumes):
            record = self._scheduler.find(volume)
            if memory is None or record is None or limits_of(record):
                continue
            try:
                self._scheduler.set_limit(volume, memory)
            except SchedulerRefused as refused:
                raise Denied(Refusal("limit-missing", refused.text)) from refused
            given[volume] = limits_of(self._scheduler.find(volume) or record)
        return given

    def _refusals(self, subject: Subject, limits: _LimitsByName, present: Present) -> Iterator[Refusal]:
        needed = subject.gpu is not None and bool(subject.volumes)
        for name, volume_limits in limits.items():
            if needed and not volume_limits:
                yield missing_limit()
            yield from self._used_by_another(name, present, subject)
            record = present.known.get(name)
            if record is not None and not record.injected:
                yield from volume_terms(subject, record)
        total = _sum(limits)
        yield from too_large(total.values(), subject)
        if subject.needs_job:
            others = self._owners.running_total(_job(subject), present, excluded=limits)
            others += self._owners.left_total(_job(subject), present, excluded=limits)
            yield from beyond_share(subject.job, total, others, subject.job_shares)
        yield from self._exceeded_quotas(subject, limits, total, present)

    def _exceeded_quotas(
        self, subject: Subject, limits: _LimitsByName, total: Mapping[str, int], present: Present
    ) -> Iterator[Refusal]:
        for quota_subject, allowance in subject.quotas:
            bound = allowance.total_quota
            if bound is None:
                continue
            used = self._owners.running_total(quota_subject, present, excluded=limits)
            left = self._owners.left_total(quota_subject, present, excluded=limits)
            for uuid, limit in total.items():
                if used[uuid] + left[uuid] + limit > bound:
                    behind = f", ended ones left {format_size(left[uuid])} behind there" if left[uuid] else ""
                    yield Refusal(
                        "total-quota-exceeded",
                        f"containers of {quota_subject} that run or are being started have "
                        f"{format_size(used[uuid])} on {uuid}{behind}, and with {format_size(limit)} more "
                        f"it would be above {format_size(bound)}.\n"
                        "Stop one of them, or ask for less (volume-opt=memory=..., -e CONVGPU_MEMORY=...)."
                        + (" What names its GPU counts there only." if len(total) > 1 else "")
                        + (" `convgpu ps` says who keeps what was left behind." if behind else ""),
                    )

    def _used_by_another(self, name: str, present: Present, subject: Subject) -> Iterator[Refusal]:
        owner, record = self._owners.user_of(name), present.known.get(name)
        if owner in {None, subject.caller.user}:
            return
        if any(one.name == name for one in present.left):
            yield Refusal(
                "gpu-isolation",
                f"a container of {owner} whose volume was called {name} left memory behind, and is known by that.\n"
                "Use another name.",
            )
        # An injected limit is known to the scheduler only while the container has programs.
        if (record is not None and record.state in {"running", "waiting"}) or self._owners.runs(name, present):
            yield Refusal("gpu-isolation", _whose(name, owner or "", subject))

    def _count(self, subject: Subject, limits: _LimitsByName, present: Present) -> None:
        labels = [quota_subject.name for quota_subject, _ in subject.quotas if quota_subject.kind == "label"]
        labels += [_job(subject).name] if subject.job else []
        again = subject.container.state == EngineState.EXITED
        owner = self._owners.owner(subject.caller.user, labels, subject.container.id, again=again)
        self._owners.add(limits, owner, present)


def _whose(name: str, owner: str, subject: Subject) -> str:
    if name == subject.container.id:
        return (
            f"this container is one of {owner}, and runs, or is about to: its limit is theirs.\nStart one of your own."
        )
    return (
        f"the volume {name} is that of a running container of {owner}, whose limit would be shared.\n"
        "Use one of your own."
    )


def _job(subject: Subject) -> QuotaSubject:
    """Return the containers of the subject's job of Slurm."""
    return QuotaSubject("label", f"{LABEL}={subject.job}")


def _sum(limits: _LimitsByName) -> dict[str, int]:
    total: dict[str, int] = {}
    for by_device in limits.values():
        for uuid, limit in by_device.items():
            total[uuid] = total.get(uuid, 0) + limit
    return total
