"""What a container may have on a GPU, by the rules of the site and by what the scheduler knows."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from convgpu.authz.facts.owners import Owners, QuotaSubject
from convgpu.authz.ports import EnginePort, SchedulerPort
from convgpu.authz.requests.container import ContainerSettings, MountSettings
from convgpu.authz.requests.templates import has_template
from convgpu.authz.site.rules import Allowance, Rules, has_label
from convgpu.authz.verdict import Refusal
from convgpu.client.admin import SchedulerRefused
from convgpu.protocol.engine_states import EngineState
from convgpu.protocol.records import Container as Record
from convgpu.protocol.records import Device
from convgpu.protocol.sizes import format_size, parse_size

_VARIABLE: Final = "CONVGPU_MEMORY"
_RESERVED: Final = "DOCKER_RESOURCE_GPUMEM"

# Limits in bytes by device, of each name under which the scheduler knows a container.
_Held = Mapping[str, Mapping[str, int]]
# Chooses the first refusal from which nothing exempts.
First = Callable[[Iterator[Refusal]], Refusal | None]


class Limits:
    """Judges limits by what the ledger says.

    Args:
        ledger: what the scheduler keeps.
        owners: who started what.
        view: of the Engine, which alone tells whether a container without a volume runs.
    """

    def __init__(self, ledger: SchedulerPort, owners: Owners, view: EnginePort) -> None:
        self._ledger = ledger
        self._owners = owners
        self._view = view

    def knows(self, volume: str) -> bool:
        """Tell whether a volume is one of ours."""
        return self._ledger.find(volume) is not None

    def judge_mount(
        self, mount: MountSettings, container: ContainerSettings, user: str, rules: Rules, *, needed: bool
    ) -> Iterator[Refusal]:
        """Return what is wrong with a volume of ours in a container that is to be created.

        Args:
            mount: of the volume.
            container: in which it is.
            user: who asks.
            rules: of the site.
            needed: the container gets a GPU, so there must be a limit.
        """
        record = self._ledger.find(mount.source) if mount.source else None
        if record is not None and (limits := _limits(record)):
            yield from _too_large(limits.values(), user, rules, container.labels)
        else:
            yield from self.judge_options(
                mount.options, container.environment, user, rules, container.labels, needed=needed
            )

    @staticmethod
    def judge_options(
        options: Mapping[str, str],
        variables: Mapping[str, str],
        user: str,
        rules: Rules,
        labels: Mapping[str, str],
        *,
        needed: bool = False,
    ) -> Iterator[Refusal]:
        """Return what is wrong with the options of a new volume of ours."""
        text = options.get("memory") or _asked(variables) or rules.default_limit
        if text is not None and has_template(text):
            yield from _unknown(text, user, rules, labels)
        elif text is not None:
            # What is no size is refused by the volume itself, in its own words.
            yield from _too_large(_sizes(text), user, rules, labels)
        elif needed:
            yield _missing()

    def admit(
        self,
        container: ContainerSettings,
        ours: Sequence[MountSettings],
        cover: str | None,
        user: str,
        rules: Rules,
        *,
        needed: bool,
        first: First,
    ) -> Refusal | None:
        """Let a container start within the sums of its user and labels, and count it from now on.

        A volume without a limit gets the container's CONVGPU_MEMORY, or the site's default, before its first program
        could ask for something else.

        Args:
            container: that is to start.
            ours: its volumes of ours.
            cover: the limit of one that is covered below the Engine, in the form of the option `memory`.
            user: who starts it.
            rules: of the site.
            needed: it gets a GPU, so its volumes must have limits.
            first: chooses the first refusal from which nothing exempts.
        """
        with self._owners.lock:
            held: dict[str, Mapping[str, int]] = {}
            for volume in dict.fromkeys(mount.source for mount in ours):
                record = self._ledger.find(volume)
                if record is None:
                    continue  # the mount itself is going to fail
                if not _limits(record):
                    try:
                        record = self._give_limit(record, container, rules)
                    except SchedulerRefused as refused:
                        return Refusal("limit-missing", refused.text)
                held[volume] = _limits(record)
            if cover is not None:
                held[container.id] = expect_limits(cover, container, self._ledger.devices())
            known = {record.name: record for record in self._ledger.all()}
            states = self._view.states() if self._owners.lack(known) else {}
            refusal = first(self._refusals(held, container, user, rules, known, states, needed=needed))
            if refusal is None and held:
                owner = self._owners.owner(
                    user, _counted(rules, container.labels), again=container.state == EngineState.EXITED
                )
                self._owners.add(held, owner, known, states)
            return refusal

    def _give_limit(self, record: Record, container: ContainerSettings, rules: Rules) -> Record:
        memory = _asked(container.environment) or rules.default_limit
        if memory is None:
            return record
        self._ledger.set_limit(record.name, memory)
        return self._ledger.find(record.name) or record

    def _refusals(
        self,
        held: _Held,
        container: ContainerSettings,
        user: str,
        rules: Rules,
        known: Mapping[str, Record],
        states: Mapping[str, str],
        *,
        needed: bool,
    ) -> Iterator[Refusal]:
        for volume, its in held.items():
            if needed and not its:
                yield _missing()
            yield from self._somebody_elses(volume, known.get(volume), user)
        limits: dict[str, int] = {}
        for each in held.values():
            for uuid, limit in each.items():
                limits[uuid] = limits.get(uuid, 0) + limit
        yield from _too_large(limits.values(), user, rules, container.labels)
        bounds = [(QuotaSubject("user", user), rules.allowance(user).total_quota)]
        bounds += [
            (QuotaSubject("label", label), rules.labels[label].total_quota)
            for label in _counted(rules, container.labels)
        ]
        for who, most in bounds:
            if most is None:
                continue
            total = self._owners.sum(known, states, held, who)
            for uuid, limit in limits.items():
                if (has := total.get(uuid, 0)) + limit > most:
                    yield Refusal(
                        "total-quota-exceeded",
                        f"the running containers of {who} have {format_size(has)} on {uuid}, and with "
                        f"{format_size(limit)} more it would be above {format_size(most)}.\n"
                        "Stop one of them, or ask for less (volume-opt=memory=..., -e CONVGPU_MEMORY=...).",
                    )

    def _somebody_elses(self, volume: str, record: Record | None, user: str) -> Iterator[Refusal]:
        owner = self._owners.user_of(volume)
        if record is not None and record.state in {"running", "waiting"} and owner not in {None, user}:
            yield Refusal(
                "gpu-isolation",
                f"the volume {volume} is that of a running container of {owner}, whose limit would be shared.\n"
                "Use one of your own.",
            )


def expect_limits(memory: str, container: ContainerSettings, devices: Sequence[Device]) -> dict[str, int]:
    """Return what the scheduler will take for the limits of a container without a volume, by device.

    Args:
        memory: as the option of a volume, or several of them, of which the largest counts.
        container: says which GPUs it gets; all, if that is not clear.
        devices: of the scheduler.
    """
    words = [word.strip() for word in memory.split(",")]
    if ":" in memory:
        return {uuid: _size(size) for uuid, _, size in (word.rpartition(":") for word in words)}
    environment = container.environment
    chosen = environment.get("CONVGPU_GPUS") or container.chosen or environment.get("NVIDIA_VISIBLE_DEVICES") or ""
    names = {name.strip() for name in chosen.split(",")}
    clear = names <= {name for device in devices for name in (device.uuid, str(device.index))}
    largest = max(map(_size, words))
    return {device.uuid: largest for device in devices if not clear or names & {device.uuid, str(device.index)}}


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError:
        return 0  # which the scheduler refuses


def _missing() -> Refusal:
    return Refusal(
        "limit-missing",
        "the ConvGPU volume names no limit, and this site has no default.\n"
        "Type: volume-opt=memory=2g in --mount, or -e CONVGPU_MEMORY=2g",
    )


def _asked(variables: Mapping[str, str]) -> str | None:
    """Return the limit that a container's variables name: its own one, or what Swarm reserved, in MiB."""
    reserved = variables.get(_RESERVED)
    return variables.get(_VARIABLE) or (f"{reserved}m" if reserved else None)


def _unknown(text: str, user: str, rules: Rules, labels: Mapping[str, str]) -> Iterator[Refusal]:
    bounds = [rules.allowance(user), *(rules.labels[label] for label in _counted(rules, labels))]
    if any(bound.largest_limit is not None for bound in bounds):
        yield Refusal("limit-too-large", f"how much {text:.60} is, is known when a task starts.\nName a size.")


def _counted(rules: Rules, labels: Mapping[str, str]) -> list[str]:
    return [label for label in rules.labels if has_label(labels, label)]


def _limits(record: Record) -> dict[str, int]:
    return {share.uuid: share.limit for share in record.devices if share.limit}


def _too_large(limits: Collection[int], user: str, rules: Rules, labels: Mapping[str, str]) -> Iterator[Refusal]:
    allowances: list[tuple[str, Allowance]] = [(f"user {user}", rules.allowance(user))]
    allowances += [(f"label {label}", rules.labels[label]) for label in _counted(rules, labels)]
    largest = max(limits, default=0)
    for who, allowance in allowances:
        most = allowance.largest_limit
        if most is not None and largest > most:
            yield Refusal(
                "limit-too-large",
                f"{format_size(largest)} on one GPU is more than {who} may have, {format_size(most)}.\n"
                f"Type: volume-opt=memory={most >> 20}m, or less",
            )


def _sizes(text: str) -> list[int]:
    return [_size(part.strip().rpartition(":")[2]) for part in text.split(",")]
