"""The list of what containers may have under strict rules; everything else is refused (docs/strict-rules.md)."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from convgpu.runtime.paths import READ_ONLY, allows_path, is_at_or_below, normal

# In front of the name of a list, for the rule that refuses what is not in it.
RULE_PREFIX: Final = "strict-"


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that a container or a call needs, beyond what everybody may have.

    Attributes:
        section: the list in which it must stand: a field of `StrictList`.
        value: the entry that permits it.
        shown: as its user would recognize it.
        asked: of a path of the host, the entry by the caller's own text: where its links lead is not told to callers.
    """

    section: str
    value: str
    shown: str
    asked: str = ""

    @property
    def rule(self) -> str:
        """The name of the rule that refuses it."""
        return RULE_PREFIX + self.section


class StrictList(msgspec.Struct, frozen=True):
    """The table `[strict]` of the rules of a site.

    Attributes:
        paths: folders and files of the host, with everything below; `:ro` behind those that nothing may write.
        capabilities: that containers may ask for (`--cap-add`), those of the Engine's default too.
        namespaces: shared ones: `network=host`, `ipc=container` and the like.
        devices: paths, with everything below; names of CDI devices; rules of the device cgroup, word for word.
        runtimes: beside `convgpu`.
        drivers: of volumes; `log=NAME` and `network=NAME` for those of logs and networks.
        volumes: kinds of volumes of driver `local` with options: `nfs`, `tmpfs`; never `bind`.
        security: security options, word for word; `annotation=NAME`.
        sysctls: names.
        cgroups: names of parents.
        restarts: restart policies of containers that another runtime than `convgpu` runs.
        masks: paths of /proc and /sys that need not be masked.
        fields: of the request's HostConfig that ConvGPU does not know.
        calls: what of the Engine's API needs an entry, by the name that a refusal tells: `build`, `cp`, `prune`...
        registries: from which images are pulled: what stands in front of their names, else `docker.io`; `*`: all.
        ids: those of others that containers have: `host`, or `shared` with the Engine's `userns-remap`.
        accept: what strict rules cannot keep: `removal` of folders through links, by an old Engine; `setgid` files in
            writable paths, for users with an account on a host that does not mount these `nosuid`; `host-gpus`, or
            `host-gpus=USER`: programs of the host (or of a user there) that use a GPU without a right to its nodes.
    """

    paths: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    security: tuple[str, ...] = ()
    sysctls: tuple[str, ...] = ()
    cgroups: tuple[str, ...] = ()
    restarts: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    registries: tuple[str, ...] = ("*",)
    ids: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse entries that could mean nothing."""
        for entry in self.paths:
            if not entry.startswith("/") or normal(entry) != entry:
                raise ValueError(f"paths: {entry!r} is not an absolute path without links, `..` and end slash")
        if unknown := sorted({*self.ids} - {"host", "shared"}):
            raise ValueError(f"ids: {unknown[0]!r} is neither 'host' nor 'shared'")
        for entry in self.accept:
            if entry not in {"removal", "setgid", "host-gpus"} and not re.fullmatch(r"host-gpus=[^=\s]+", entry):
                raise ValueError(f"accept: {entry!r} is none of 'removal', 'setgid', 'host-gpus' and 'host-gpus=USER'")

    def covers(self, need: Need) -> bool:
        """Tell whether the list permits something."""
        entries: tuple[str, ...] = getattr(self, need.section)
        return _COVERS.get(need.section, _is_listed)(entries, need.value)


SECTIONS: Final = StrictList.__struct_fields__


def _is_listed(entries: tuple[str, ...], value: str) -> bool:
    return value in entries


def _is_path_listed(entries: tuple[str, ...], value: str) -> bool:
    return allows_path(entries, value.removesuffix(READ_ONLY), writes=not value.endswith(READ_ONLY))


def _is_below(entries: tuple[str, ...], value: str) -> bool:
    return any(value == entry or (value.startswith("/") and is_at_or_below(value, entry)) for entry in entries)


def _is_registry_listed(entries: tuple[str, ...], value: str) -> bool:
    return "*" in entries or value in entries


_COVERS: Final[Mapping[str, Callable[[tuple[str, ...], str], bool]]] = {
    "paths": _is_path_listed,
    "devices": _is_below,
    "registries": _is_registry_listed,
}
