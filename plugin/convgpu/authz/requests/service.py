"""Reads a Swarm service as the container that each of its tasks will be; starts of tasks are not judged."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Final

from convgpu.authz.requests import go_json
from convgpu.authz.requests.container import ContainerSettings, MountSettings, capability, environment, read_mounts
from convgpu.authz.requests.engine_work import long_lines, odd_ends
from convgpu.authz.requests.host_config import HostConfigRest, others, read_rest
from convgpu.authz.requests.templates import expand
from convgpu.runtime.paths import plain

# Folders of files whose targets are relative.
_FOLDERS: Final = {"secret": "/run/secrets", "config": "/"}
# A reserved resource is given to a task as a variable: this prefix, and the kind of resource in capitals.
_RESOURCE: Final = "DOCKER_RESOURCE_"
# An option whose templates are judged by `checks.limits`.
_MEMORY: Final = "memory"
_SECOND: Final = 10**9  # nanoseconds, in which a service gives times
# The fields of a specification that are judged, or open nothing of the host; others need an entry under strict rules.
_TEMPLATE: Final = frozenset({
    "containerspec", "resources", "restartpolicy", "placement", "networks", "logdriver", "forceupdate", "runtime",
})  # fmt: skip
_TASK: Final = frozenset({
    "image", "labels", "command", "args", "hostname", "env", "dir", "user", "groups", "privileges", "init",
    "stopsignal", "tty", "openstdin", "readonly", "mounts", "stopgraceperiod", "healthcheck", "hosts", "dnsconfig",
    "secrets", "configs", "isolation", "sysctls", "capabilityadd", "capabilitydrop", "ulimits", "oomscoreadj",
})  # fmt: skip
_PRIVILEGES: Final = frozenset({"selinuxcontext", "seccomp", "apparmor", "nonewprivileges"})


def read_service(document: Mapping[str, object]) -> ContainerSettings:
    """Return the container that each task of a service will be, from its specification (`POST /services/create`).

    Swarm expands templates in mounts and in values of variables; the latter are judged unexpanded.

    Raises:
        go_json.Ambiguous: the specification can be read in two ways.
    """
    name, template = go_json.text(document, "name"), go_json.child(document, "tasktemplate")
    task = go_json.child(template, "containerspec")
    mounts, opaque = _expanded(read_mounts(task), name)
    return ContainerSettings(
        image=go_json.text(task, "image"),
        labels=go_json.map_of_texts(task, "labels"),
        environment={**environment(go_json.texts(task, "env")), **dict(_resources(template))},
        mounts=(*mounts, *_files(task, "secret"), *_files(task, "config")),
        capabilities=frozenset(map(capability, go_json.words(task, "capabilityadd"))),
        security_options=tuple(_security(go_json.child(task, "privileges"))),
        service=True,
        rest=_rest(document),
        opaque=tuple(opaque),
    )


def service_lengths(document: Mapping[str, object]) -> Iterator[int]:
    """Return how many things each list of a specification names, before anything is made of them."""
    template = go_json.child(document, "tasktemplate")
    task = go_json.child(template, "containerspec")
    yield from (go_json.length(task, name) for name in ("mounts", "secrets", "configs"))
    yield go_json.length(go_json.child(go_json.child(template, "resources"), "reservations"), "genericresources")


def _security(privileges: Mapping[str, object]) -> Iterator[str]:
    """Return the security options that Swarm gives a task (moby, executor/container/container.go, applyPrivileges)."""
    for name in ("seccomp", "apparmor"):
        if go_json.text(go_json.child(privileges, name), "mode").lower() in {"unconfined", "disabled", "custom"}:
            yield f"{name}=unconfined"
    labels = go_json.child(privileges, "selinuxcontext")
    if go_json.flag(labels, "disable"):
        yield "label=disable"
    for name in ("user", "role", "type", "level"):
        if value := go_json.text(labels, name):
            yield f"label={name}:{value}"


def _rest(document: Mapping[str, object]) -> HostConfigRest:
    """Return what only strict rules judge: each setting where Swarm puts it in the container of a task."""
    template = go_json.child(document, "tasktemplate")
    task, driver = go_json.child(template, "containerspec"), go_json.child(template, "logdriver")
    host: dict[str, object] = {
        "logconfig": {"type": go_json.text(driver, "name"), "config": go_json.child(driver, "options")},
        "mounts": go_json.children(task, "mounts"),
        "sysctls": go_json.child(task, "sysctls"),
        "groupadd": go_json.texts(task, "groups"),
    }
    period = go_json.field(task, "stopgraceperiod")
    config: dict[str, object] = {
        "labels": go_json.child(task, "labels"),
        "env": go_json.texts(task, "env"),
        "healthcheck": go_json.child(task, "healthcheck"),
        "stoptimeout": period // _SECOND if isinstance(period, int) else None,
    }
    networks = chain(go_json.children(template, "networks"), go_json.children(document, "networks"))
    rest = read_rest(host, {f"{number}": network for number, network in enumerate(networks)})
    odd = (*odd_ends(config), *long_lines(host, config), *_unknown(template, task))
    return replace(rest, unknown=(*rest.unknown, *odd))


def _unknown(template: Mapping[str, object], task: Mapping[str, object]) -> Iterator[str]:
    privileges = go_json.child(task, "privileges")
    for part, known in ((template, _TEMPLATE), (task, _TASK), (privileges, _PRIVILEGES)):
        yield from (f"service {name}" for name in others(part, known))


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
