"""Reads the settings of the host's Engine from its own description of itself. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

from convgpu.authz.ports import HostFacts
from convgpu.authz.subject.injection import RUNTIME

# With this option in its runtimeArgs our runtime limits containers that name no limit (convgpu.runtime.__main__).
_MEMORY: Final = "--convgpu-memory="


# From here on `os.RemoveAll` of Go follows no link that takes a folder's place (golang/go, issue 52745).
_SAFE_GO: Final = (1, 22, 4)


def removes_through_links(go: str) -> bool:
    """Tell whether an Engine that was built with this Go follows links when it removes folders; so if it is unknown.

    Args:
        go: as `go1.24.4`.
    """
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", go)
    return found is None or tuple(int(part or 0) for part in found.groups()) < _SAFE_GO


def read_facts(info: Mapping[str, Any], version: Mapping[str, Any], plugin_id: str) -> HostFacts:
    """Return the settings that rules depend on.

    Args:
        info: `GET /info`; empty if the Engine has none.
        version: `GET /version`, likewise.
        plugin_id: the plugin's there; empty if it is unknown.
    """
    runtime = (info.get("Runtimes") or {}).get(RUNTIME) or {}
    memory = [word for word in runtime.get("runtimeArgs") or () if word.startswith(_MEMORY)]
    return HostFacts(
        docker_root=str(info.get("DockerRootDir") or ""),
        default_runtime=str(info.get("DefaultRuntime") or ""),
        runtime_memory=memory[-1].removeprefix(_MEMORY) if memory else None,
        engine=_version(str(info.get("ServerVersion") or "")),
        go=str(version.get("GoVersion") or ""),
        cgroupns="private" if "name=cgroupns" in (info.get("SecurityOptions") or ()) else "host",
        log_driver=str(info.get("LoggingDriver") or ""),
        plugin_id=plugin_id,
        labels=any(str(each).startswith("name=selinux") for each in info.get("SecurityOptions") or ()),
    )


def _version(text: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)
