"""Why a program of the host's that uses a GPU is not ended: where rules are strict, it needs a right to the GPU."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final

from convgpu.authz.ports import HostAccessPort, HostProgram, Node
from convgpu.authz.site.rules import Rules

_READ_WRITE: Final = 6
# Of entries of `accept`: all programs of the host, or those of a user.
HOST_GPUS: Final = "host-gpus"


def may_open(program: HostProgram, node: Node) -> bool:
    """Say whether a program has a right to read and write a device node; as the kernel decides it (acl(5))."""
    if program.uid == 0 or program.is_privileged:
        return True
    if program.uid == node.uid:
        return _suffices(node.owner)
    if program.uid in node.users:
        return _suffices(node.users[program.uid])
    granted = [node.groups[group] for group in program.groups if group in node.groups]
    granted += [node.group] if node.gid in program.groups else []
    return any(map(_suffices, granted)) if granted else _suffices(node.others)


def why_kept(program: HostProgram, *, has_right: bool, rules: Rules, accepted: AbstractSet[int]) -> str:
    """Return why a program is not ended; empty if nothing permits it to use a GPU. Pure.

    Args:
        program: that uses a GPU.
        has_right: it may open the GPU's device nodes on the host.
        rules: of the site, which are strict.
        accepted: IDs of the users whose programs the rules accept.
    """
    reasons = (
        (HOST_GPUS in rules.strict.accept, "the rules accept programs of the host"),
        (program.uid in accepted, f"the rules accept programs of user {program.uid}"),
        (has_right, f"user {program.uid} may open the GPU's device nodes"),
        (program.is_apart, "root started it as runtimes of containers do, in a PID namespace of its own"),
    )
    return next((text for holds, text in reasons if holds), "")


class HostProgramJudge:
    """Judges programs of the host's that use a GPU.

    Args:
        files: of the host.
        rules: returns those of the site, None while its file has a mistake.
    """

    def __init__(self, files: HostAccessPort, rules: Callable[[], Rules | None]) -> None:
        self._files = files
        self._rules = rules

    def why_kept(self, pid: int, started: int, gpu: str) -> str | None:
        """Return why a process is not ended; empty if nothing permits it, None if nobody can tell.

        Args:
            pid: on the host.
            started: in clock ticks since boot; what is said is about no other process.
            gpu: UUID.
        """
        rules = self._rules()
        if rules is None:
            return "the rules of the site have a mistake: convgpu authz status"
        if rules.mode != "strict":
            return f"the rules of the site are not strict (mode {rules.mode})"
        nodes, program = self._files.nodes(gpu), self._files.program(pid, started)
        if nodes is None or program is None:
            return None
        own, control = nodes
        has_right = any(may_open(program, node) for node in own) and may_open(program, control)
        return why_kept(program, has_right=has_right, rules=rules, accepted=self._accepted(rules))

    def _accepted(self, rules: Rules) -> set[int]:
        names = [entry.removeprefix(f"{HOST_GPUS}=") for entry in rules.strict.accept if "=" in entry]
        ids = (int(name) if name.isdecimal() else self._files.user_id(name) for name in names)
        return {found for found in ids if found is not None}


def _suffices(permissions: int) -> bool:
    return permissions & _READ_WRITE == _READ_WRITE
