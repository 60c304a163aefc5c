"""What calls other than those that make containers need of the strict list of a site. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from convgpu.authz.requests.engine_work import LONGEST_STOP
from convgpu.authz.site.strict_list import Need
from convgpu.authz.verdict import Refusal

# Of `POST /build`: what an image is made of, and its share of the host's time. Not `remote`: the host's `git`, as root,
# or the Engine itself would fetch it, from where only the host comes to. Not `cachefrom`: of images that were loaded,
# and are each other's parents, the Engine looks for the first one until it has used up its memory (28.5, `isParent`).
_BUILD: Final = frozenset({
    "t", "dockerfile", "rm", "forcerm", "q", "nocache", "pull", "buildargs", "labels", "target", "platform", "memory",
    "memswap", "cpushares", "cpusetcpus", "cpusetmems", "cpuperiod", "cpuquota", "shmsize", "ulimits",
    "squash", "extrahosts", "buildid", "session", "version", "isolation", "networkmode", "cgroupparent",
})  # fmt: skip
_OWN_NETWORKS: Final = frozenset({"", "default", "none", "bridge"})
# What `ps` may be told: BSD's `e`, and names for columns, are not among it.
_LISTINGS: Final = frozenset({"", "-ef", "-eF", "-eLf", "-el", "-ely", "ax", "-ax", "aux", "-aux", "axu", "auxww"})
_WITH_COLUMNS: Final = frozenset({"-o", "-eo", "-e -o", "-Ao", "-A -o", "axo", "ax -o"})
_COLUMNS: Final = frozenset({
    "pid", "ppid", "pgid", "sid", "sess", "tid", "lwp", "nlwp", "uid", "user", "gid", "group", "comm", "ucmd", "args",
    "cmd", "command", "pcpu", "%cpu", "c", "pmem", "%mem", "rss", "rssize", "vsz", "size", "sz", "stat", "state", "s",
    "start", "stime", "lstart", "etime", "etimes", "time", "cputime", "tty", "tt", "ni", "nice", "pri", "psr", "cls",
    "wchan", "f",
})  # fmt: skip
_NO_BUILDKIT: Final = frozenset({"", "1"})


COPY: Final = Need("calls", "cp", "docker cp (docker exec NAME tar -c FOLDER | tar -x does the same)")


def call_need(name: str) -> Need:
    """Return what a call needs that must stand in the list."""
    return COPY if name == COPY.value else Need("calls", name, f"the call {name}")


def is_classic_build(name: str, query: Mapping[str, Sequence[str]]) -> bool:
    """Tell whether the Engine builds itself, and not by BuildKit. The arguments are those of `build_needs`."""
    return name == "build" and set(query.get("version", ())) <= _NO_BUILDKIT


def build_needs(name: str, query: Mapping[str, Sequence[str]]) -> Iterator[Need]:
    """Return what a build needs.

    What BuildKit does comes over a connection that the Engine does not show: it is judged as a whole.

    Args:
        name: `build`, `session` or `grpc`.
        query: of the call.
    """
    if not is_classic_build(name, query):
        yield Need("calls", "buildkit", "a build by BuildKit, which nobody sees,")
        return
    yield Need("calls", "build", "docker build")
    for option, values in query.items():
        given = [value for value in values if value not in {"", "0", "false", "null", "{}", "[]"}]
        if not given:
            continue
        if option not in _BUILD:
            yield Need("fields", f"build {option}", f"the option {option} of a build")
        elif option == "networkmode":
            yield from _build_network(given)
        elif option == "cgroupparent":
            yield from (Need("cgroups", parent, f"--cgroup-parent {parent}") for parent in given)


def _build_network(modes: Sequence[str]) -> Iterator[Need]:
    for mode in modes:
        kind = mode.partition(":")[0]
        if mode not in _OWN_NETWORKS and kind in {"host", "container"}:
            yield Need("namespaces", f"network={kind}", f"--network {mode}")


def import_needs(sources: Sequence[str]) -> Iterator[Need]:
    """Return what an import needs that comes from an address: the Engine fetches it, from where only the host comes to.

    Args:
        sources: `fromSrc` of `POST /images/create`; `-` is the call's own body.
    """
    if set(sources) - {"", "-"}:
        yield Need("fields", "import remote", "an import of an address")


def pull_needs(images: Iterable[str]) -> Iterator[Need]:
    """Return what a pull needs of these images: their registries, in the list of a site that has one of those."""
    for image in images:
        registry = registry_of(image)
        yield Need("registries", registry, f"a pull from {registry}")


def registry_of(image: str) -> str:
    """Return the registry of an image, as Docker reads its name (distribution/reference, splitDockerDomain)."""
    first, slash, _ = image.partition("/")
    is_registry = slash and (set(".:") & set(first) or first == "localhost" or first != first.lower())
    return first if is_registry and first != "index.docker.io" else "docker.io"


def start_needs(query: Mapping[str, Sequence[str]]) -> Iterator[Need]:
    """Return what the query of a start or a restart needs: a checkpoint, or more time than a start counts.

    A restart waits `t` seconds for the container's end, and without end below zero.
    """
    yield from checkpoint_needs(query)
    for seconds in query.get("t", ()):
        if seconds and not (seconds.isascii() and seconds.isdigit() and int(seconds[:15]) <= LONGEST_STOP):
            yield Need("fields", "restart t", f"a restart that waits {seconds:.20} seconds")


def checkpoint_needs(query: Mapping[str, Sequence[str]]) -> Iterator[Need]:
    """Return what a call about a checkpoint needs: the Engine writes and reads its folder as root of the host.

    Args:
        query: of a start, or of the calls that make, list and remove checkpoints.
    """
    if any(query.get("checkpoint", ())):
        yield Need("calls", "checkpoints", "a start from a checkpoint")
    for folder in (folder for name in ("checkpoint-dir", "dir") for folder in query.get(name, ()) if folder):
        yield Need("fields", f"checkpoint-dir {folder}", f"the folder {folder} of checkpoints")


def odd_listing(arguments: Sequence[str]) -> Iterator[Refusal]:
    """Refuse arguments with which `ps` could show variables, or processes that are not the container's.

    It runs on the host as root. The Engine keeps the rows that have a process of the container in the column that is
    called PID, whatever column that is.
    """
    for given in arguments:
        options, _, columns = given.strip().rpartition(" ")
        plain_columns = options in _WITH_COLUMNS and set(columns.split(",")) <= _COLUMNS
        if given not in _LISTINGS and not (plain_columns and "pid" in columns.split(",")):
            yield Refusal(
                "strict-listing",
                f"docker top with {given:.80} could show variables, or other processes.\n"
                "Say nothing, aux, -ef, -eLf or -eo with columns, such as -eo pid,user,args.",
            )
