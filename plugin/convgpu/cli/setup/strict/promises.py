"""What keeps strict rules from what they promise on a host, in lines for people. Pure but for the runtime's rules."""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from convgpu.authz.subject.host_facts import removes_through_links
from convgpu.protocol.site.strictness import says_strict
from convgpu.runtime.paths import READ_ONLY

_RUNTIME: Final = "convgpu"
_RULES: Final = "/etc/convgpu/rules.toml"
_OPTION: Final = "--convgpu-rules="
_FUSE_TIMEOUT: Final = Path("/proc/sys/fs/fuse/max_request_timeout")
_MODULE: Final = "/etc/modprobe.d/nvidia-nodes.conf"


def unjudged_starts(info: Mapping[str, Any]) -> Iterator[str]:
    """Yield a problem where the OCI runtime does not judge starts by strict rules.

    Args:
        info: of the Engine.
    """
    runtime = (info.get("Runtimes") or {}).get(_RUNTIME)
    if runtime is None:
        yield "no container starts: the Engine has no runtime convgpu. Do `convgpu install runtime --write --default`."
        return
    words = runtime.get("runtimeArgs") or ()
    path = next((word.removeprefix(_OPTION) for word in reversed(words) if word.startswith(_OPTION)), _RULES)
    try:
        is_strict = says_strict(Path(path).read_bytes())
    except PermissionError:
        return  # not root: who reads this cannot tell
    except OSError:
        is_strict = False
    if not is_strict:
        yield (
            f"the runtime convgpu judges no start: {path}, from which it reads the rules, is not strict. "
            f"Give it those of the plugin ({_OPTION}FILE in its runtimeArgs in daemon.json)."
        )


def shared_ids(ids: Sequence[str], info: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning where containers do not have user IDs of their own.

    Args:
        ids: of the strict list.
        info: of the Engine.
    """
    if any(option.startswith("name=userns") for option in info.get("SecurityOptions") or ()):
        if "shared" not in ids:
            yield 'no container starts: take "userns-remap" out of daemon.json, as strict rules give each its own IDs.'
        else:
            yield "containers share user IDs by userns-remap: who has an account on this host reaches those of others."
    elif "host" in ids:
        yield (
            "root of a container is root of the host here: who has an account on this host can hand it an open folder. "
            'Take ids = ["host"] out of the rules, or give such users no account (docs/strict-rules.md).'
        )


def open_entries(calls: Sequence[str], fields: Sequence[str]) -> Iterator[str]:
    """Yield a warning where an entry lets its users read or write files of the host.

    Args:
        calls: of the strict list.
        fields: of the strict list.
    """
    if "volume copy" in fields:
        yield 'fields = ["volume copy"] lets whoever may call Docker become root: by links in volumes that are filled.'
    if "cp" in calls:
        yield 'calls = ["cp"] lets whoever may call Docker become root: the Engine mounts for it, by names, as root.'
    if found := [name for name in ("build", "commit") if name in calls]:
        yield (
            f"calls = {found} lets whoever may call Docker read any file of the host: the Engine reads layers as root, "
            "through links that take a folder's place meanwhile."
        )


def unfit_engine(accepted: Sequence[str], version: Mapping[str, Any]) -> Iterator[str]:
    """Yield a problem where the Engine can be led to empty folders of the host, and the rules do not accept that.

    Args:
        accepted: the entries of `accept` in the strict list.
        version: the Engine's answer to `GET /version`.
    """
    if "removal" not in accepted:
        for text in _removals(version):
            yield f'no container starts: {text} Take a newer Engine, or accept it: accept = ["removal"].'


def accepted_removals(accepted: Sequence[str], version: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning where the rules accept such an Engine; parameters as `unfit_engine`."""
    if "removal" in accepted:
        yield from _removals(version)


def setgid_paths(accepted: Sequence[str], paths: Sequence[str]) -> Iterator[str]:
    """Yield a problem for each writable path in which users of this host could be left setgid programs.

    Args:
        accepted: the entries of `accept` in the strict list.
        paths: of the strict list.
    """
    for path in paths if "setgid" not in accepted else ():
        try:
            is_plain = not path.endswith(READ_ONLY) and not os.statvfs(path).f_flag & os.ST_NOSUID
        except OSError:
            continue  # no container has it
        if is_plain:
            yield (
                f"no container that writes {path} starts: it is not mounted nosuid. Do `mount --bind {path} {path} && "
                f'mount -o remount,bind,nosuid,nodev {path}` (and in fstab), or accept it: accept = ["setgid"].'
            )


def open_nodes(accepted: Sequence[str], devices: Path = Path("/dev")) -> Iterator[str]:
    """Yield a warning where everybody with an account on this host may use a GPU, and the rules do not accept that.

    Args:
        accepted: the entries of `accept` in the strict list.
        devices: the folder with the device nodes.
    """
    if "host-gpus" in accepted:
        return
    modes = {}
    for path in sorted(devices.glob("nvidia*")):
        if re.fullmatch(r"nvidia(\d+|ctl)", path.name):
            modes[path.name] = stat.S_IMODE(path.stat().st_mode) & (stat.S_IROTH | stat.S_IWOTH)
    is_open = {name for name, mode in modes.items() if mode == stat.S_IROTH | stat.S_IWOTH}
    if "nvidiactl" in is_open and len(is_open) > 1:
        yield (
            "everybody with an account on this host uses its GPUs without Docker and without a limit: the modes of "
            f"{devices}/nvidia* let them. Do `echo options nvidia NVreg_DeviceFileMode=0600 > {_MODULE}` (or 0660 with "
            'NVreg_DeviceFileGID=GROUP) and load the driver anew, or accept it: accept = ["host-gpus"].'
        )


def endless_servers(node: Path = Path("/dev/fuse"), timeout: Path = _FUSE_TIMEOUT) -> Iterator[str]:
    """Yield a warning where everybody with an account on this host may serve files and never answer.

    Args:
        node: of FUSE.
        timeout: the kernel's file with the seconds after which it gives such a server up; 0, or no file: never.
    """
    try:
        is_open = stat.S_IMODE(node.stat().st_mode) & stat.S_IROTH
        is_bounded = timeout.exists() and int(timeout.read_text()) > 0
    except (OSError, ValueError):
        return  # no FUSE here, or nobody knows
    if is_open and not is_bounded:
        yield (
            "everybody with an account on this host can keep what is ended from ending, with its GPU memory: "
            f"{node} is open, and a server of files that does not answer is waited for. "
            "Do `sysctl fs.fuse.max_request_timeout=60` (Linux 6.18 has it) before users mount, or close "
            f"{node} (docs/authorization.md, What no audit ends)."
        )


def _removals(version: Mapping[str, Any]) -> Iterator[str]:
    go = str(version.get("GoVersion") or "")
    if removes_through_links(go):
        yield (
            f"the Engine was built with {go or 'an unknown Go'}, before 1.22.4: removing volumes and containers "
            "follows links, by which its users empty any folder of this host."
        )
