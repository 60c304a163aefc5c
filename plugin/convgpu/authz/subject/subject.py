"""The subject of a judgement: a container, its caller, and every fact that the checks need. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from convgpu.authz.facts.owners import QuotaSubject
from convgpu.authz.ports import HostFacts
from convgpu.authz.requests.callers import LOCAL
from convgpu.authz.requests.container import ContainerSettings, MountSettings
from convgpu.authz.site.rules import Allowance, Rules, has_label
from convgpu.authz.subject.injection import Injection
from convgpu.authz.verdict import Refusal
from convgpu.cluster.layout import LABEL
from convgpu.cluster.node_job import NodeJob
from convgpu.protocol.layout import MOUNT_PATH
from convgpu.protocol.records import Device


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of the judged call, and the rules of the site."""

    user: str
    rules: Rules

    @property
    def is_local(self) -> bool:
        """Whether the call came over the Engine's own socket, which then gives no new access."""
        return self.user == LOCAL


@dataclass(frozen=True, slots=True)
class Subject:
    """Everything that one judgement depends on.

    Attributes:
        caller: of the judged call.
        plugin: the plugin's name in the Engine.
        container: asked for, or existing; empty for a call that is about none.
        host: the Engine's settings; the defaults where no check needs them.
        volumes: the container's ConvGPU volumes.
        gpu: the setting that gives it a GPU, as its user would recognize it; None for no GPU.
        unsearched: the folder of `--device` that has too much in it to tell, where `gpu` names it only for that.
        injection: by the runtime `convgpu` or a CDI device of ours; None if neither is used.
        resolved: paths of the host that it mounts, with their links resolved.
        written: those of its mounts' paths on whose way others than root may exchange names; only where rules are
            strict.
        missing: those of the others where nothing is, and that the Engine would make; likewise.
        volume_limits: limits in bytes by device, of those volumes for which the scheduler has some.
        joined: the container with a hook whose PID namespace it joins; empty for none.
        neighbours: containers whose namespaces it joins; only where rules are strict.
        starts: it exists and is to start now, so `Admission` judges the limits of its volumes.
        checkpoint: it is to start from a checkpoint.
        job_shares: what the job of Slurm that it names has on this host.
        gpus: all GPUs of the host, where it is new and names some of them for a volume that names none.
    """

    caller: Caller
    plugin: str
    container: ContainerSettings = field(default_factory=ContainerSettings)
    host: HostFacts = field(default_factory=HostFacts)
    volumes: tuple[MountSettings, ...] = ()
    gpu: str | None = None
    unsearched: str = ""
    injection: Injection | None = None
    resolved: Mapping[str, str] = field(default_factory=dict)
    written: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    volume_limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    joined: str = ""
    neighbours: tuple["Subject", ...] = ()
    starts: bool = False
    checkpoint: bool = False
    job_shares: tuple[NodeJob, ...] = ()
    gpus: tuple[Device, ...] = ()

    @property
    def would_inject(self) -> bool:
        """Whether a limit is injected if no ConvGPU volume stands in the way (runtime/edits.py, `inject_limit`)."""
        if self.injection is None:
            return False
        names_limit = bool(self.container.environment.get("CONVGPU_MEMORY"))
        return self.injection.by_device or self.gpu is not None or names_limit

    @property
    def injected(self) -> Injection | None:
        """The injection that limits the container; beside a ConvGPU volume none does (`second_limit`)."""
        return self.injection if self.would_inject and not self.volumes else None

    @property
    def needs_hook(self) -> bool:
        """Whether the container gets a GPU under a limit, which only its hook enforces."""
        return self.gpu is not None and bool(self.volumes or self.injection)

    @property
    def needs_job(self) -> bool:
        """Whether the site gives GPUs to jobs of Slurm only, and the container gets one."""
        wants = self.gpu is not None or bool(self.volumes) or self.would_inject
        return wants and self.caller.rules.require == "slurm"

    @property
    def job(self) -> str:
        """The job of Slurm that the container says it belongs to; empty for none."""
        return self.container.labels.get(LABEL, "")

    @property
    def hook_folders(self) -> list[str]:
        """The container's folders in which its hook lies; none for a container that has no hook."""
        if self.volumes:
            return [mount.target for mount in self.volumes]
        return [MOUNT_PATH] if self.needs_hook else []

    @property
    def permission(self) -> str:
        """The rule by which the container may pass when nothing speaks against it."""
        if self.volumes:
            return "limited"
        if self.gpu is None:
            return "no-gpu"
        return "injected" if self.injection else "exempt"

    @property
    def quotas(self) -> list[tuple[QuotaSubject, Allowance]]:
        """The allowances that hold for the container: of its user, and of each of its labels that has one."""
        rules, user = self.caller.rules, self.caller.user
        labels = [label for label in rules.labels if has_label(self.container.labels, label)]
        by_label = [(QuotaSubject("label", label), rules.labels[label]) for label in labels]
        return [(QuotaSubject("user", user), rules.allowance(user)), *by_label]

    def first_refusal(self, refusals: Iterable[Refusal]) -> Refusal | None:
        """Return the first refusal that no exemption of the site lifts. This is the only place that applies them."""
        exempts, user, container = self.caller.rules.exempts, self.caller.user, self.container
        for refusal in refusals:
            if not exempts(refusal.rule, user, container.image, container.image_id, container.labels):
                return self._with_entry(refusal)
        return None

    def _with_entry(self, refusal: Refusal) -> Refusal:
        """Return a refusal of strict rules with the entry of the site's rules that would lift it."""
        if self.caller.rules.strict_list is None or refusal.has_entry:
            return refusal
        entry = f'[[exempt]] users = ["{self.caller.user:.60}"] rules = ["{refusal.rule}"]'
        return replace(refusal, text=f"{refusal.text}\nWhat permits it, in the rules of the site: {entry}")
