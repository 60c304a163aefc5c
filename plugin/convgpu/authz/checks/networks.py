"""What networks, and containers at them, need of the strict list of a site. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from convgpu.authz.requests import go_json
from convgpu.authz.site.strict_list import Need

_DRIVERS: Final = frozenset({"", "bridge", "null", "overlay", "macvlan", "ipvlan", "host"})
_ADDRESS_DRIVERS: Final = frozenset({"", "default", "null"})
# Fields of `POST /networks/create`.
_FIELDS: Final = frozenset({
    "name", "checkduplicate", "driver", "scope", "enableipv4", "enableipv6", "ipam", "internal", "attachable",
    "configonly", "configfrom", "options", "labels",
})  # fmt: skip
# Options that change only what is the network's own. Not among them: an interface of the host that there is already
# (`com.docker.network.bridge.name`, `parent`). The Engine gives it other addresses, or hands its traffic out.
_OPTIONS: Final = frozenset({
    "macvlan_mode", "ipvlan_mode", "ipvlan_flag", "encrypted", *(f"com.docker.network.{name}" for name in (
        "bridge.enable_icc", "bridge.enable_ip_masquerade", "bridge.host_binding_ipv4", "bridge.host_binding_ipv6",
        "bridge.gateway_mode_ipv4", "bridge.gateway_mode_ipv6", "bridge.inhibit_ipv4",
        "container_iface_prefix", "driver.mtu", "driver.overlay.vxlanid_list", "enable_ipv4", "enable_ipv6",
        "windowsshim.dnsservers",
    )),
})  # fmt: skip
_NAME: Final = "com.docker.network.endpoint.ifname"
_SYSCTLS: Final = "com.docker.network.endpoint.sysctls"


def network_needs(document: Mapping[str, object]) -> Iterator[Need]:
    """Return what a new network needs: its drivers, which the Engine looks up, and options of the host's.

    Args:
        document: the body of `POST /networks/create`.
    """
    ipam = go_json.child(document, "ipam")
    driver, addresses = go_json.text(document, "driver"), go_json.text(ipam, "driver")
    if driver not in _DRIVERS:
        yield Need("drivers", f"network={driver}", f"the network driver {driver}")
    if addresses not in _ADDRESS_DRIVERS:
        yield Need("drivers", f"ipam={addresses}", f"the IPAM driver {addresses}")
    if go_json.field(ipam, "options"):
        yield Need("fields", "network ipam options", "options of the IPAM driver")
    # The host reaches them through the network from then on: a container there would be its name server, or its LAN.
    # Addresses that the Engine chooses are none to which the host has a way.
    for subnet in [go_json.text(row, "subnet") for row in go_json.children(ipam, "config")]:
        yield Need("fields", f"network subnet={subnet}", f"the subnet {subnet or 'without addresses'} of a network")
    for name, value in document.items():
        if value and go_json.fold(name) not in _FIELDS:
            yield Need("fields", f"network {name}", f"the field {name} of a network")
    for name, value in go_json.map_of_texts(document, "options").items():
        if name not in _OPTIONS:
            yield Need("fields", f"network {name}={value}", f"the option {name}={value} of a network")


def endpoint_needs(options: Sequence[tuple[str, str]]) -> Iterator[Need]:
    """Return what a container needs for such options."""
    for name, value in options:
        if name == _SYSCTLS:
            for text in value.split(","):
                sysctl = text.partition("=")[0].strip()
                yield Need("sysctls", sysctl, f"the sysctl {sysctl} of a network interface")
        elif name != _NAME:
            yield Need("fields", f"endpoint {name}", f"the option {name} of a network's endpoint")
