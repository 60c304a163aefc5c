"""What calls other than those that make containers need of the strict list of a site. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from convgpu.authz.site.strict_list import Need
from convgpu.runtime.paths import plain

# Of `POST /build`: what an image is made of, and its share of the host's time.
_BUILD: Final = frozenset({
    "t", "dockerfile", "rm", "forcerm", "q", "nocache", "pull", "buildargs", "labels", "target", "platform", "memory",
    "memswap", "cpushares", "cpusetcpus", "cpusetmems", "cpuperiod", "cpuquota", "shmsize", "ulimits", "cachefrom",
    "squash", "extrahosts", "remote", "buildid", "session", "version", "isolation", "networkmode", "cgroupparent",
})  # fmt: skip
_OWN_NETWORKS: Final = frozenset({"", "default", "none", "bridge"})
_NETWORK_DRIVERS: Final = frozenset({"", "bridge", "null", "overlay", "macvlan", "ipvlan", "host"})
_ADDRESS_DRIVERS: Final = frozenset({"", "default", "null"})
_NO_BUILDKIT: Final = frozenset({"", "1"})


def build_needs(name: str, query: Mapping[str, Sequence[str]]) -> Iterator[Need]:
    """Return what a build needs.

    What BuildKit does comes over a connection that the Engine does not show: it is judged as a whole.

    Args:
        name: `build`, `session` or `grpc`.
        query: of the call.
    """
    if name != "build" or not set(query.get("version", ())) <= _NO_BUILDKIT:
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


def network_needs(driver: str, addresses: str) -> Iterator[Need]:
    """Return what a new network needs, by its driver and that of its addresses (IPAM): the Engine looks both up."""
    if driver not in _NETWORK_DRIVERS:
        yield Need("drivers", f"network={driver}", f"the network driver {driver}")
    if addresses not in _ADDRESS_DRIVERS:
        yield Need("drivers", f"ipam={addresses}", f"the IPAM driver {addresses}")


def copy_needs(paths: Sequence[str]) -> Iterator[Need]:
    """Return what an archive needs that is unpacked in a container."""
    for path in paths or ("",):
        target = plain("/" + path)
        yield Need("copies", target, f"docker cp to {target}")


def prefixes(path: str) -> list[str]:
    """Return a path of a container and each folder on its way, from the top."""
    parts = plain("/" + path).strip("/").split("/")
    return ["/" + "/".join(parts[: length + 1]) for length in range(len(parts)) if parts[length]]
