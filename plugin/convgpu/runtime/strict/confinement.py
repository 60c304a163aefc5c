"""Takes from a container what would make its users root of the host, by a folder of the host that it writes. Pure.

Root in a container is root in such a folder. `nosuid` and `nodev` on the container's mount hold in the container only:
a setuid file that it makes there counts on the host. So its system calls make none.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

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
_ENOSYS: Final = 38
_EPERM: Final = 1
_ALLOW: Final = "SCMP_ACT_ALLOW"
_REFUSES: Final = ("SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_TRAP")

Rule = dict[str, Any]


def confine(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a container that can make neither setuid files nor devices."""
    process, linux = dict(config.get("process") or {}), dict(config.get("linux") or {})
    process["capabilities"] = without_capabilities(process.get("capabilities") or {}, CAPABILITIES)
    linux["seccomp"] = _filter(linux.get("seccomp") or {"defaultAction": _ALLOW})
    return {**config, "process": process, "linux": linux}


def without_capabilities(sets: Mapping[str, Any], taken: frozenset[str]) -> dict[str, list[str]]:
    """Return a process's sets of capabilities without some."""
    return {name: [each for each in rows or () if each not in taken] for name, rows in sets.items()}


def _filter(seccomp: Mapping[str, Any]) -> dict[str, Any]:
    """Return a filter that permits no more than before, and no such call."""
    rules = [dict(rule) for rule in seccomp.get("syscalls") or ()]
    refuses = str(seccomp.get("defaultAction")) in _REFUSES
    # Beside an unconditional rule libseccomp takes no conditional one, so these calls go from the rules that stand.
    names = {*_MODES, *_OPENS, *_MISSING}
    permitted = {
        name
        for rule in rules
        if rule.get("action") == _ALLOW and not rule.get("args")
        for name in rule.get("names") or ()
    }
    kept = [rule | {"names": [name for name in rule.get("names") or () if name not in names]} for rule in rules]
    added = _permits(permitted) if refuses else _refusals()
    missing = {"names": [*_MISSING], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS}
    return {**seccomp, "syscalls": [*(rule for rule in kept if rule["names"]), *added, missing]}


def _permits(permitted: set[str]) -> Iterator[Rule]:
    """Return the rules of a filter that refuses what it does not name."""
    for name, (mode, bits) in _MODES.items():
        if name in permitted:
            yield _rule(name, _ALLOW, _bits(mode, sum(bits), 0))
    for name, flags in _OPENS.items():
        if name in permitted:
            yield _rule(name, _ALLOW, _bits(flags, sum(_MAKES), 0))
            yield _rule(name, _ALLOW, _bits(flags + 1, sum(_SET_ID), 0))


def _refusals() -> Iterator[Rule]:
    """Return the rules of a filter that permits what it does not name."""
    for name, (mode, bits) in _MODES.items():
        yield from (_rule(name, "SCMP_ACT_ERRNO", _bits(mode, bit, bit)) for bit in bits)
    for name, flags in _OPENS.items():
        for making in _MAKES:
            for bit in _SET_ID:
                yield _rule(name, "SCMP_ACT_ERRNO", _bits(flags, making, making), _bits(flags + 1, bit, bit))


def _rule(name: str, action: str, *arguments: Rule) -> Rule:
    rule: Rule = {"names": [name], "action": action, "args": list(arguments)}
    return rule if action == _ALLOW else rule | {"errnoRet": _EPERM}


def _bits(index: int, mask: int, value: int) -> Rule:
    """Return the condition that an argument has this value in the bits of a mask."""
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
