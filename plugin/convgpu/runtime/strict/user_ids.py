"""The user and group IDs of a container under strict rules: its own, which are of nobody on the host. Pure.

Root of such a container is root nowhere else: whatever descriptor a user of the host hands it, it opens, changes and
owns there what everybody may (decision 146).
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

# IDs of the kernel that are given out: above those of users, of /etc/subuid, of systemd-nspawn (up to 0x6fffffff) and
# of directories as SSSD and Winbind map them (up to 2000200000); below those that look negative.
FIRST: Final = 0x77400000
END: Final = 0x80000000
_COMMON: Final = 65536  # what each container has, as images and the Engine expect
_MORE: Final = 128  # at most so many higher ones: the kernel takes a table of 4095 bytes
SLOT: Final = 2 * _COMMON
_SLOTS: Final = (END - FIRST) // SLOT
# From here on they are for containers that write paths of the host, and make no setuid files (confinement.py). IDs come
# again, so what a container with lower ones left on the host would there be root's of another, whose paths it reaches.
WRITERS: Final = FIRST + SLOT * (_SLOTS // 2)

_PING: Final = "net.ipv4.ping_group_range"
_DOMAIN: Final = "kernel.domainname"  # of --domainname, by the Engine
# By this `joined` names a namespace of another container.
_OTHERS: Final = re.compile(r"/proc/\./[0-9]+/fd/[0-9]+")
# File systems that the kernel mounts only for who owns the namespace: where else they are.
_OWNERS: Final[Mapping[str, tuple[str, str]]] = {
    "sysfs": ("network", "/sys"),
    "mqueue": ("ipc", "/dev/mqueue"),
    "proc": ("pid", "/proc"),
}


@dataclass(frozen=True, slots=True)
class UserIds:
    """IDs of a container.

    Attributes:
        rows: (ID in the container and on disks, ID in the kernel, how many), for users and groups alike.
        path: of the user namespace of another container, which it joins.
    """

    rows: tuple[tuple[int, int, int], ...]
    path: str = ""

    @property
    def text(self) -> str:
        """What is written to a `uid_map`."""
        return "".join(f"{inside} {kernel} {count}\n" for inside, kernel, count in self.rows)

    @property
    def may_write(self) -> bool:
        """Whether no container with these IDs has ever made a setuid file, so that it may write paths of the host."""
        return self.rows[0][1] >= WRITERS

    @property
    def is_drawn(self) -> bool:
        """Whether they are a range as containers get them from this runtime."""
        (inside, first, count), *more = self.rows
        begins = inside == 0 and count == _COMMON and first in range(FIRST, END - SLOT + 1, SLOT)
        own = range(first + _COMMON, first + SLOT)
        return begins and all(inside >= _COMMON and kernel in own and count == 1 for inside, kernel, count in more)

    def kernel_id(self, inside: int) -> int:
        """Return the kernel's ID of one in the container, of its root where it has none."""
        found = (kernel + inside - first for first, kernel, count in self.rows if 0 <= inside - first < count)
        return next(found, self.rows[0][1])


def is_remapped(config: Mapping[str, Any]) -> bool:
    """Tell whether the Engine gave the container a user namespace itself (`userns-remap`)."""
    return any(row.get("type") == "user" for row in (config.get("linux") or {}).get("namespaces") or ())


def choose_ids(config: Mapping[str, Any], first: int) -> UserIds:
    """Return IDs that begin at one that nobody has: those below 65536, and those that the container names.

    Raises:
        ValueError: these are too many.
    """
    user = (config.get("process") or {}).get("user") or {}
    named = {int(user.get("uid") or 0), int(user.get("gid") or 0), *map(int, user.get("additionalGids") or ())}
    more = sorted(each for each in named if each >= _COMMON)
    if len(more) > _MORE:
        raise ValueError(f"a container has at most {_MORE} user and group IDs from {_COMMON} on: {len(more)} are named")
    rows = ((each, first + _COMMON + number, 1) for number, each in enumerate(more))
    return UserIds(((0, first, _COMMON), *rows))


def process_user(config: Mapping[str, Any]) -> int:
    """Return the user as whom a container's first program runs."""
    return int(((config.get("process") or {}).get("user") or {}).get("uid") or 0)


def read_ids(table: str, path: str = "") -> UserIds | None:
    """Return the IDs in a `uid_map`; None for those of the host."""
    rows = tuple((int(row[0]), int(row[1]), int(row[2])) for row in map(str.split, table.splitlines()))
    return UserIds(rows, path) if rows and all(inside != kernel for inside, kernel, _ in rows) else None


def first_free(
    tables: Callable[[], Iterable[str]],
    draw: Callable[[int], int],
    reserve: Callable[[int], int | None],
    *,
    writes: bool = False,
) -> int:
    """Return where IDs begin that no process has, and reserve them.

    Args:
        tables: returns the `uid_map` of each process.
        draw: returns a number below its argument.
        reserve: keeps others from the IDs that begin there; returns a descriptor, None if another one has them.
        writes: whether the container writes paths of the host.

    Raises:
        ValueError: all are taken.
    """
    middle = _SLOTS // 2
    taken: set[int] = set()
    while free := sorted(set(range(middle, _SLOTS) if writes else range(middle)) - taken):
        number = free[draw(len(free))]
        descriptor = reserve(FIRST + SLOT * number)
        if descriptor is None:
            taken.add(number)
            continue
        # Read while it is reserved: who had it reserved before has made a process with it.
        rows = (row for table in tables() for row in table.splitlines())
        taken |= {number for row in rows for number in _slots(*map(int, row.split()))}
        if number not in taken:
            return FIRST + SLOT * number
        os.close(descriptor)
    raise ValueError("all user IDs that containers could have are taken")


def _slots(_inside: int, kernel: int, count: int) -> range:
    begin, end = max(kernel, FIRST), min(kernel + count, END)
    if end - begin == END - FIRST:
        return range(0)  # of the host, which has all
    return range((begin - FIRST) // SLOT, (end - 1 - FIRST) // SLOT + 1) if begin < end else range(0)


def with_ids(config: Mapping[str, Any], ids: UserIds) -> dict[str, Any]:
    """Return the configuration of a container in a user namespace."""
    linux = dict(config.get("linux") or {})
    spaces = [dict(row) for row in linux.get("namespaces") or ()]
    user = {"type": "user", "path": ids.path} if ids.path else {"type": "user"}
    rows = [{"containerID": inside, "hostID": kernel, "size": count} for inside, kernel, count in ids.rows]
    linux |= {"namespaces": [*spaces, user], "uidMappings": rows, "gidMappings": rows}
    sysctls, named = dict(linux.get("sysctl") or {}), {}
    if _PING in sysctls:
        sysctls[_PING] = f"0 {_COMMON - 1}"  # no group of it may lack in the container
    if _DOMAIN in sysctls:
        # Root of the host alone writes it; runc before 1.2 does not know the other way, and sets no name.
        named = {"domainname": sysctls.pop(_DOMAIN)}
    if sysctls or "sysctl" in linux:
        linux["sysctl"] = sysctls
    own = {str(row.get("type")) for row in spaces if not row.get("path") or (ids.path and _OTHERS.match(row["path"]))}
    return {**config, **named, "linux": linux, "mounts": list(_owned(config.get("mounts") or (), own))}


def _owned(mounts: Sequence[Mapping[str, Any]], own: set[str]) -> Iterator[dict[str, Any]]:
    """Return mounts of which none needs a namespace that is not the container's."""
    for mount in mounts:
        namespace, place = _OWNERS.get(str(mount.get("type")), ("", ""))
        if namespace and namespace not in own:
            options = [*(mount.get("options") or ()), "bind"]
            yield {**mount, "type": "bind", "source": place, "options": options}
        else:
            yield dict(mount)
