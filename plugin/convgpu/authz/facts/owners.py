"""Records the user who started each container, so that limits add up for each user and label; survives restarts."""

import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from convgpu.authz.facts.overdue_starts import Time, settle
from convgpu.authz.facts.starts import Start, UnansweredStarts
from convgpu.authz.ports import EnginePort
from convgpu.protocol.engine_container import MAX_START_TIME, EngineState, is_running
from convgpu.protocol.records import Container

_log: Final = logging.getLogger(__name__)

# Seconds after which the scheduler shows what a container left behind that is gone, if it left anything.
_UNTIL_SHOWN: Final = 600.0
# Containers of a volume that are remembered, beside those that run or are about to.
_MOST_CONTAINERS: Final = 16


@dataclass(frozen=True, slots=True)
class Owner:
    """The user who started a container, when (Unix seconds), and its labels that have a quota.

    Attributes:
        again: the container ran before and ended.
        limits: bytes by device, of a container without a volume: the scheduler knows it only while it runs.
        gone: since when it was seen that the container is not there any more (Unix seconds); 0: it is.
        containers: ids of the containers with that volume, the one that started last first.
    """

    user: str
    labels: tuple[str, ...]
    since: float
    again: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)
    gone: float = 0.0
    containers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuotaSubject:
    """A user or a label whose containers share a quota: `kind` is `user` or `label`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    def includes(self, owner: Owner) -> bool:
        """Tell whether the quota counts an owner's container."""
        return owner.user == self.name if self.kind == "user" else self.name in owner.labels


@dataclass(frozen=True, slots=True)
class Left:
    """Memory of a device, in bytes, that a container left behind when it or one of its processes ended.

    Attributes:
        is_charged: the container is charged with it, within its limit.
    """

    name: str
    uuid: str
    size: int
    is_charged: bool


@dataclass(frozen=True, slots=True)
class Present:
    """What there is of containers now.

    Attributes:
        known: the scheduler's containers by name.
        states: of the Engine's containers by id; may be empty unless `Owners.need_states`.
        left: what ended containers left behind.
    """

    known: Mapping[str, Container]
    states: Mapping[str, str]
    left: Sequence[Left] = ()


class Owners:
    """Owners by the name of the volume, or the id of a container without one.

    Args:
        path: of the file that stores them.
        clock: Unix seconds.
        seconds: that pass while the Engine is asked about starts.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time, seconds: Time | None = None) -> None:
        self._path = path
        self._seconds = seconds or Time()
        self._clock = clock
        # Held from reading the total to adding to it, so that two starts at once cannot both take the rest of a quota.
        self.lock = threading.RLock()
        self._owners = self._load()
        self.starts = UnansweredStarts(path.with_name("starts.json"), clock)

    def user_of(self, name: str) -> str | None:
        """Return the user who started the container last; None if it was never judged."""
        owner = self._owners.get(name)
        return None if owner is None else owner.user

    def settle_starts(
        self,
        engine: EnginePort,
        user: str = "",
        subjects: Collection[QuotaSubject] | None = None,
        names: Collection[str] = (),
    ) -> None:
        """Have the Engine asked about the starts without an answer that matter; who calls this holds no lock.

        Args:
            engine: is asked.
            user: whose starts matter, and are asked about first.
            subjects: whose starts matter; None: all do.
            names: that matter.
        """

        def concerns(start: Start) -> bool:
            if subjects is None or start.user == user:
                return True
            return any(name in names or self._is_counted(name, subjects) for name in start.names)

        settle(self.starts, engine, concerns, user, self._seconds)

    def _is_counted(self, name: str, subjects: Collection[QuotaSubject]) -> bool:
        """Tell whether one of these quotas counts a container, while it runs."""
        owner = self._owners.get(name)
        return owner is not None and any(subject.includes(owner) for subject in subjects)

    def subjects(self) -> list[QuotaSubject]:
        """Return who may share a quota: each user who started a container, and each of their labels."""
        users = sorted({owner.user for owner in self._owners.values()})
        labels = sorted({label for owner in self._owners.values() for label in owner.labels})
        return [QuotaSubject("user", user) for user in users] + [QuotaSubject("label", label) for label in labels]

    def need_states(self, known: Mapping[str, Container]) -> bool:
        """Tell whether there are containers for which only the Engine knows whether they run."""
        return any(
            not owner.gone
            and (owner.limits or owner.containers)
            and (len(owner.containers) >= _MOST_CONTAINERS or not _has_programs(known.get(name)))
            for name, owner in self._owners.items()
        )

    def runs(self, name: str, present: Present) -> bool:
        """Tell whether the Engine runs a container, is about to, or is between two starts by a restart policy."""
        owner = self._owners.get(name)
        if owner is None or owner.gone:  # another container has its name now, and did not start yet
            return False
        return self.starts.await_answer(name) or any(_runs(one, present) for one in (name, *owner.containers))

    def running_total(
        self,
        subject: QuotaSubject,
        present: Present,
        *,
        excluded: Collection[str],
    ) -> Counter[str]:
        """Return the limits of the containers that a quota counts, added up for each device.

        `excluded`: the names of the container that is to start.
        """
        total: Counter[str] = Counter()
        for name, owner in self._owners.items():
            if name not in excluded and subject.includes(owner):
                total.update(self._counted_limits(name, owner, present))
        return total

    def left_total(self, subject: QuotaSubject, present: Present, *, excluded: Collection[str]) -> Counter[str]:
        """Return what containers left behind that a quota counts, beside their limits, by device in bytes."""
        total: Counter[str] = Counter()
        for one in present.left:
            owner = self._owners.get(one.name)
            if owner is None or not subject.includes(owner):
                continue
            is_within = one.name in excluded or bool(self._counted_limits(one.name, owner, present))
            if not (one.is_charged and is_within):
                total[one.uuid] += one.size
        return total

    def owner(self, user: str, labels: Sequence[str], container: str, *, again: bool) -> Owner:
        """Return the owner of a container with this id that starts now."""
        return Owner(user, tuple(labels), self._clock(), again, containers=(container,))

    def add(self, limits: Mapping[str, Mapping[str, int]], owner: Owner, present: Present) -> None:
        """Record the owner of a container under the names of its limits; forget those that are gone for a while."""
        self._owners = dict(self._remembered(present))
        for name, by_device in limits.items():
            before = self._owners.get(name)
            ids = dict.fromkeys((*owner.containers, *(before.containers if before is not None else ())))
            # All that run are kept: who starts others cannot have one forgotten that starts by its policy.
            runs = [one for one in ids if one in owner.containers or _runs(one, present)]
            others = [one for one in ids if one not in runs]
            kept = tuple((*runs, *others)[: max(len(runs), _MOST_CONTAINERS)])
            # A volume's limit is the scheduler's. It knows one that is injected only while the container has programs.
            is_known = name in present.known and name not in owner.containers
            self._owners[name] = replace(owner, limits={} if is_known else by_device, containers=kept)
        self._save()

    def _remembered(self, present: Present) -> Iterator[tuple[str, Owner]]:
        """Yield the owners but those of containers that are gone so long that they have left nothing behind."""
        left = {one.name for one in present.left}
        now = self._clock()
        for name, owner in self._owners.items():
            is_there = not owner.gone and (name in present.known or name in present.states)
            if is_there or name in left:
                yield name, owner
            elif not owner.gone:
                yield name, replace(owner, gone=now)
            elif now - owner.gone < _UNTIL_SHOWN:
                yield name, owner

    def _counted_limits(self, name: str, owner: Owner, present: Present) -> Mapping[str, int]:
        container = present.known.get(name)
        if owner.gone:  # another container has its name now, and did not start yet
            return {}
        runs = self.runs(name, present)
        if container is None:
            # Its limit is injected: the runtime registers it with the scheduler just before its program starts.
            # A container that is started again has its old state until it runs; it may also have ended again.
            before = {EngineState.CREATED, EngineState.EXITED} if owner.again else {EngineState.CREATED}
            starts = present.states.get(name) in before and self._clock() - owner.since < MAX_START_TIME
            return owner.limits if runs or starts else {}
        if runs or _has_programs(container) or self._is_starting(container, owner):
            return limits_of(container)
        return {}

    def _is_starting(self, container: Container, owner: Owner) -> bool:
        """Tell whether a container was admitted a moment ago, and did not yet run and end."""
        # Without a time of its end, a container that ended is taken to have ended after it was admitted.
        ended = container.state == "ended" and (container.since is None or container.since >= owner.since)
        return not ended and self._clock() - owner.since < MAX_START_TIME

    def _load(self) -> dict[str, Owner]:
        try:
            rows: Mapping[str, Mapping[str, object]] = json.loads(self._path.read_text())
            return {
                name: Owner(
                    str(row["user"]),
                    tuple(row["labels"]),  # type: ignore[arg-type]
                    float(row["since"]),  # type: ignore[arg-type]
                    bool(row.get("again", False)),
                    {str(uuid): int(limit) for uuid, limit in row.get("limits", {}).items()},  # type: ignore[attr-defined]
                    float(row.get("gone", 0.0)),  # type: ignore[arg-type]
                    tuple(row.get("containers", ())),  # type: ignore[arg-type]
                )
                for name, row in rows.items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _log.error("%s cannot be read, so totals of limits begin at nothing: %s", self._path, error)
            return {}

    def _save(self) -> None:
        text = json.dumps({name: asdict(owner) for name, owner in self._owners.items()})
        new = self._path.with_name(self._path.name + ".new")
        try:
            new.write_text(text)
            os.replace(new, self._path)  # noqa: PTH105
        except OSError as error:
            _log.error(
                "%s cannot be written; the owners are in memory only until the plugin ends: %s", self._path, error
            )


def limits_of(record: Container) -> dict[str, int]:
    """Return the limits of one of the scheduler's containers, in bytes by device.

    Of a container whose GPUs the scheduler chooses: on each GPU that it may get. It may get another one whenever it has
    no process, and after each restart by its policy, of which authorization is not asked.
    """
    limits = dict(record.placement.limits) if record.placement is not None else {}
    for share in record.devices:
        if share.limit:
            limits[share.uuid] = max(share.limit, limits.get(share.uuid, 0))
    return limits


def _has_programs(container: Container | None) -> bool:
    """Tell whether the scheduler knows that a container has programs, or is about to."""
    return container is not None and container.state in {"running", "waiting"}


def _runs(container: str, present: Present) -> bool:
    """Tell whether the Engine says of a container, by its id, that it may have processes."""
    return is_running(present.states.get(container, EngineState.DEAD))
