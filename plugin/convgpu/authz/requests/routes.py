"""Which calls of the Engine's API are judged, in every spelling that the Engine's router understands.

The Engine shows a call's address as the client wrote it: percent-encoded, in absolute form, with any version. Its
router works on the decoded path. What is matched here is more than the router accepts (it wants no doubled and no
trailing slash), never less.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

# These change nothing. The plugin's own questions to the Engine are of this kind, so they are answered at once.
_HARMLESS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Kind(Enum):
    """What a judged call does."""

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


_SLASHES: Final = re.compile("/{2,}")

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
    """A call that is judged.

    Attributes:
        kind: what it does.
        name: of the container, plugin or service, as the client wrote it, decoded; empty where there is none.
        query: all values of each parameter, as any Engine reads them.
        version: of the API, as written behind the `v`; None when none is written.
    """

    kind: Kind
    name: str = ""
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    version: str | None = None

    def older_than(self, major: int, minor: int) -> bool:
        """Tell whether the client asked for an API older than that; compared as the Engine does, part by part."""
        if self.version is None:
            return False
        parts = [_number(part) for part in self.version.split(".")]
        return [*parts, 0][:2] < [major, minor]


def route(method: str, uri: str) -> Call | None:
    """Return what is judged about a call, None if it may pass unread."""
    method = method.upper()
    if method in _HARMLESS:
        return None
    # A fragment means nothing to the Engine, which takes it for a part of the path or of the query.
    path, query = _split(uri.replace("#", "%23"))
    for kind, pattern in _TABLE:
        found = pattern.fullmatch(path)
        if found is not None:
            groups = found.groupdict()
            call = Call(kind, groups.get("name") or "", _parameters(query), groups["version"])
            return None if method == "DELETE" and kind is not Kind.PLUGIN else call
    return None


def _parameters(query: str) -> dict[str, list[str]]:
    """Return all values of each parameter: Engines that were built with a Go before 1.17 split at `;` as well."""
    found = parse_qs(query, keep_blank_values=True)
    if ";" in query:
        for name, values in parse_qs(query.replace(";", "&"), keep_blank_values=True).items():
            found.setdefault(name, []).extend(values)
    return found


def _number(text: str) -> int:
    # What is no number counts as 0 for the Engine. Cut short, because Python converts no more than 4,300 digits.
    return int(text.lstrip("0")[:9] or "0") if text.isascii() and text.isdecimal() else 0


def _split(uri: str) -> tuple[str, str]:
    try:
        parts = urlsplit(uri)
        path, query = parts.path, parts.query
    except ValueError:
        # Python refuses hosts that Go accepts.
        address, _, query = uri.partition("?")
        path = "/" + address.partition("://")[2].partition("/")[2]
    # Doubled slashes are joined, and not left to the patterns, which could take minutes for thousands of them.
    return _SLASHES.sub("/", unquote(path, errors="replace")), query
