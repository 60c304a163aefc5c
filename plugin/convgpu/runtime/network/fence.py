"""Which token buckets hold a container to its share: `tbf` at both ends of each veth pair. Pure.

What the container sends is held at its own end, what it gets at the host's; both go when the pair does. tc-tbf(8).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from convgpu.runtime.network.rate import VARIABLE, format_rate, parse_rate
from convgpu.runtime.oci_config import variables

_LOOPBACK: Final = "lo"
_BURST: Final = 0.01  # seconds at full rate
_LEAST_BURST: Final = 128 << 10  # bytes; a packet that the card would cut has up to 64 KiB
_QUEUE: Final = "50ms"


class NoFence(ValueError):  # noqa: N818 - the state of a container
    """A container asks for a share that nothing could hold it to; the text is for the user."""


@dataclass(frozen=True, slots=True)
class Link:
    """A network interface: `peer` is the index of what it is linked to, 0 for nothing."""

    name: str
    index: int
    kind: str
    peer: int


def wanted(config: Mapping[str, Any]) -> int | None:
    """Return the bit/s that a container of this OCI specification asks for; None where it asks for none.

    Raises:
        NoFence: they cannot be read, or it has no network of its own, or could take the fence away.
    """
    text = variables(config).get(VARIABLE)
    if not text:
        return None
    try:
        rate = parse_rate(text)
    except ValueError as error:
        raise NoFence(f"{VARIABLE}: {error}") from error
    spaces = (config.get("linux") or {}).get("namespaces") or ()
    own = next((space for space in spaces if space.get("type") == "network"), None)
    if own is None or own.get("path"):  # of the host or of another container
        raise NoFence(f"a network that is not its own cannot be fenced: leave out {VARIABLE}, or type --network bridge")
    capabilities = (config.get("process") or {}).get("capabilities") or {}
    if any("CAP_NET_ADMIN" in (names or ()) for names in capabilities.values()):
        raise NoFence(f"with --cap-add NET_ADMIN a container could take its fence away: leave out it or {VARIABLE}")
    return rate


def read_links(text: str) -> list[Link]:
    """Return the interfaces of a document of `ip -json -details link show`."""
    return [
        Link(row["ifname"], row["ifindex"], (row.get("linkinfo") or {}).get("info_kind", ""), row.get("link_index", 0))
        for row in json.loads(text)
        if row
    ]


def pairs(inside: Sequence[Link], outside: Sequence[Link]) -> list[tuple[str, str]]:
    """Return the ends of a container's veth pairs by name: its own, and the host's.

    Raises:
        NoFence: an interface of it has no other end on this host.
    """
    found = []
    for link in inside:
        if link.name == _LOOPBACK:
            continue
        ends = (end for end in outside if end.kind == link.kind == "veth" and end.index == link.peer)
        end = next((end for end in ends if end.peer == link.index), None)
        if end is None:
            kind = link.kind or "of another kind"
            raise NoFence(
                f"{link.name} ({kind}) is on no bridge of this host, so nothing would hold it to {VARIABLE}: "
                "type --network bridge, or leave it out"
            )
        found.append((link.name, end.name))
    return found


def bucket(name: str, rate: int) -> list[str]:
    """Return the words of `tc` that hold what leaves an interface to `rate` bit/s."""
    burst = max(int(rate / 8 * _BURST), _LEAST_BURST)
    shape = ["rate", f"{rate}bit", "burst", f"{burst}b", "latency", _QUEUE]
    return ["qdisc", "replace", "dev", name, "root", "tbf", *shape]


def read_counters(text: str, names: Sequence[str]) -> tuple[int, int]:
    """Return the bytes that a container got and sent, from `/proc/net/dev` of the host and its ends there."""
    received = sent = 0
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        if colon and name.strip() in names:
            figures = rest.split()
            sent += int(figures[0])  # what the host's end receives
            received += int(figures[8])
    return received, sent


def said(rate: int) -> str:
    """Say what a share is."""
    return f"at most {format_rate(rate)} in each direction"
