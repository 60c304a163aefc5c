"""Recognizes the judged calls of the Engine's API, in every spelling that the Engine's router accepts.

The Engine passes a call's address on as the client wrote it: percent-encoded, in absolute form, with any version. Its
router works on the decoded path. The patterns here match more than the router (which accepts no doubled and no
trailing slash), never less.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from convgpu.authz.requests.endpoints import OtherCall, is_judged_by_query, read_other_call
from convgpu.authz.verdict import Denied, Refusal

# These change nothing. The plugin's own queries to the Engine are of this kind: where rules are strict, of those that
# are open to everybody, so they pass at once.
_READ_ONLY: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# The Engine takes addresses of 1 MiB, for which reading one took 1.3 s and 39 MiB. A path names one thing: of images at
# most 400 characters, which may be percent-encoded. In parameters are the variables and labels of a build: with some
# certificates and the settings of an editor in them they take 76 KB (decision 179).
_MAX_PATH: Final = 8 << 10
_MAX_QUERY: Final = 128 << 10
_MAX_PARAMETERS: Final = 1024
_TOO_LONG: Final = Refusal(
    "address-too-long",
    f"its path has more than {_MAX_PATH >> 10} KiB, or its parameters more than {_MAX_QUERY >> 10} KiB or than "
    f"{_MAX_PARAMETERS} parts.\nSay less there: what is long goes into a file (docker build --secret, COPY).",
)


class Kind(Enum):
    """The kinds of judged calls."""

    CREATE = auto()
    START = auto()
    EXEC = auto()
    ARCHIVE = auto()
    UPDATE = auto()
    VOLUME = auto()
    SERVICE = auto()
    BUILD = auto()
    PLUGIN = auto()
    SWARM = auto()
    OTHER = auto()


_SLASHES: Final = re.compile("/{2,}")
_VERSION: Final = re.compile("^/v[0-9][^/]*/")

# `restart` starts as well. The names of containers are `.*` in the Engine's router.
_TABLE: Final = tuple(
    (kind, re.compile(rf"(?:/v(?P<version>[^/]*))?/{pattern}/?", re.DOTALL))
    for kind, pattern in (
        (Kind.CREATE, "containers/create"),
        (Kind.START, "containers/(?P<name>.+?)/(?:start|restart)"),
        (Kind.EXEC, "containers/(?P<name>.+?)/exec"),
        (Kind.ARCHIVE, "containers/(?P<name>.+?)/archive"),
        (Kind.UPDATE, "containers/(?P<name>.+?)/update"),
        (Kind.VOLUME, "volumes/create"),
        (Kind.SERVICE, "services/(?:create|(?P<name>.+?)/update)"),
        (Kind.BUILD, "(?:build|session|grpc)"),
        (Kind.PLUGIN, "plugins/(?P<name>.+)"),
        (Kind.SWARM, "swarm/(?:init|join)"),
    )
)


@dataclass(frozen=True, slots=True)
class Call:
    """A judged call.

    Attributes:
        kind: of its action.
        name: of the container, plugin or service, as the client wrote it, decoded; empty where there is none.
        query: all values of each parameter, as any Engine reads them.
        other: what is judged of it where rules are strict, of a call of kind `OTHER`.
        action: the path's last part: of a build `build`, `session` or `grpc`.
        version: of the API, as written behind the `v`; None if there is none.
    """

    kind: Kind
    name: str = ""
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    version: str | None = None
    other: OtherCall = field(default_factory=OtherCall)
    action: str = ""

    @property
    def streams(self) -> bool:
        """Whether it has a body that the Engine shows nobody, by its nature: an archive, or the input of a program."""
        return self.kind in {Kind.ARCHIVE, Kind.BUILD, Kind.PLUGIN} or self.other.streams

    def older_than(self, major: int, minor: int) -> bool:
        """Tell whether the client asked for an API older than that; compared part by part, like the Engine."""
        if self.version is None:
            return False
        parts = [_number(part) for part in self.version.split(".")]
        return [*parts, 0][:2] < [major, minor]


def route(method: str, uri: str, *, strict: bool = False) -> Call | None:
    """Return the judged call at an address, None for a call that may pass unread.

    Args:
        method: of HTTP.
        uri: as the client wrote it.
        strict: every call is judged that is not open to everybody.

    Raises:
        Denied: the address is longer than any that is meant.
    """
    found = _find(method.upper(), uri, strict=strict)
    return None if found is None else replace(found[0], query=_parameters(found[1]))


def is_judged(method: str, uri: str, *, strict: bool = False) -> bool:
    """Tell whether `route` finds a call, which takes less time: parameters are read where that depends on them."""
    return _find(method.upper(), uri, strict=strict) is not None


def _find(method: str, uri: str, *, strict: bool) -> tuple[Call, str] | None:
    """Return the judged call without its parameters, and these as they are written."""
    if method in _READ_ONLY and not strict:
        return None
    path, query = _split(uri)
    for kind, pattern in () if method in _READ_ONLY else _TABLE:
        found = pattern.fullmatch(path)
        if found is not None:
            groups = found.groupdict()
            action = path.rstrip("/").rpartition("/")[2]
            if method != "DELETE" or kind is Kind.PLUGIN:
                return Call(kind, groups.get("name") or "", version=groups["version"], action=action), query
            break
    if not strict:
        return None
    other = _read_other(method, path, query)
    return None if method in _READ_ONLY and other.is_open else (Call(Kind.OTHER, other=other), query)


def _read_other(method: str, path: str, query: str) -> OtherCall:
    bare = _VERSION.sub("/", path, count=1).strip("/")
    return read_other_call(method, bare, _parameters(query) if is_judged_by_query(method, bare) else {})


def _parameters(query: str) -> dict[str, list[str]]:
    """Return all values of each parameter; Engines built with a Go before 1.17 split at `;` as well."""
    if len(query) > _MAX_QUERY or query.count("&") + query.count(";") >= _MAX_PARAMETERS:
        raise Denied(_TOO_LONG)
    found = parse_qs(query, keep_blank_values=True)
    if ";" in query:
        for name, values in parse_qs(query.replace(";", "&"), keep_blank_values=True).items():
            found.setdefault(name, []).extend(values)
    return found


def _number(text: str) -> int:
    # The Engine reads a text that is no number as 0. Cut short, because Python converts at most 4,300 digits.
    return int(text.lstrip("0")[:9] or "0") if text.isascii() and text.isdecimal() else 0


def _split(uri: str) -> tuple[str, str]:
    address, _, query = uri.partition("?")
    if len(address) > _MAX_PATH:
        raise Denied(_TOO_LONG)
    # The Engine knows no fragments: it reads them as a part of the path or of the query.
    address, query = address.replace("#", "%23"), query.replace("#", "%23")
    try:
        path = urlsplit(address).path  # which keeps the last 128 texts that it was given
    except ValueError:
        # Python refuses host names that Go accepts.
        path = "/" + address.partition("://")[2].partition("/")[2]
    # Doubled slashes are joined here, because a pattern for them would take minutes on thousands of slashes.
    return _SLASHES.sub("/", unquote(path, errors="replace")), query
