"""Paths as the kernel reads them, as far as text can tell. Pure; links of the host: `convgpu.authz.facts`."""

import posixpath
from collections.abc import Iterable
from typing import Final

# Behind an entry, in the list of a site, of what may be mounted read-only.
READ_ONLY: Final = ":ro"
# Symbolic links that every Linux host has.
_LINKS: Final = (("/var/run", "/run"), ("/var/lock", "/run/lock"))


def plain(path: str) -> str:
    """Return an absolute path without `.`, `..` and doubled slashes; others unchanged."""
    # normpath keeps two leading slashes, because POSIX allows them a meaning; Linux gives them none.
    return "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else path


def normal(path: str) -> str:
    """Return a path as `plain` does, with /var/run and /var/lock replaced by their targets."""
    path = plain(path)
    for old, new in _LINKS:
        if is_at_or_below(path, old):
            return new + path[len(old) :]
    return path


def is_at_or_below(path: str, top: str) -> bool:
    """Tell whether a normal path is `top` or inside it."""
    return path == top or path.startswith(top if top.endswith("/") else top + "/")


def touches(path: str, protected: Iterable[str]) -> str | None:
    """Return the first of `protected` that the path equals, contains, or lies inside of; None if there is none."""
    for protected_path in protected:
        if is_at_or_below(path, protected_path) or is_at_or_below(protected_path, path):
            return protected_path
    return None


def path_entry(path: str, *, writes: bool) -> str:
    """Return the entry by which a path may be mounted."""
    return path if writes else path + READ_ONLY


def allows_path(entries: Iterable[str], path: str, *, writes: bool) -> bool:
    """Tell whether an entry covers a path of the host.

    An entry is never followed through links: who owns a folder on its way could lead it anywhere.

    Args:
        entries: folders and files, with everything below; `:ro` behind those that nothing may write.
        path: with no link left in it.
        writes: through the mount something can be written.
    """
    for entry in entries:
        top = entry.removesuffix(READ_ONLY)
        if is_at_or_below(path, normal(top)) and not (writes and entry.endswith(READ_ONLY)):
            return True
    return False
