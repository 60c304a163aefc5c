"""The ports of authorization: what it asks of the Engine, the host and the scheduler."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Protocol

from convgpu.cluster.node_job import NodeJob
from convgpu.protocol.records import Container, Device

Document = Mapping[str, Any]


class EngineUnreachable(Exception):  # noqa: N818 - a state, not an accident
    """The Engine does not answer; one line."""


class EngineHolds(EngineUnreachable):
    """The Engine answers, but not about one thing, whose lock it holds.

    Args:
        name: of that thing, with its kind.
        silent: seconds for which it has not answered about it.
    """

    def __init__(self, name: str, silent: float) -> None:
        super().__init__(f"the Engine has not answered about {name:.80} for {max(silent, 1):.0f} s")


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Settings of the Engine's host.

    Attributes:
        docker_root: the Engine's own folder.
        default_runtime: of containers that name none; empty if it is unknown.
        engine: version of the Engine; (0, 0) if it is unknown.
        go: with which the Engine was built, such as `go1.24.4`; empty if it is unknown.
        cgroupns: mode of the cgroup namespace of containers that name none.
        log_driver: of containers that name none.
        plugin_id: the plugin's; empty if it is unknown.
        labels: the Engine sets labels of SELinux.
        runtime_memory: the limit that our runtime injects into containers that name none; None if it refuses them.
    """

    docker_root: str = "/var/lib/docker"
    default_runtime: str = ""
    runtime_memory: str | None = None
    engine: tuple[int, int] = (0, 0)
    go: str = ""
    cgroupns: str = ""
    log_driver: str = ""
    plugin_id: str = ""
    labels: bool = False


class EnginePort(Protocol):
    """Queries to the Engine; each may raise `EngineUnreachable`, and returns None for an object that does not exist.

    Those about one thing raise `EngineHolds` where the Engine answers about others.
    """

    def container(self, name: str) -> Document | None:
        """Return `GET /containers/NAME/json`."""
        ...

    def container_within(self, name: str, seconds: float) -> Document | None:
        """Return what `container` does; raise `EngineHolds` where that takes longer than these seconds."""
        ...

    def volume(self, name: str) -> Document | None:
        """Return `GET /volumes/NAME`."""
        ...

    def image(self, name: str) -> Document | None:
        """Return `GET /images/NAME/json`."""
        ...

    def service(self, name: str) -> Document | None:
        """Return `GET /services/NAME`."""
        ...

    def prepared(self, name: str) -> Document | None:
        """Return `GET /exec/NAME/json`: a program that was prepared for `docker exec`."""
        ...

    def states(self) -> Mapping[str, str]:
        """Return the state of each container, `created`, `running`, `exited`..., by its id."""
        ...

    def id_of(self, name: str) -> str | None:
        """Return the id of a container by its id, its name or the beginning of its id, as the Engine's list has them.

        That is told also of a container about which `container` raises `EngineHolds`.
        """
        ...

    def facts(self) -> HostFacts:
        """Return the Engine's settings that rules depend on."""
        ...


class EngineListPort(Protocol):
    """Queries to the Engine about what runs; each may raise `EngineUnreachable`."""

    def listed(self, container: str) -> Document | None:
        """Return the row of `GET /containers/json` with an id, which the Engine tells also of a container it works on.

        Whoever may call the Engine can hold a container's lock, for which `container` waits.
        """
        ...

    def is_task(self, container: str) -> bool:
        """Tell whether a container is a task of Swarm; its labels do not prove it."""
        ...

    def is_plugin(self, container: str) -> bool:
        """Tell whether an id is that of a managed plugin."""
        ...


@dataclass(frozen=True, slots=True)
class Way:
    """How a path of the host is followed.

    Attributes:
        end: where it leads; `/` where that cannot be said.
        folders: in which its names are looked up, each once.
    """

    end: str
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GpuPath:
    """A path that gives a GPU.

    Attributes:
        path: as it was asked for.
        is_seen: a GPU was seen there; else it is a folder with too much in it to tell, which counts as one that has it.
    """

    path: str
    is_seen: bool = True


class HostDevicePort(Protocol):
    """The host's device nodes and symbolic links."""

    def gpu_at(self, paths: Iterable[str]) -> GpuPath | None:
        """Return the first path of one call's `--device` that gives a GPU: directly, by a link, or inside a folder."""
        ...

    def is_gpu_number(self, major: int, minor: int | None = None) -> bool:
        """Tell whether character devices of these numbers, or any minor of a major number, belong to a GPU."""
        ...

    def resolve(self, path: str) -> str:
        """Return where a path of the host leads as the kernel follows it; `/` where that cannot be said."""
        ...

    def way(self, path: str) -> Way:
        """Return how a path is followed, if that takes few links and steps: else nobody says where it leads."""
        ...

    def others_write(self, folder: str) -> bool:
        """Tell whether others than root may make, remove and exchange names in a folder, by its mode."""
        ...

    def is_missing(self, path: str) -> bool:
        """Tell whether nothing is at a path without links, as far as that can be seen."""
        ...


class SchedulerPort(Protocol):
    """The scheduler's containers; `SchedulerUnavailable` and `SchedulerRefused` reach the judge's caller."""

    def find(self, volume: str) -> Container | None:
        """Return the container with a ConvGPU volume, or None."""
        ...

    def all(self) -> list[Container]:
        """Return all containers."""
        ...

    def devices(self) -> Sequence[Device]:
        """Return the GPUs."""
        ...

    def set_limit(self, volume: str, memory: str) -> None:
        """Give a container its limit, in the form of the option `memory`."""
        ...


class JobsPort(Protocol):
    """The jobs of Slurm on this host."""

    def shares(self, job: str) -> Sequence[NodeJob]:
        """Return what a job has here, by its id; nothing for one that does not run here."""
        ...


class NoJobs:
    """A host on which Slurm runs nothing."""

    def shares(self, job: str) -> Sequence[NodeJob]:  # noqa: ARG002 - as the port
        """Return nothing."""
        return ()


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything that a judge asks."""

    engine: EnginePort
    devices: HostDevicePort
    scheduler: SchedulerPort
    jobs: JobsPort = field(default_factory=NoJobs)


@dataclass(frozen=True, slots=True)
class Node:
    """The permissions of a device node of the host; each is a digit of a mode, such as 6.

    Attributes:
        uid, gid: its owner and group.
        owner, group, others: what they may do; with an ACL, as its mask leaves it.
        users, groups: named by an ACL, as its mask leaves it.
    """

    uid: int
    gid: int
    owner: int
    group: int
    others: int
    users: Mapping[int, int] = field(default_factory=dict)
    groups: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostProgram:
    """Who runs a program, as the kernel says it.

    Attributes:
        uid: the real one: a setuid program is still its caller's.
        groups: the real group and the supplementary ones.
        is_privileged: it may open any file of the host (CAP_DAC_OVERRIDE in the initial user namespace), and not as a
            setuid program.
        is_apart: root has put it into a PID namespace that is not the host's, as runtimes of containers do.
    """

    uid: int
    groups: AbstractSet[int] = frozenset()
    is_privileged: bool = False
    is_apart: bool = False


class HostAccessPort(Protocol):
    """What is read of the host; None: nobody can tell."""

    def nodes(self, gpu: str) -> tuple[Collection[Node], Node] | None:
        """Return the nodes by which a GPU (UUID) may be opened, and the one that is needed beside any of them."""

    def program(self, pid: int, started: int) -> HostProgram | None:
        """Return who runs a process that started then, in clock ticks since boot."""

    def user_id(self, name: str) -> int | None:
        """Return the ID of a user of the host."""
