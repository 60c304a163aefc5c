"""Mounts on which files of the host have the IDs of a container (mount_setattr(2), MOUNT_ATTR_IDMAP; Linux 5.12).

Files on disks keep their IDs. On the mount they have those that the container has in the kernel.
"""

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from convgpu.runtime.strict.user_ids import UserIds

# Of all architectures, as all calls that are newer than Linux 5.0.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_CLONE, _CLOEXEC, _RECURSIVE, _EMPTY_PATH = 1, 0o2000000, 0x8000, 0x1000
_MOVE_F_EMPTY_PATH: Final = 4
_NODEV, _IDMAP = 4, 0x100000
_CLONE_NEWUSER: Final = 0x10000000
_MS_NODEV: Final = 4
_PR_SET_SECUREBITS, _NO_SETUID_FIXUP = 28, 4
_HERE: Final = -100
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_COLON: Final = re.compile(r"(?<!\\):")
# Of an overlay that stands already: what this mount has of its own.
_OWN: Final = ("lowerdir", "lowerdir+", "upperdir", "workdir", "volatile", "rw", "ro")
_WORK: Final = "convgpu-work"

_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    """`struct mount_attr`."""

    _fields_ = (("set", ctypes.c_uint64), ("clr", ctypes.c_uint64), ("prop", ctypes.c_uint64), ("ns", ctypes.c_uint64))


@dataclass(frozen=True, slots=True)
class Overlay:
    """An overlay as the table of mounts shows it.

    Attributes:
        lower: folders, the uppermost first.
        upper: the folder that is written.
        options: the others.
    """

    lower: tuple[str, ...]
    upper: str
    options: tuple[str, ...]


def read_overlay(options: str) -> Overlay | None:
    """Return what the options of an overlay's file system say; None for one that nothing writes."""
    rows = [row.partition("=") for row in options.split(",")]
    upper = next((value for name, _, value in rows if name == "upperdir"), "")
    if not upper:
        return None
    # The Engine names layers from its folder if they are many.
    base = os.path.dirname(os.path.dirname(upper))  # noqa: PTH120 - of each start
    lower = [each for name, _, value in rows if name == "lowerdir" for each in _COLON.split(value)]
    lower += [value for name, _, value in rows if name == "lowerdir+"]
    kept = tuple(name + mark + value for name, mark, value in rows if name not in _OWN)
    return Overlay(tuple(os.path.join(base, each.replace("\\:", ":")) for each in lower), upper, kept)  # noqa: PTH118


def open_user_namespace(ids: UserIds) -> int:
    """Return a descriptor of a user namespace with these IDs, which no process is in."""
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go[1])
        failed = _libc.unshare(_CLONE_NEWUSER)
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os._exit(failed & 1)
    os.close(ready[1])
    try:
        os.read(ready[0], 1)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{name}").write_text(ids.text)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for descriptor in (ready[0], *go):
            os.close(descriptor)
        os.waitpid(child, 0)


def bind_mapped(source: str, place: str, namespace: int, *, recursive: bool) -> None:
    """Mount a folder or file at a place with the IDs of a user namespace, and without devices.

    A file system that cannot have other IDs is mounted with its own: the container has there what everybody has.

    Raises:
        OSError: a system call failed.
    """
    tree = _clone(source, recursive=recursive)
    try:
        if not _map(tree, namespace, recursive=recursive) and recursive:
            _map(tree, namespace, recursive=False)
        _move(tree, place)
    finally:
        os.close(tree)


def mount_root(root: str, place: Path, namespace: int, ids: UserIds) -> bool:
    """Mount a container's root file system at a place with the IDs of a user namespace, and without devices.

    A second overlay of the same layers stands beside the Engine's, because the kernel gives no overlay other IDs.

    Returns:
        whether its file system can have them.

    Raises:
        OSError: a system call failed.
    """
    kind, options = _mount_at(root)
    overlay = read_overlay(options) if kind == "overlay" else None
    if overlay is None:
        tree = _clone(root, recursive=False)
        try:
            mapped = _map(tree, namespace, recursive=False)
            if mapped:
                _move(tree, str(place))
        finally:
            os.close(tree)
        return mapped
    return _mount_overlay(overlay, place, namespace, ids)


def _mount_overlay(overlay: Overlay, place: Path, namespace: int, ids: UserIds) -> bool:
    layers = place.with_name("layers")
    layers.mkdir()
    upper = Path(overlay.upper)
    (upper.parent / _WORK).mkdir(mode=0o700, exist_ok=True)
    folders = {str(number): folder for number, folder in enumerate(overlay.lower)} | {"u": str(upper.parent)}
    for name, folder in folders.items():
        (layers / name).mkdir()
        tree = _clone(folder, recursive=False)
        try:
            if not _map(tree, namespace, recursive=False):
                return False
            _move(tree, str(layers / name))
        finally:
            os.close(tree)
    lower = ":".join(name for name in folders if name != "u")
    options = (f"lowerdir={lower}", f"upperdir=u/{upper.name}", f"workdir=u/{_WORK}", *overlay.options)
    _mount_as(layers, str(place), ",".join(options), ids.kernel_id(0))
    return True


def _mount_as(directory: Path, place: str, options: str, user: int) -> None:
    """Mount an overlay in a child that makes files as the container's root: an upper layer has no others."""
    child = os.fork()
    if child == 0:
        os.chdir(directory)
        _libc.prctl(_PR_SET_SECUREBITS, _NO_SETUID_FIXUP, 0, 0, 0)
        _libc.setfsgid(user)
        _libc.setfsuid(user)
        failed = _libc.mount(b"overlay", place.encode(), b"overlay", ctypes.c_ulong(_MS_NODEV), options.encode())
        os._exit(ctypes.get_errno() if failed else 0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, f"overlay at {place}: {os.strerror(code) if code > 0 else code}")


def _mount_at(point: str) -> tuple[str, str]:
    """Return type and options of the file system that is mounted at a place, nothing if none is."""
    real, found = os.path.realpath(point), ("", "")
    for row in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        before, _, behind = row.partition(" - ")
        if _plain(before.split()[4]) == real:
            words = behind.split()
            found = words[0], _plain(words[2])
    return found


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)


def _clone(path: str, *, recursive: bool) -> int:
    flags = _CLONE | _CLOEXEC | (_RECURSIVE if recursive else 0)
    return _call("open_tree", _OPEN_TREE, _HERE, os.fsencode(path), flags)


def _map(tree: int, namespace: int, *, recursive: bool) -> bool:
    """Give a mount that stands nowhere yet other IDs; tell whether its file system can have them."""
    flags = _EMPTY_PATH | (_RECURSIVE if recursive else 0)
    for attributes in (_Attributes(_IDMAP | _NODEV, 0, 0, namespace), _Attributes(_NODEV, 0, 0, 0)):
        arguments = (_MOUNT_SETATTR, tree, b"", flags, ctypes.byref(attributes), ctypes.sizeof(attributes))
        with suppress(OSError):
            _call("mount_setattr", *arguments)
            return bool(attributes.set & _IDMAP)
    raise OSError("mount_setattr: no device nodes can be kept out")


def _move(tree: int, place: str) -> None:
    _call("move_mount", _MOVE_MOUNT, tree, b"", _HERE, os.fsencode(place), _MOVE_F_EMPTY_PATH)


def _call(name: str, *arguments: object) -> int:
    result: int = _libc.syscall(*arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def user_tables() -> Iterator[str]:
    """Return the `uid_map` of each process."""
    for name in os.listdir("/proc"):  # noqa: PTH208 - of each start
        if name.isdecimal():
            with suppress(OSError):
                yield Path(f"/proc/{name}/uid_map").read_text()
