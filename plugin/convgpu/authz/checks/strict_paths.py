"""What strict rules say of the host's paths in a request, before any other rule could tell where they lead. Pure."""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from convgpu.authz.checks.preload import is_preload_file
from convgpu.authz.checks.strict import (
    LOCAL_TYPES,
    TMPFS_OPTIONS,
    device_needs,
    mount_needs,
    odd_volume,
    unlisted,
)
from convgpu.authz.requests.container import CDI_NAME, MountSettings
from convgpu.authz.site.strict_list import Need
from convgpu.authz.subject.subject import Subject
from convgpu.authz.verdict import Refusal

_MAX_SHOWN: Final = 200  # characters of a path
_RELABEL: Final = Need("fields", "relabel", "labels of SELinux that the Engine sets")


def host_paths(subject: Subject) -> Iterator[Refusal]:
    """Refuse paths of the host that the list lacks, and what the Engine would do with listed ones by name."""
    if subject.caller.rules.strict_list is None:
        return
    yield from _upwards(subject)
    yield from unlisted(subject, chain(mount_needs(subject), device_needs(subject)))
    for mount in subject.container.mounts:
        if mount.kind == "volume" and mount.driver in LOCAL_TYPES:
            yield from odd_volume(mount.options, subject)
    yield from started_mounts(subject)
    yield from _tmpfs(subject)


def _upwards(subject: Subject) -> Iterator[Refusal]:
    """Refuse `..` in paths: the Engine looks the part before it up as root, and tells whether that is there."""
    sources = (("paths", mount.source) for mount in subject.container.mounts if mount.kind == "bind")
    devices = (("devices", path) for path in subject.container.devices if not CDI_NAME.fullmatch(path))
    for section, path in chain(sources, devices):
        if ".." in path.split("/"):
            yield Refusal(f"strict-{section}", f"{path:.{_MAX_SHOWN}} has `..` in it.\nName the path itself.")


def started_mounts(subject: Subject) -> Iterator[Refusal]:
    """Refuse what the Engine would do by name, at each start, with what is mounted."""
    if not subject.container.id or subject.starts:
        yield from made_sources(subject)
        yield from _missing_sources(subject)
        yield from _labels(subject)


def made_sources(subject: Subject) -> Iterator[Refusal]:
    """Refuse sources that the Engine would make where others than root exchange names.

    It notes which parts are missing, makes them, and gives them to root with mode 0755, by their names and through
    links: whoever puts a link there meanwhile opens any file of root's.
    """
    for mount in subject.container.mounts:
        if mount.source in subject.written and mount.made and not is_preload_file(mount, subject.host):
            yield Refusal(
                "strict-paths",
                f"the Engine would make {mount.source:.{_MAX_SHOWN}} if it is missing, as root and by its name, where "
                f"users can exchange names.\nMake the folder, and say {_typed(mount)} in place of -v "
                "(docker compose: `bind: {create_host_path: false}` in the long form of the volume).",
                has_entry=True,
            )


def _missing_sources(subject: Subject) -> Iterator[Refusal]:
    """Refuse sources that are not there: elsewhere only root removes them afterwards.

    A mount that the Engine does not make is answered likewise, so this tells nobody more.
    """
    for mount in subject.container.mounts:
        if mount.source in subject.missing and mount.made and not is_preload_file(mount, subject.host):
            yield Refusal(
                "strict-paths",
                f"{mount.source:.{_MAX_SHOWN}} is not there, and the Engine would make it, as root.\n"
                "Mount what is there, or have the administrator make it.",
                has_entry=True,
            )


def _labels(subject: Subject) -> Iterator[Refusal]:
    """Refuse labels of SELinux, which the Engine sets on all that lies in what is mounted, as root and by its names."""
    permitted = subject.caller.rules.strict_list
    if permitted is not None and permitted.covers(_RELABEL):
        return
    entry = f"An entry permits it to all: fields = [{_RELABEL.value!r}]"
    for mount in subject.container.mounts:
        shown = (mount.source or mount.target)[:_MAX_SHOWN]
        if mount.relabels == "asked":
            done = "Leave z and Z out; root sets the labels once (chcon -R -t container_file_t)."
        elif mount.relabels and subject.host.labels and mount.kind == "volume" and mount.driver in LOCAL_TYPES:
            done = f"Say -v NAME:{mount.target:.{_MAX_SHOWN}}:nocopy, with which it sets none."
        else:
            continue
        text = f"the Engine would set labels of SELinux on all that lies in {shown}, as root and by names."
        yield Refusal(_RELABEL.rule, f"{text}\n{done} {entry}", has_entry=True)
    if subject.container.relabels_from:
        text = "--volumes-from with z or Z asks for labels of SELinux on what others have."
        yield Refusal(_RELABEL.rule, f"{text}\nLeave z and Z out. {entry}", has_entry=True)


def _typed(mount: MountSettings) -> str:
    read_only = ",readonly" if mount.read_only else ""
    return f"--mount type=bind,source={mount.source:.{_MAX_SHOWN}},target={mount.target:.{_MAX_SHOWN}}{read_only}"


def _tmpfs(subject: Subject) -> Iterator[Refusal]:
    for mount in subject.container.mounts:
        for word in mount.words if mount.kind == "tmpfs" else ():
            if word not in TMPFS_OPTIONS:
                yield Refusal(
                    "strict-fields", f"{word:.40} is no option for the tmpfs at {mount.target:.80}.\nLeave it out."
                )
