"""Recognizes the calls that only strict rules judge. Pure.

What changes nothing passes. Of the rest some calls are open to everybody, some reach into a container, and some must
stand in the list of the site; a call of which ConvGPU knows nothing is among the last.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

# In place of the name of a call that no list can hold.
UNKNOWN: Final = "unknown"

_OPEN: Final = re.compile(
    r"containers/.+?/(?:stop|kill|wait|pause|unpause|resize)|containers/prune|exec/.+?/resize"
    r"|images/prune|images/.+/tag|networks/[^/]+/(?:connect|disconnect)|(?:networks|volumes|build)/prune|build/cancel"
    r"|auth",
    re.DOTALL,
)
_REMOVES: Final = re.compile(r"(?:containers|images|networks|volumes)/.+", re.DOTALL)
_INTO: Final = re.compile(r"containers/(?P<name>.+?)/(?:attach(?:/ws)?|archive|export)", re.DOTALL)
_STARTS: Final = re.compile(r"exec/(?P<name>.+?)/start", re.DOTALL)
_NAMED: Final = tuple(
    (name, re.compile(pattern, re.DOTALL))
    for name, pattern in (
        ("commit", "commit"),
        # A name that changes between judgement and call can come to mean another container.
        ("rename", "containers/.+?/rename"),
        ("import", "images/create"),
        ("load", "images/load"),
        ("push", "images/.+/push"),
        ("services", "services/.+"),
        ("swarm", "(?:swarm|nodes|secrets|configs)/.+"),
        ("checkpoints", "containers/.+?/checkpoints(?:/.+)?"),
    )
)


@dataclass(frozen=True, slots=True)
class OtherCall:
    """A call that only strict rules judge.

    Attributes:
        name: under which it must stand in the list of the site; empty for a call that is open to everybody.
        container: into which it reaches; empty for none.
        makes_network: it makes a network, whose driver is judged.
        prepared: the program that it starts, which an earlier call prepared for `docker exec`.
        streams: it has a body that the Engine shows nobody, by its nature: an archive, or the input of a program.
    """

    name: str = ""
    container: str = ""
    makes_network: bool = False
    prepared: str = ""
    streams: bool = False


def read_other_call(method: str, path: str, query: Mapping[str, Sequence[str]]) -> OtherCall:
    """Return what is judged of a call; `path` is decoded and has no version and no slash at its ends."""
    if (into := _INTO.fullmatch(path)) is not None:
        return OtherCall(container=into["name"], streams=True)
    if path == "networks/create":
        return OtherCall(makes_network=True)
    if path == "commit":
        return OtherCall("commit", next(iter(query.get("container", ())), ""))
    if (starts := _STARTS.fullmatch(path)) is not None:
        return OtherCall(prepared=starts["name"])
    return _read_named(method, path, query)


def _read_named(method: str, path: str, query: Mapping[str, Sequence[str]]) -> OtherCall:
    if method == "DELETE" and _REMOVES.fullmatch(path) and not path.endswith("/checkpoints"):
        return OtherCall(name="checkpoints" if "/checkpoints/" in path else "")
    if _OPEN.fullmatch(path) or (path == "images/create" and not any(query.get("fromSrc", ()))):
        return OtherCall()
    name = next((name for name, pattern in _NAMED if pattern.fullmatch(path)), UNKNOWN)
    return OtherCall(name, streams=name in {"import", "load"})
