"""Compose projects whose containers may wait for each other without being a gang. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from convgpu.cli.terminal.findings import Finding
from convgpu.protocol.records import Container

_PROJECT: Final = "com.docker.compose.project"  # label of Docker Compose


def projects(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the compose project by volume, from the Engine's list of containers."""
    found = {}
    for row in rows:
        project = (row.get("Labels") or {}).get(_PROJECT)
        for mount in row.get("Mounts") or ():
            if project and mount.get("Type") == "volume" and mount.get("Name"):
                found[mount["Name"]] = project
    return found


def judge_gangs(containers: Sequence[Container], project_of: Mapping[str, str]) -> Iterator[Finding]:
    """Warn of each project of which several containers without a gang have limits on the same GPU."""
    sharing: dict[tuple[str, str], list[str]] = {}
    for container in containers:
        project = project_of.get(container.name)
        if project and not container.gang:
            for share in container.devices:
                name = container.engine.name if container.engine else container.name
                sharing.setdefault((project, share.uuid), []).append(name)
    warned = set()
    for (project, uuid), names in sharing.items():
        if len(names) > 1 and project not in warned:
            warned.add(project)
            yield Finding(
                "gangs",
                "warn",
                f"compose project {project}: {', '.join(names)} share {uuid} without a gang",
                "If they wait for each other, two such projects can wait for ever. Start them as one:\n"
                "driver_opts: {memory: ..., gang: ${COMPOSE_PROJECT_NAME}}",
            )
