"""The decision about each kind of call."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from convgpu.authz.checks import hook
from convgpu.authz.checks.gpu import find_gpu
from convgpu.authz.checks.host import find_host_access, judge_local_volume
from convgpu.authz.checks.quotas import Limits
from convgpu.authz.ports import EnginePort, EngineUnreachable, HostDevicePort, HostFacts
from convgpu.authz.requests import go_json
from convgpu.authz.requests.container import (
    ContainerSettings,
    MountSettings,
    environment,
    read_inspected,
    read_request,
)
from convgpu.authz.requests.routes import Call, Kind
from convgpu.authz.requests.service import read_service
from convgpu.authz.site.rules import Rules
from convgpu.authz.verdict import Refusal, Verdict, allow
from convgpu.protocol.layout import MOUNT_PATH
from convgpu.runtime.gpu_requests import asking_variable, is_plain

# Who calls over the Engine's own socket, where nobody has a name.
LOCAL: Final = "local"


def caller(name: str, method: str) -> str:
    """Return who calls: the common name of a certificate, or `local`, which no certificate can claim to be.

    Args:
        name: the Engine's `User`.
        method: its `UserAuthNMethod`; empty where nobody proved anything.
    """
    if not name and not method:
        return LOCAL
    return f"CN={name}" if name in {"", LOCAL} else name


_WITHHELD: Final = Refusal(
    "body-withheld",
    "the Engine does not show what is asked for, so it may be a GPU without a limit.\n"
    "It keeps back a body of more than 1 MiB; make the request smaller and repeat it.",
)
_OLD_API: Final = Refusal(
    "start-old-api", "before API 1.24 a start could change what the container is.\nUse a newer client."
)
_PLUGINS: Final = Refusal(
    "plugin-management",
    "whoever manages plugins can switch ConvGPU off, or give a plugin every GPU.\n"
    "An administrator of the rules of the site may; or root of the host, after `convgpu authz disable`.",
)
_CHECKPOINT: Final = Refusal(
    "checkpoint", "a restored program would not load the hook.\nStart it without --checkpoint."
)
_SWARM: Final = Refusal(
    "swarm-management",
    "the other managers of a swarm could start containers here that nobody judges.\n"
    "An administrator of the rules of the site may; or root of the host, after `convgpu authz disable`.",
)


@dataclass(frozen=True, slots=True)
class Case:
    """One call, who makes it, and the rules that hold."""

    call: Call
    body: bytes
    user: str
    rules: Rules

    def first(self, refusals: Iterator[Refusal], container: ContainerSettings | None = None) -> Refusal | None:
        """Return the first refusal from which nothing exempts."""
        meant = container or ContainerSettings()
        for refusal in refusals:
            if not self.rules.exempts(refusal.rule, self.user, meant.image, meant.image_id, meant.labels):
                return refusal
        return None


class Judge:
    """Judges calls; may be asked by several threads.

    Args:
        name: the plugin's name in the Engine.
        view: what the Engine says.
        nodes: the host's devices and links.
        limits: what a volume of ours may have.
    """

    def __init__(self, name: str, view: EnginePort, nodes: HostDevicePort, limits: Limits) -> None:
        self._name = name
        self._view = view
        self._nodes = nodes
        self._limits = limits
        self._kinds: Mapping[Kind, Callable[[Case], Verdict]] = {
            Kind.CREATE: self._create,
            Kind.START: self._start,
            Kind.EXEC: self._exec,
            Kind.ARCHIVE: self._archive,
            Kind.UPDATE: self._update,
            Kind.VOLUME: self._volume,
            Kind.SERVICE: self._service,
            Kind.BUILD: self._build,
            Kind.PLUGIN: lambda case: _verdict(None if case.call.name.endswith("/push") else _PLUGINS, case),
            Kind.SWARM: lambda case: _verdict(_SWARM, case),
        }

    def judge(self, call: Call, body: bytes, user: str, rules: Rules) -> Verdict:
        """Decide about one call.

        Args:
            call: what it is.
            body: of the call; empty if there is none, or if the Engine keeps it back.
            user: the common name of the caller's certificate, or `local`.
            rules: of the site.
        """
        try:
            return self._kinds[call.kind](Case(call, body, user, rules))
        except go_json.Ambiguous as error:
            return Refusal("body-ambiguous", f"it can be read in two ways, or in none: {error}.").verdict()
        except EngineUnreachable as error:
            text = f"{error}; nobody can tell what the container is.\nIs CONVGPU_ENGINE right? `convgpu authz status`"
            return Refusal("engine-unavailable", text).verdict()

    def _create(self, case: Case) -> Verdict:
        document = _document(case.body)
        if not document:
            return _WITHHELD.verdict()
        container = self._completed(read_request(document))
        return self._judge_container(container, case)

    def _start(self, case: Case) -> Verdict:
        if case.call.older_than(1, 24):
            return _OLD_API.verdict()
        container = self._inspect(case.call.name)
        if container is None:
            return allow("no-such-container")
        return self._judge_container(container, case)

    def _exec(self, case: Case) -> Verdict:
        document = _document(case.body)
        if not document:
            return _WITHHELD.verdict()
        rows = go_json.texts(document, "env")
        privileged = go_json.flag(document, "privileged")
        if not privileged and not list(hook.find_variables(rows, ["/"])):
            return allow("nothing-to-judge")
        container = self._inspect(case.call.name)
        if container is None:
            return allow("no-such-container")

        def refusals() -> Iterator[Refusal]:
            if privileged:
                yield Refusal(
                    "exec-privileged", "a privileged program can take any GPU of the host.\nLeave --privileged out."
                )
            if targets := self._hook_places(container, case):
                ours = self._ours(container)
                by_file = not ours or hook.loads_by_file(container, ours, self._facts(case.user))
                yield from hook.find_variables(rows, targets, by_file=by_file)

        return _verdict(case.first(refusals(), container), case)

    def _archive(self, case: Case) -> Verdict:
        container = self._inspect(case.call.name)
        if container is None:
            return allow("no-such-container")
        targets = self._hook_places(container, case)
        for path in case.call.query.get("path", ()):
            where = hook.unpacked_at(path)
            if targets and hook.is_in_our_paths(where, targets):
                text = f"what is copied to {path} could replace the hook.\nCopy it to another folder, such as /tmp."
                return _verdict(case.first(iter([Refusal("archive-path", text)]), container), case)
        return allow("nothing-to-judge")

    def _update(self, case: Case) -> Verdict:
        # Every Engine changes by this only what has nothing to do with devices (docs/authorization.md).
        return allow("nothing-to-judge") if _document(case.body) else _WITHHELD.verdict()

    def _volume(self, case: Case) -> Verdict:
        document = _document(case.body)
        if not document:
            return _WITHHELD.verdict()
        driver, options = go_json.text(document, "driver"), go_json.map_of_texts(document, "driveropts")
        if hook.same_plugin(driver, self._name):
            return _verdict(case.first(self._limits.judge_options(options, {}, case.user, case.rules, {})), case)
        if driver not in {"", "local"} or not options:
            return allow("nothing-to-judge")
        return _verdict(case.first(judge_local_volume(options, self._facts(case.user), self._nodes)), case)

    def _service(self, case: Case) -> Verdict:
        document = _document(case.body)
        if not document:
            return _WITHHELD.verdict()
        task = go_json.child(document, "tasktemplate")
        if go_json.text(task, "runtime").lower() == "plugin" or go_json.child(task, "pluginspec"):
            return _verdict(_PLUGINS, case)
        verdict = self._tasks(document, case)
        if verdict.allow and "previous" in case.call.query.get("rollback", ()):
            # Then the Engine takes what the service was before, whatever the body says.
            service = self._view.service(case.call.name) or {}
            return self._tasks(go_json.child(service, "previousspec"), case)
        return verdict

    def _tasks(self, specification: Mapping[str, object], case: Case) -> Verdict:
        container = self._completed(read_service(specification))
        if container.opaque and (refusal := case.first(iter([_template(container.opaque[0])]), container)):
            return refusal.verdict()
        runtime = self._facts(case.user).default_runtime
        if not is_plain(runtime) and not container.known and "NVIDIA_VISIBLE_DEVICES" not in container.environment:
            # The tasks' image is not here, and on every node this runtime would give what it asks for.
            container = replace(container, environment={**container.environment, "NVIDIA_VISIBLE_DEVICES": "all"})
        return self._judge_container(container, case)

    def _build(self, case: Case) -> Verdict:
        runtime = self._facts(case.user).default_runtime
        if is_plain(runtime) or runtime == hook.RUNTIME:  # ours covers the containers of builds as all others
            return allow("nothing-to-judge")
        text = (
            f"the Engine's default runtime {runtime} gives every build the GPUs that its base image asks for.\n"
            'Set "default-runtime" back to runc, and give containers GPUs by --gpus.'
        )
        return _verdict(Refusal("build-gpu", text), case)

    def _judge_container(self, container: ContainerSettings, case: Case) -> Verdict:
        ours = self._ours(container)
        facts = self._facts_about(container, case.user)
        refusal = case.first(find_host_access(container, facts, self._nodes), container)
        gpu = find_gpu(container, container.runtime or facts.default_runtime, self._nodes)
        if refusal is None:
            refusal = case.first(self._find_gpu_refusals(container, gpu, ours, facts, case), container)
        covered, memory = hook.covering_limit(container, facts)
        cover = memory if covered and not ours else None
        if refusal is None and (ours or cover is not None) and case.call.kind is Kind.START:
            # Last, because a container that passes it counts from now on.
            refusal = self._limits.admit(
                container,
                ours,
                cover,
                case.user,
                case.rules,
                needed=gpu is not None and bool(ours),
                first=lambda refusals: case.first(refusals, container),
            )
        if refusal is not None:
            return refusal.verdict()
        if gpu is None and not ours:
            return allow("no-gpu")
        return allow("limited" if ours else "injected" if covered else "exempt")

    def _find_gpu_refusals(
        self, container: ContainerSettings, gpu: str | None, ours: Sequence[MountSettings], facts: HostFacts, case: Case
    ) -> Iterator[Refusal]:
        yield from self._shared_processes(container, case)
        covered, memory = hook.covering_limit(container, facts)
        if gpu is not None and case.call.kind is Kind.START and "checkpoint" in case.call.query:
            yield _CHECKPOINT
        if gpu is not None and covered and not ours:
            yield from hook.find_holes_in_cover(container)
            options = {} if memory is None else {"memory": memory}
            yield from self._limits.judge_options(options, {}, case.user, case.rules, container.labels)
            return
        if gpu is not None and not ours:
            yield hook.how_to_limit(gpu, self._name)
            return
        if gpu is not None:
            yield from hook.find_holes(container, ours, facts)
        if ours and case.call.kind is not Kind.START:
            for mount in ours:
                yield from self._limits.judge_mount(mount, container, case.user, case.rules, needed=gpu is not None)

    def _shared_processes(self, container: ContainerSettings, case: Case) -> Iterator[Refusal]:
        kind, _, name = container.pid_mode.partition(":")
        if kind != "container":
            return
        other = self._inspect(name)
        if other is not None and self._hook_places(other, case):
            text = f"{name} has a GPU, whose limit its processes' neighbours could undo.\nLeave --pid out."
            yield Refusal("gpu-isolation", text)

    def _completed(self, container: ContainerSettings) -> ContainerSettings:
        """Add what the request leaves to volumes that exist, and to the image."""
        mounts = tuple(self._named(mount) for mount in container.mounts)
        container = replace(container, mounts=mounts)
        runtime = container.runtime
        if not runtime and (asking_variable(container.environment) or container.service):
            runtime = self._facts(LOCAL).default_runtime
        wanted = (runtime and not is_plain(runtime)) or (
            container.device_requests and "LD_PRELOAD" not in container.environment
        )
        image = self._image(container.image) if wanted and container.image else None
        if image is None:
            return container
        config = go_json.child(image, "config")
        merged = {**environment(go_json.texts(config, "env")), **container.environment}
        return replace(container, environment=merged, known=True)

    def _named(self, mount: MountSettings) -> MountSettings:
        if mount.kind != "volume" or not mount.source or mount.options:
            return mount
        try:
            volume = self._view.volume(mount.source)
        except EngineUnreachable:
            # At the start it is asked again; until then the scheduler tells ours from others.
            ours = not mount.driver and self._limits.knows(mount.source)
            return replace(mount, driver=self._name) if ours else mount
        if volume is None:
            return mount
        return replace(mount, driver=go_json.text(volume, "driver"), options=go_json.map_of_texts(volume, "options"))

    def _image(self, name: str) -> Mapping[str, Any] | None:
        try:
            return self._view.image(name)
        except EngineUnreachable:
            return None

    def _inspect(self, name: str) -> ContainerSettings | None:
        document = self._view.container(name)
        if document is None:
            return None
        options: dict[str, Mapping[str, str]] = {}
        for row in go_json.children(document, "mounts"):
            volume = go_json.text(row, "name")
            if volume and go_json.text(row, "driver") in {"", "local"}:
                options[volume] = go_json.map_of_texts(self._view.volume(volume) or {}, "options")
        return read_inspected(document, options)

    def _ours(self, container: ContainerSettings) -> list[MountSettings]:
        volumes = (mount for mount in container.mounts if mount.kind == "volume")
        return [mount for mount in volumes if hook.same_plugin(mount.driver, self._name)]

    def _hook_places(self, container: ContainerSettings, case: Case) -> list[str]:
        """Return the folders of a container in which its hook lies; none for one that has none, and needs none."""
        if ours := self._ours(container):
            return [mount.target for mount in ours]
        facts = self._facts(case.user)
        runtime = container.runtime or facts.default_runtime
        covered, _ = hook.covering_limit(container, facts)
        return [MOUNT_PATH] if covered and find_gpu(container, runtime, self._nodes) is not None else []

    def _facts_about(self, container: ContainerSettings, user: str) -> HostFacts:
        """Return what is needed to judge a container; the plain one asks nobody."""
        if container.known or _needs_facts(container):
            return self._facts(user)
        may_be_covered = not container.runtime and (container.device_requests or container.devices)
        try:
            return self._facts(user, needed=bool(may_be_covered))
        except EngineUnreachable:
            return self._facts(user, needed=False)

    def _facts(self, user: str, *, needed: bool = True) -> HostFacts:
        facts = self._view.facts() if needed else HostFacts()
        return replace(facts, local=user == LOCAL)


def _template(text: str) -> Refusal:
    return Refusal(
        "service-template",
        f"what comes of {text:.60} is known when a task starts, and nobody judges that.\n"
        "Of templates, use .Node.ID, .Node.Hostname, .Service.ID, .Service.Name, .Task.ID, .Task.Name and .Task.Slot.",
    )


def _needs_facts(container: ContainerSettings) -> bool:
    return any(mount.kind == "bind" or mount.options for mount in container.mounts) or (
        not container.runtime and asking_variable(container.environment) is not None
    )


def _document(body: bytes) -> dict[str, object]:
    return go_json.parse(body) if body else {}


def _verdict(refusal: Refusal | None, case: Case) -> Verdict:
    refusal = None if refusal is None else case.first(iter([refusal]))
    return allow("nothing-to-judge") if refusal is None else refusal.verdict()
