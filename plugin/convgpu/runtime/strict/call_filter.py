"""Rules of a container's filter of system calls, as the OCI specification writes them. Pure.

https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md#seccomp
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

_ALLOW: Final = "SCMP_ACT_ALLOW"
_REFUSES: Final = ("SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_TRAP")

Rule = dict[str, Any]


def refuses_unnamed(seccomp: Mapping[str, Any]) -> bool:
    """Tell whether a filter refuses what it does not name, as the Engine's does."""
    return str(seccomp.get("defaultAction")) in _REFUSES


def leave_out(seccomp: Mapping[str, Any], names: Collection[str]) -> tuple[list[Rule], set[str]]:
    """Return a filter's rules without some calls, and which calls it permits whatever their arguments are.

    Beside an unconditional rule libseccomp takes no conditional one, so a call goes from the rules that stand.
    """
    rules = [dict(rule) for rule in seccomp.get("syscalls") or ()]
    permitted = {
        name
        for rule in rules
        if rule.get("action") == _ALLOW and not rule.get("args")
        for name in rule.get("names") or ()
    }
    kept = [rule | {"names": [name for name in rule.get("names") or () if name not in names]} for rule in rules]
    return [rule for rule in kept if rule["names"]], permitted


def permit(name: str, condition: Rule) -> Rule:
    """Return the rule that permits a call on one condition."""
    return {"names": [name], "action": _ALLOW, "args": [condition]}


def having(index: int, mask: int, value: int) -> Rule:
    """Return the condition that these bits of an argument have this value."""
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
