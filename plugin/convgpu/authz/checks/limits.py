"""Checks of the limits that containers and volumes ask for, against the quotas of the site. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from convgpu.authz.checks.isolation import volume_name
from convgpu.authz.requests.templates import has_template
from convgpu.authz.subject.injection import size_or_zero
from convgpu.authz.subject.subject import Subject
from convgpu.authz.verdict import Refusal
from convgpu.protocol.records import Container
from convgpu.protocol.requests import LONGEST_OPTION
from convgpu.protocol.sizes import format_size

_VARIABLE: Final = "CONVGPU_MEMORY"
# Beside its size, what a container's variables say of a limit that is injected (runtime/edits.py).
_INJECTED: Final = {"CONVGPU_BACKING": "backing", "CONVGPU_PRIORITY": "priority"}
_PRIORITY: Final = re.compile("-?[0-9]{1,3}")
_RESERVED: Final = "DOCKER_RESOURCE_GPUMEM"


def requested_limits(subject: Subject) -> Iterator[Refusal]:
    """Refuse limits that are missing or too large, of each ConvGPU volume or of the injection.

    The limits of volumes in a container that starts are left to `Admission`, which knows what the scheduler holds.
    """
    if subject.volumes:
        for volume in () if subject.starts else subject.volumes:
            if limits := subject.volume_limits.get(volume.source):
                yield from too_large(limits.values(), subject)
            else:
                variables = subject.container.environment
                yield from volume_options(subject, volume.options, variables, needed=subject.gpu is not None)
    elif subject.injected is not None:
        environment = subject.container.environment
        options = {name: environment.get(variable) for variable, name in _INJECTED.items()}
        options["memory"] = subject.injected.memory
        yield from volume_options(subject, {name: value for name, value in options.items() if value is not None}, {})


def new_volume(subject: Subject, name: str, options: Mapping[str, str]) -> Iterator[Refusal]:
    """Refuse a ConvGPU volume that is made for no container yet."""
    yield from volume_name(name)
    yield from volume_options(subject, options, {})


def volume_options(
    subject: Subject, options: Mapping[str, str], variables: Mapping[str, str], *, needed: bool = False
) -> Iterator[Refusal]:
    """Refuse the options of a new ConvGPU volume.

    Args:
        subject: whose quotas hold.
        options: of the volume.
        variables: of the container.
        needed: the container gets a GPU, so there must be a limit.
    """
    text = options.get("memory") or asked_limit(variables) or subject.caller.rules.default_limit
    if (options.get("backing") or "vmm") != "vmm" and _judges_sizes(subject):
        yield _whole()
    yield from _too_high(options.get("priority") or "0", subject)
    if text is None:
        if needed:
            yield missing_limit()
    elif len(text) > LONGEST_OPTION:
        return  # the scheduler refuses it, and reading it would take long
    elif "%" in text and _judges_sizes(subject):
        yield _share(text)
    elif has_template(text):
        yield from _unknown_size(text, subject)
    else:
        # A text that is no size is refused by the volume, with a better message.
        yield from too_large([size_or_zero(part.strip().rpartition(":")[2]) for part in text.split(",")], subject)


def volume_terms(subject: Subject, volume: Container) -> Iterator[Refusal]:
    """Refuse a volume of a container that starts for its backing or priority.

    It need not be the one whose options were judged: a request that names options for a volume that exists has them
    made true by removing that one meanwhile, and the Engine takes drivers by other names, such as their IDs. What
    priority an administrator gave it is nobody's to refuse.
    """
    if volume.backing != "vmm" and _judges_sizes(subject):
        yield _whole()
    yield from _too_high(str(volume.priority if volume.own_priority is None else volume.own_priority), subject)


def asked_limit(variables: Mapping[str, str]) -> str | None:
    """Return the limit that a container's variables name: its own one, or what Swarm reserved, in MiB."""
    reserved = variables.get(_RESERVED)
    return variables.get(_VARIABLE) or (f"{reserved}m" if reserved else None)


def missing_limit() -> Refusal:
    """Return the refusal of a ConvGPU volume without a limit."""
    return Refusal(
        "limit-missing",
        "the ConvGPU volume names no limit, and this site has no default.\n"
        "Type: volume-opt=memory=2g in --mount, or -e CONVGPU_MEMORY=2g",
    )


def too_large(limits: Collection[int], subject: Subject) -> Iterator[Refusal]:
    """Refuse the largest limit, in bytes, where it is above an allowance."""
    largest = max(limits, default=0)
    for quota_subject, allowance in subject.quotas:
        bound = allowance.largest_limit
        if bound is not None and largest > bound:
            yield Refusal(
                "limit-too-large",
                f"{format_size(largest)} on one GPU is more than {quota_subject} may have, {format_size(bound)}.\n"
                f"Type: volume-opt=memory={bound >> 20}m, or less",
            )


def _judges_sizes(subject: Subject) -> bool:
    """Tell whether a rule of the site compares the limit with bytes."""
    bounded = any(one.largest_limit is not None or one.total_quota is not None for _, one in subject.quotas)
    return bounded or subject.caller.rules.require == "slurm"


def _too_high(text: str, subject: Subject) -> Iterator[Refusal]:
    """Refuse a priority above an allowance. One that is no number is refused by the volume, with a better message."""
    for quota_subject, allowance in subject.quotas:
        bound = allowance.largest_priority
        if bound is not None and (has_template(text) or (_PRIORITY.fullmatch(text) and int(text) > bound)):
            yield Refusal(
                "priority-too-high",
                f"{quota_subject} may have a priority of {bound} at most.\nType: volume-opt=priority={bound}, or less",
            )


def _whole() -> Refusal:
    """Return the refusal of managed memory: whatever the limit, nobody else is on the GPU (decision 81)."""
    return Refusal(
        "limit-too-large",
        "backing=unified takes a whole GPU, and the rules of this site judge sizes.\nLeave it out.",
    )


def _share(text: str) -> Refusal:
    """Return the refusal of a share of a GPU: quotas are in bytes, and the same share is another size on each GPU."""
    return Refusal(
        "limit-too-large",
        f"memory={text:.60} is a share of the GPU, and the rules of this site judge sizes.\n"
        "Name a size: volume-opt=memory=2g, or -e CONVGPU_MEMORY=2g",
    )


def _unknown_size(text: str, subject: Subject) -> Iterator[Refusal]:
    if any(allowance.largest_limit is not None for _, allowance in subject.quotas):
        yield Refusal("limit-too-large", f"how much {text:.60} is, is known when a task starts.\nName a size.")
