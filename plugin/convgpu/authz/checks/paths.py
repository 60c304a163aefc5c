"""Paths as the kernel reads them, as far as text can tell. Links on the host: `nodes`."""

import posixpath
from collections.abc import Iterable
from typing import Final

# Links that every Linux has, and nobody made to deceive.
_LINKS: Final = (("/var/run", "/run"), ("/var/lock", "/run/lock"))


def plain(path: str) -> str:
    """Return an absolute path without `.`, `..` and doubled slashes; others unchanged."""
    # normpath keeps two leading slashes, as POSIX allows them a meaning; Linux gives them none.
    return "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else path


def normal(path: str) -> str:
    """Return a path as `plain` does, and without the old name of /run, wherever that may be a link."""
    path = plain(path)
    for old, new in _LINKS:
        if is_at_or_below(path, old):
            return new + path[len(old) :]
    return path


def is_at_or_below(path: str, top: str) -> bool:
    """Tell whether a normal path is `top` or inside it."""
    return path == top or path.startswith(top if top.endswith("/") else top + "/")


def touches(path: str, protected: Iterable[str]) -> str | None:
    """Return the first of `protected` that the path shows whole, in part, or together with more."""
    for each in protected:
        if is_at_or_below(path, each) or is_at_or_below(each, path):
            return each
    return None
