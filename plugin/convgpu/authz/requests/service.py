"""Reads a Swarm service as the container that each of its tasks will be; starts of tasks are not judged."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from convgpu.authz.requests import go_json
from convgpu.authz.requests.container import ContainerSettings, MountSettings, capability, environment, read_mounts
from convgpu.authz.requests.templates import expand
from convgpu.runtime.paths import plain

# Folders of files whose targets are relative.
_FOLDERS: Final = {"secret": "/run/secrets", "config": "/"}
# A reserved resource is given to a task as a variable: this prefix, and the kind of resource in capitals.
_RESOURCE: Final = "DOCKER_RESOURCE_"
# An option whose templates are judged by `checks.limits`.
_MEMORY: Final = "memory"


def read_service(document: Mapping[str, object]) -> ContainerSettings:
    """Return the container that each task of a service will be, from its specification (`POST /services/create`).

    Swarm expands templates in mounts and in values of variables; the latter are judged unexpanded.

    Raises:
        go_json.Ambiguous: the specification can be read in two ways.
    """
    name, template = go_json.text(document, "name"), go_json.child(document, "tasktemplate")
    task = go_json.child(template, "containerspec")
    privileges = go_json.child(task, "privileges")
    profiles = [
        f"{name}=unconfined"
        for name in ("seccomp", "apparmor")
        if go_json.text(go_json.child(privileges, name), "mode").lower() in {"unconfined", "disabled", "custom"}
    ]
    mounts, opaque = _expanded(read_mounts(task), name)
    return ContainerSettings(
        image=go_json.text(task, "image"),
        labels=go_json.map_of_texts(task, "labels"),
        environment={**environment(go_json.texts(task, "env")), **dict(_resources(template))},
        mounts=(*mounts, *_files(task, "secret"), *_files(task, "config")),
        capabilities=frozenset(map(capability, go_json.words(task, "capabilityadd"))),
        security_options=tuple(profiles),
        service=True,
        opaque=tuple(opaque),
    )


def service_lengths(document: Mapping[str, object]) -> Iterator[int]:
    """Return how many things each list of a specification names, before anything is made of them."""
    template = go_json.child(document, "tasktemplate")
    task = go_json.child(template, "containerspec")
    yield from (go_json.length(task, name) for name in ("mounts", "secrets", "configs"))
    yield go_json.length(go_json.child(go_json.child(template, "resources"), "reservations"), "genericresources")


def _expanded(mounts: Iterator[MountSettings], name: str) -> tuple[list[MountSettings], list[str]]:
    expanded, opaque = [], []
    for mount in mounts:
        texts = {"source": mount.source, "target": mount.target}
        texts |= {f"option {key}": value for key, value in mount.options.items() if key != _MEMORY}
        known = {key: expand(text, name) for key, text in texts.items()}
        opaque += [texts[key] for key, text in known.items() if text is None]
        options = {key: known.get(f"option {key}") or value for key, value in mount.options.items()}
        source, target = known["source"] or mount.source, plain(known["target"] or mount.target)
        expanded.append(replace(mount, source=source, target=target, options=options))
    return expanded, opaque


def _resources(template: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    reservations = go_json.child(go_json.child(template, "resources"), "reservations")
    for row in go_json.children(reservations, "genericresources"):
        for form in ("namedresourcespec", "discreteresourcespec"):
            if resource := go_json.child(row, form):
                value = go_json.field(resource, "value")
                yield _RESOURCE + go_json.text(resource, "kind").upper(), "" if value is None else str(value)


def _files(task: Mapping[str, object], kind: str) -> Iterator[MountSettings]:
    """Return the secrets or configs that Swarm mounts as files."""
    for row in go_json.children(task, f"{kind}s"):
        if target := go_json.text(go_json.child(row, "file"), "name"):
            path = target if target.startswith("/") else f"{_FOLDERS[kind]}/{target}"
            yield MountSettings(kind, "", plain(path), read_only=True)
