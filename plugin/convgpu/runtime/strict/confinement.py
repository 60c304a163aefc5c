"""Takes from a container what would make its users root of the host, or let them hold the host up. Pure.

Root in a container is root in a folder of the host that it writes. `nosuid` and `nodev` on the container's mount hold
in the container only: a setuid file that it makes there counts on the host. So its system calls make none. Root in a
container also passes for the owner of root's files, of those on read-only mounts, too, and an owner may take a lease:
then whoever opens the file, root of the host as well, waits for up to 45 s (fcntl(2), lease-break-time). And two
processes that trace each other and stop at their exits (ptrace(2), PTRACE_O_TRACEEXIT) survive SIGKILL with all that
they have. And of /etc/hosts the Engine reads whatever a container made of it (decision 228).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from convgpu.runtime.strict.call_filter import Rule, having, leave_out, permit, refuses_unnamed

# By these a program gives files capabilities, makes device nodes, and keeps the setuid bit of files that it writes.
CAPABILITIES: Final = frozenset({"CAP_SETFCAP", "CAP_MKNOD", "CAP_FSETID"})

_SET_ID: Final = (0o4000, 0o2000)
_DEVICE: Final = 0o020000  # in S_IFCHR and S_IFBLK, and in no other type
_MAKES: Final = (0o100, 0o20000000)  # O_CREAT, __O_TMPFILE: only with one of them the mode counts
# The argument with the mode, and the bits that it may not have.
_MODES: Final[Mapping[str, tuple[int, Sequence[int]]]] = {
    "chmod": (1, _SET_ID),
    "fchmod": (1, _SET_ID),
    "fchmodat": (2, _SET_ID),
    "fchmodat2": (2, _SET_ID),
    "creat": (1, _SET_ID),
    "mknod": (1, (*_SET_ID, _DEVICE)),
    "mknodat": (2, (*_SET_ID, _DEVICE)),
}
# The argument with the flags; the mode is behind it.
_OPENS: Final = {"open": 1, "openat": 2}
# Their arguments lie in memory, where no filter reads them. Programs take `openat` when these are missing.
_MISSING: Final = ("io_uring_setup", "io_uring_enter", "io_uring_register", "openat2")
# An ACL gives its group the right to execute and leaves the setgid bit, which `chown` leaves to a file that its group
# cannot execute. Programs go on without ACLs where a file system has none.
_NO_ACLS: Final = ("setxattr", "lsetxattr", "fsetxattr", "setxattrat")
# F_SETLEASE is bit 10 alone, F_SETDELEG has bit 4 as well; every other command lacks it or has another one of those
# below. The kernel reads the lower half of the argument, so it is not compared as a whole.
_FCNTL: Final = ("fcntl", "fcntl64")
_LEASE: Final = 10
_DELEGATION: Final = 4
# Of ptrace only these set options, from the argument with the data: PTRACE_OLDSETOPTIONS (21), PTRACE_SETOPTIONS
# (0x4200), PTRACE_SEIZE (0x4206).
_TRACE_EXIT: Final = 0x40
# Bits of a request and their values, one of which every other one has, and none of these three; so `data` of other
# requests, which may be a register's value or an address, is as free as before. Of the bits that none of the three has
# those count which a request of some architecture has. The lower half is compared, as above.
_SETS_NO_OPTIONS: Final = (
    *((1 << bit, 1 << bit) for bit in (3, 5, 6, 7, 8, 10, 11, 12, 13, 15)),
    (0x4010, 0x0000), (0x4001, 0x0000), (0x4004, 0x0000), (0x4002, 0x0002),  # below 0x4000, not 21
    (0x4001, 0x4001), (0x4010, 0x4010), (0x4006, 0x4002), (0x4006, 0x4004),  # above, neither 0x4200 nor 0x4206
)  # fmt: skip
_ENOSYS: Final = 38
_EOPNOTSUPP: Final = 95


class Unconfined(Exception):  # noqa: N818 - a state, not an accident
    """The container has no filter of system calls, or one that permits calls which it does not name."""


def confine(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a container that can make neither setuid files nor devices.

    Raises:
        Unconfined: by `seccomp=unconfined` or a profile of that kind: a library that is older than the kernel cannot
            name the kernel's latest calls, so no filter would refuse them.
    """
    process, linux = dict(config.get("process") or {}), dict(config.get("linux") or {})
    process["capabilities"] = without_capabilities(process.get("capabilities") or {}, CAPABILITIES)
    seccomp = linux.get("seccomp") or {}
    if not refuses_unnamed(seccomp):
        raise Unconfined
    linux["seccomp"] = _filter(seccomp)
    return {**config, "process": process, "linux": linux}


def without_holds(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a container that takes no leases, and whose processes stop at no exit of another.

    Without a filter of calls it may.
    """
    linux = dict(config.get("linux") or {})
    seccomp = linux.get("seccomp") or {}
    if not refuses_unnamed(seccomp):
        return dict(config)
    kept, permitted = leave_out(seccomp, (*_FCNTL, "ptrace"))
    permits = [permit(name, rule) for name in _FCNTL if name in permitted for rule in _no_lease()]
    if "ptrace" in permitted:
        permits += [permit("ptrace", rule) for rule in _no_stop_at_exit()]
    return {**config, "linux": linux | {"seccomp": {**seccomp, "syscalls": [*kept, *permits]}}}


def with_engine_files_kept(config: Mapping[str, Any], engine_root: str) -> dict[str, Any]:
    """Return the configuration of a container that cannot write what the Engine writes for it, such as /etc/hosts.

    `engine_root` is the Engine's own folder, without links.
    """
    own = re.compile(rf"{re.escape(engine_root)}/containers/[0-9a-f]{{64}}/(hosts|hostname|resolv\.conf)")
    mounts = [
        _read_only(mount) if own.fullmatch(str(mount.get("source"))) else mount for mount in config.get("mounts") or ()
    ]
    return {**config, "mounts": mounts}


def _read_only(mount: Mapping[str, Any]) -> dict[str, Any]:
    return {**mount, "options": [*(each for each in mount.get("options") or () if each not in {"rw", "ro"}), "ro"]}


def without_capabilities(sets: Mapping[str, Any], taken: frozenset[str]) -> dict[str, list[str]]:
    """Return a process's sets of capabilities without some."""
    return {name: [each for each in rows or () if each not in taken] for name, rows in sets.items()}


def _filter(seccomp: Mapping[str, Any]) -> dict[str, Any]:
    """Return a filter that permits no more than before, and no such call."""
    kept, permitted = leave_out(seccomp, (*_MODES, *_OPENS, *_MISSING, *_NO_ACLS))
    added = [*_permits(permitted), _fails(_MISSING, _ENOSYS), _fails(_NO_ACLS, _EOPNOTSUPP)]
    return {**seccomp, "syscalls": [*kept, *added]}


def _permits(permitted: set[str]) -> Iterator[Rule]:
    """Return the rules by which calls that were permitted still are, without the bits of a set ID."""
    for name, (mode, bits) in _MODES.items():
        if name in permitted:
            yield permit(name, _without(mode, sum(bits)))
    for name, flags in _OPENS.items():
        if name in permitted:
            yield permit(name, _without(flags, sum(_MAKES)))
            yield permit(name, _without(flags + 1, sum(_SET_ID)))


def _fails(names: Sequence[str], error: int) -> Rule:
    return {"names": [*names], "action": "SCMP_ACT_ERRNO", "errnoRet": error}


def _no_lease() -> Iterator[Rule]:
    yield _without(1, 1 << _LEASE)
    for bit in range(_LEASE):
        if bit != _DELEGATION:
            yield having(1, 1 << bit, 1 << bit)


def _no_stop_at_exit() -> Iterator[Rule]:
    yield _without(3, _TRACE_EXIT)
    for mask, value in _SETS_NO_OPTIONS:
        yield having(0, mask, value)


def _without(index: int, mask: int) -> Rule:
    """Return the condition that an argument has none of these bits."""
    return having(index, mask, 0)
