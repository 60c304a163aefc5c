"""Follows the host's symbolic links, as the plugin can read them."""

import os
from collections import deque
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

from convgpu.runtime.paths import is_at_or_below

# What looks cost, in thirds of a microsecond as they were measured (decision 187).
LOOK: Final = 10  # at something by its path
LONG: Final = 16  # so many characters of a path cost one more
_PATH_MAX: Final = 4096  # what is longer neither the kernel nor the Engine opens (path_resolution(7))


class Followed(NamedTuple):
    """How a path was followed.

    Attributes:
        end: how far it leads.
        left: its parts behind that.
        folders: in which names were looked up.
        cost: of it.
        is_known: nothing else leads it on, as a process does; without that an empty `end` means that it takes too much.
    """

    end: str
    left: list[str]
    folders: dict[str, None]
    cost: int
    is_known: bool = True


def follow(root: Path | None, path: str, links: int, steps: int, start: str = "/") -> Followed:
    """Follow a path of the host step by step, as the kernel does.

    Args:
        root: the Engine's `/`, as this process reads it; None if it can read `/dev` only.
        path: to be followed.
        links: that are followed at most.
        steps: that are taken at most.
        start: the folder in which it begins, with no link left in it.
    """
    done, todo, cost, folders = start, deque(_parts(path)), LOOK, dict[str, None]()
    too_much = Followed("", [], folders, steps * LOOK, is_known=False)
    if len(path) >= _PATH_MAX:
        return too_much
    for step in range(1, steps + 1):
        if not todo or not links:
            break
        part = todo.popleft()
        cost += 1
        if part == "..":
            done = os.path.dirname(done)  # noqa: PTH120 - text, not a path of this process
            continue
        folders[done] = None
        place = os.path.join(done, part)  # noqa: PTH118 - as above
        cost += LOOK + len(place) // LONG
        target, is_there = _read_link(local_path(root, place))
        if target is not None:
            if done != "/proc" and is_at_or_below(done, "/proc"):
                return Followed(place, list(todo), folders, cost, is_known=False)
            links, cost = links - 1, cost + len(target) // LONG
            todo.extendleft(reversed(_parts(target)))
            done = "/" if target.startswith("/") else done
            continue
        done = place
        if not is_there and ".." not in todo:  # and no link lies below nothing
            if step + len(todo) > steps:
                return too_much
            *above, done = accumulate(todo, os.path.join, initial=done)
            return Followed(done, [], folders | dict.fromkeys(above), cost)
    return too_much if todo and links else Followed(done, list(todo), folders, cost)


def local_path(root: Path | None, path: str) -> str | None:
    """Return the path by which this process reads a path of the host; None if it cannot."""
    if root is not None:
        return f"{str(root).rstrip('/')}/{path.lstrip('/')}"
    return path if is_at_or_below(path, "/dev") else None


def _read_link(local: str | None) -> tuple[str | None, bool]:
    """Return where a link leads, None for what is none; and False where nothing is there."""
    if local is None:
        return None, True
    try:
        return os.readlink(local), True  # noqa: PTH115 - its text, not a Path
    except (FileNotFoundError, NotADirectoryError):
        return None, False
    except (OSError, ValueError):
        return None, True


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]
