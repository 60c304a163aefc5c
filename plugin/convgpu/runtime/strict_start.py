"""What the strict rules of a site say of a container that starts: its mounts and devices as they really are.

Authorization judges all of a request when it is made. Paths can lead elsewhere afterwards, and a restart policy asks
nobody; so the two settings that name paths of the host are judged here once more, at each start.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from convgpu.runtime.gpu_requests import IsGpuNumber
from convgpu.runtime.paths import allows_path, is_at_or_below, path_entry

_STRICT: Final = re.compile(rb"""^\s*["']?mode["']?\s*=\s*["']strict["']""", re.MULTILINE)
# Below the Engine's own folder: what it mounts itself.
_ENGINES: Final = ("containers", "volumes", "plugins", "swarm")
_INIT: Final = re.compile(r"/usr/(?:\S+/)?(?:docker-init|tini)[^/]*")

Numbers = frozenset[tuple[int, int]]


class NotListed(ValueError):  # noqa: N818 - the state of a container
    """A container would get what the list of the site lacks; the text begins with the rule's name."""


@dataclass(frozen=True, slots=True)
class StrictRules:
    """The entries of a site's list that the runtime judges by."""

    paths: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostView:
    """What is looked up on the host.

    Attributes:
        engine_root: the Engine's own folder.
        real_path: returns where a path leads now, None for one that cannot be opened.
        mounts_below: returns the mount points below a folder of the host.
        numbers_of: returns the numbers of the device nodes at or below a path.
        cdi_paths: paths that files of CDI devices name, which root wrote.
        is_gpu: tells whether numbers belong to a GPU, which has rules of its own.
    """

    engine_root: str
    real_path: Callable[[str], str | None]
    mounts_below: Callable[[str], list[str]]
    numbers_of: Callable[[str], Numbers]
    is_gpu: IsGpuNumber
    cdi_paths: frozenset[str] = field(default_factory=frozenset)


def read_strict(raw: bytes) -> StrictRules | None:
    """Return the list in a site's rules; None where rules are not strict.

    Raises:
        NotListed: they are strict, and cannot be read.
    """
    if not _STRICT.search(raw):
        return None
    try:
        document = tomllib.loads(raw.decode())
        table = document.get("strict") or {}
        return StrictRules(tuple(map(str, table.get("paths", ()))), tuple(map(str, table.get("devices", ()))))
    except (ValueError, AttributeError, TypeError) as error:
        raise NotListed(f"the strict rules of this site cannot be read: {error}") from error


def refuse_unlisted(config: Mapping[str, Any], rules: StrictRules, host: HostView) -> None:
    """Check the mounts and devices of a container. Raises NotListed."""
    for mount in config.get("mounts") or ():
        for path, writes in _shown(mount, host):
            if not allows_path(rules.paths, path, writes=writes):
                raise NotListed(
                    f"strict-paths: {path_entry(path, writes=writes)}, mounted at {mount.get('destination')}, is not "
                    "in the list of this site. Leave it out, or ask the administrator for an entry"
                )
    listed = frozenset(pair for path in rules.devices if path.startswith("/") for pair in host.numbers_of(path))
    for device in (config.get("linux") or {}).get("devices") or ():
        path, pair = str(device.get("path")), (int(device.get("major") or 0), int(device.get("minor") or 0))
        if not (pair in listed or host.is_gpu(*pair) or path in host.cdi_paths):
            raise NotListed(
                f"strict-devices: the device {path} ({device.get('type')} {pair[0]}:{pair[1]}) is not in the list of "
                "this site. Leave it out, or ask the administrator for an entry"
            )


def _shown(mount: Mapping[str, Any], host: HostView) -> Iterator[tuple[str, bool]]:
    """Return each path of the host that a mount shows beside the Engine's own, and whether it can be written."""
    source, options = str(mount.get("source") or ""), set(mount.get("options") or ())
    if not source.startswith("/") or not (mount.get("type") == "bind" or options & {"bind", "rbind"}):
        return
    path, writes = host.real_path(source), not options & {"ro", "rro"}
    if path is None:
        raise NotListed(f"strict-paths: {source}, mounted at {mount.get('destination')}, cannot be opened")
    engines = (f"{host.engine_root}/{name}" for name in _ENGINES)
    if path == source and any(is_at_or_below(path, folder) for folder in engines):
        return
    if not writes and (source in host.cdi_paths or _INIT.fullmatch(path)):
        return
    yield path, writes
    if not writes and "rro" not in options and "rbind" in options:
        # What is mounted below stays writable.
        yield from ((below, True) for below in host.mounts_below(path))
