"""Holds the namespaces of other containers that one joins, so that the real runtime joins what was judged.

The Engine names them by the number of a process. That process can end, and who starts processes on the host gets its
number within seconds, with namespaces of its own. So each is opened once, and the real runtime, which this process
becomes, finds the descriptors (decision 163).
"""

import fcntl
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from convgpu.runtime.strict.judgement import NotListed
from convgpu.runtime.strict.ranges import share
from convgpu.runtime.strict.user_ids import UserIds, read_ids

# ioctl_ns(2).
_NS_GET_USERNS, _NS_GET_PARENT, _NS_GET_OWNER_UID = 0xB701, 0xB702, 0xB704
_PLACE: Final = re.compile(r"/proc/([0-9]+)/ns/([a-z]+)")
_FILES: Final[Mapping[str, str]] = {"network": "net", "ipc": "ipc", "pid": "pid", "uts": "uts", "user": "user"}
# Where the Engine notes whose namespace a container joins; a user namespace comes with one of these.
_FIELDS: Final[Mapping[str, str]] = {"network": "NetworkMode", "ipc": "IpcMode", "pid": "PidMode"}
_CONTAINER: Final = re.compile(r"container:([0-9a-f]{64})")

Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Process:
    """A process of another container, as it was when its namespaces were opened.

    Attributes:
        user: device and inode of its user namespace.
        host: those of the host's.
        owner: who made its user namespace, as the host's user ID.
        parent: the user namespace in which it was made; None for the host's.
        tables: its `uid_map` and `gid_map`.
        cgroup: its `/proc/PID/cgroup`.
        owners: of each namespace that is joined and not the host's, by its type, the user namespace that it belongs to.
        held: descriptors of the namespaces that are joined, by their types, and of its user namespace.
    """

    user: Identity
    host: Identity
    owner: int
    parent: Identity | None
    tables: tuple[str, str]
    cgroup: str
    owners: Mapping[str, Identity]
    held: Mapping[str, int] = field(default_factory=dict)


OpenProcess = Callable[[int, list[str]], Process]


def hold_joined(
    config: Mapping[str, Any], record: Path, opens: OpenProcess, *, shared: bool
) -> tuple[dict[str, Any], UserIds | None]:
    """Return a configuration that names no namespace by a process any more, and the IDs of who is joined.

    Args:
        config: of a container.
        record: in which the Engine notes what that container was asked to join (`hostconfig.json`).
        opens: looks at a process and opens its namespaces of some types.
        shared: all containers have the same user IDs (`userns-remap`), and the site lists that.

    Returns:
        the IDs are None if nobody is joined, or who is has the host's.

    Raises:
        NotListed: a process is not of the container that was named, or its namespaces are not of the runtime's making.
    """
    linux = dict(config.get("linux") or {})
    rows = [dict(row) for row in linux.get("namespaces") or ()]
    kinds = _named(rows)
    if not kinds:
        return dict(config), None
    partners = _partners(record)
    joined = None
    held: dict[str, int] = {}
    for pid, names in kinds.items():
        process = _open(opens, pid, names)
        ids = refuse_strangers(process, {partners.get(name, "") for name in names if name != "user"}, shared=shared)
        joined = joined or ids
        held |= {name: process.held[name] for name in names}
    for row in rows:
        if row.get("type") in held and row.get("path"):
            row["path"] = held_path(held[row["type"]])
    return {**config, "linux": linux | {"namespaces": rows}}, joined


def _named(rows: list[dict[str, Any]]) -> dict[int, list[str]]:
    """Return the processes by which namespaces are named, and the types of those."""
    kinds: dict[int, list[str]] = {}
    for row in rows:
        path, kind = str(row.get("path") or ""), str(row.get("type"))
        if path.startswith("/proc/"):
            found = _PLACE.fullmatch(path)
            if found is None or _FILES.get(kind) != found[2]:
                raise NotListed(f"strict-namespaces: {path} as the {kind} namespace cannot be judged")
            kinds.setdefault(int(found[1]), []).append(kind)
    return kinds


def held_path(descriptor: int) -> str:
    """Return the name of what this process holds, also when it has become the real runtime.

    By `/proc/PID/` alone `runc` from 1.2 on would take the process's own user namespace for the one that is named.
    """
    return f"/proc/./{os.getpid()}/fd/{descriptor}"


def _open(opens: OpenProcess, pid: int, names: list[str]) -> Process:
    try:
        return opens(pid, names)
    except OSError as error:
        raise NotListed(
            f"strict-namespaces: a container whose namespaces this one joins has ended ({error.strerror or error}). "
            "Start that one first"
        ) from error


def _partners(record: Path) -> dict[str, str]:
    """Return the container whose namespace of each type a container was asked to join."""
    try:
        asked = json.loads(record.read_bytes())
    except (OSError, ValueError) as error:
        raise NotListed(f"strict-namespaces: {record}, which says whom to join, cannot be read ({error})") from error
    found = {kind: _CONTAINER.fullmatch(str(asked.get(name))) for kind, name in _FIELDS.items()}
    return {kind: match[1] for kind, match in found.items() if match}


def refuse_strangers(process: Process, named: set[str], *, shared: bool) -> UserIds | None:
    """Return the IDs of a process of another container; None for those of the host. Pure.

    Args:
        process: as it was opened.
        named: the container whose it has to be.
        shared: IDs need not be drawn by this runtime.

    Raises:
        NotListed: it is of another, or somebody else made its namespaces.
    """
    if len(named) != 1 or not all(name and _is_in(process.cgroup, name) for name in named):
        raise NotListed("strict-namespaces: the container whose namespaces this one joins has ended. Start it first")
    if any(owner not in {process.user, process.host} for owner in process.owners.values()):
        raise NotListed(
            "strict-namespaces: this container joins namespaces of containers with different user IDs. Let all of them "
            "join one"
        )
    if process.user == process.host:
        return None
    users, groups = (read_ids(table) for table in process.tables)
    if users is None or groups is None or users.rows != groups.rows or not (shared or users.is_drawn):
        raise NotListed("strict-ids: the container whose namespaces this one joins has user IDs that nobody gave it")
    if process.owner != 0 or process.parent != process.host:
        raise NotListed("strict-ids: the container whose namespaces this one joins made its user namespace itself")
    return UserIds(users.rows, held_path(process.held["user"]) if process.held else "")


def _is_in(cgroup: str, container: str) -> bool:
    """Tell whether a process is in the cgroup of a container, with any of the Engine's drivers.

    Below `user@UID.service` a user of the host gives the names, also those of containers; a line feed is in none.
    """
    names = {container, f"docker-{container}.scope"}
    paths = (row.split(":", 2)[-1].partition("/user@")[0] for row in cgroup.split("\n"))
    return any(names & set(path.split("/")) for path in paths)


def open_process(pid: int, kinds: list[str]) -> Process:
    """Look at a process of this host and hold its IDs, its user namespace and those of some types, also over an exec.

    Raises:
        OSError: it ended meanwhile, or took another user namespace.
    """
    # A descriptor of this folder is of this process for ever; the number comes again.
    folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # While they are reserved it is there still, so nobody else has drawn them.
        given = read_at(folder, "uid_map")
        ids = read_ids(given)
        if ids is not None and ids.is_drawn and share(ids.rows[0][1]) is None:
            raise OSError("another one starts with its user IDs")
        held = {kind: os.open(f"ns/{_FILES[kind]}", os.O_RDONLY, dir_fd=folder) for kind in {"user", *kinds}}
        user, host = _identity(held["user"]), _own("user")
        hosts = {_own(file) for file in _FILES.values()}
        joined = [kind for kind in kinds if kind != "user" and _identity(held[kind]) not in hosts]
        owners = {kind: _related(held[kind], _NS_GET_USERNS) for kind in joined}
        uids, gids, cgroup = (read_at(folder, name) for name in ("uid_map", "gid_map", "cgroup"))
        found = os.stat("ns/user", dir_fd=folder)
        if (found.st_dev, found.st_ino) != user or uids != given:
            raise OSError("its user namespace changed")
    finally:
        os.close(folder)
    owner = int.from_bytes(fcntl.ioctl(held["user"], _NS_GET_OWNER_UID, bytes(4)), "little")
    parent = None if user == host else _related(held["user"], _NS_GET_PARENT)
    for descriptor in held.values():
        os.set_inheritable(descriptor, True)
    return Process(user, host, owner, parent, (uids, gids), cgroup, owners, held)


def _related(namespace: int, request: int) -> Identity:
    """Return a user namespace that the kernel names for a namespace."""
    descriptor = fcntl.ioctl(namespace, request)
    try:
        return _identity(descriptor)
    finally:
        os.close(descriptor)


def _identity(descriptor: int) -> Identity:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _own(file: str) -> Identity:
    found = os.stat(f"/proc/self/ns/{file}")  # noqa: PTH116 - imported with each start
    return found.st_dev, found.st_ino


def read_at(folder: int, name: str) -> str:
    """Return the text of a file in an opened folder."""
    with open(os.open(name, os.O_RDONLY, dir_fd=folder), "rb") as file:  # noqa: PTH123 - of a descriptor
        return file.read().decode("utf-8", "surrogateescape")
