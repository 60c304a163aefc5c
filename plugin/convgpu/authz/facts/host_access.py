"""Who may open the GPUs' device nodes of the host, and who runs a process there; as the kernel tells it."""

import errno
import fcntl
import os
import re
import stat
import struct
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from convgpu.authz.ports import HostProgram, Node

_DRIVER: Final = Path("/proc/driver/nvidia/gpus")
_INITIAL_USER_NAMESPACE: Final = 0xEFFFFFFD  # PROC_USER_INIT_INO, include/linux/proc_ns.h
_DAC_OVERRIDE: Final = 1 << 1
_NS_GET_USERNS: Final = 0xB701  # ioctl_ns(2)
_NS_GET_OWNER_UID: Final = 0xB704
# posix_acl_xattr.h: tags of entries.
_USER: Final = 0x02
_GROUP_OBJ: Final = 0x04
_GROUP: Final = 0x08
_MASK: Final = 0x10


class HostAccess:
    """See `convgpu.authz.ports.HostAccessPort`.

    Args:
        root: returns a path to the host's `/`, None if it cannot be read.
        driver: what the NVIDIA driver says of its GPUs.
    """

    def __init__(self, root: Callable[[], Path | None], driver: Path = _DRIVER) -> None:
        self._root = root
        self._driver = driver

    def nodes(self, gpu: str) -> tuple[Collection[Node], Node] | None:
        """Return the GPU's node, or those of all if it is not known which that is, and the driver's own."""
        root = self._root()
        if root is None:
            return None
        minor = self._minor(gpu)
        try:
            names = [f"nvidia{minor}"] if minor else _gpu_nodes(root / "dev")
            own = [_read_node(root / "dev" / name) for name in names]
            return (own, _read_node(root / "dev/nvidiactl")) if own else None
        except OSError:
            return None

    def program(self, pid: int, started: int) -> HostProgram | None:
        """Return who runs a process; None if it is another one, has ended, or cannot be read."""
        try:
            process = os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            # What is read by this descriptor is of one process, also if its ID is given to another meanwhile.
            if int(_read(process, "stat").rpartition(")")[2].split()[19]) != started:
                return None
            fields = dict(line.split(":", 1) for line in _read(process, "status").splitlines() if ":" in line)
            uid, effective = map(int, fields["Uid"].split()[:2])
            has_all = bool(int(fields["CapEff"], 16) & _DAC_OVERRIDE) and uid == effective
            groups = {int(fields["Gid"].split()[0]), *map(int, fields["Groups"].split())}
            is_initial = os.stat("ns/user", dir_fd=process).st_ino == _INITIAL_USER_NAMESPACE
            return HostProgram(uid, frozenset(groups), has_all and is_initial, _is_apart(process))
        except (OSError, ValueError, KeyError, IndexError):
            return None
        finally:
            os.close(process)

    def user_id(self, name: str) -> int | None:
        """Return the ID of a user in the host's /etc/passwd."""
        root = self._root()
        with suppress(OSError, ValueError, IndexError):
            lines = (root / "etc/passwd").read_text(errors="replace").splitlines() if root is not None else []
            return next((int(line.split(":")[2]) for line in lines if line.split(":")[0] == name), None)
        return None

    def _minor(self, gpu: str) -> str | None:
        for path in self._driver.glob("*/information"):
            text = path.read_text(errors="replace")
            minor = re.search(r"Device Minor:\s*(\d+)", text)
            if minor and re.search(rf"GPU UUID:\s*{re.escape(gpu)}\s", text + "\n"):
                return minor[1]
        return None


def _gpu_nodes(devices: Path) -> list[str]:
    return sorted(name for name in os.listdir(devices) if re.fullmatch(r"nvidia\d+", name))  # noqa: PTH208 - names


def _read(folder: int, name: str) -> str:
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    with open(descriptor, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a descriptor
        return file.read()


def _read_node(path: Path) -> Node:
    found = path.stat()
    owner, group, others = ((stat.S_IMODE(found.st_mode) >> shift) & 7 for shift in (6, 3, 0))
    try:
        raw = os.getxattr(path, "system.posix_acl_access")
    except OSError as error:
        if error.errno not in {errno.ENODATA, errno.EOPNOTSUPP}:
            raise
        return Node(found.st_uid, found.st_gid, owner, group, others)
    # The bits of the group are the mask: what the group itself has stands in the ACL.
    entries = list(struct.iter_unpack("<HHI", raw[4:]))
    mask = next((permissions for tag, permissions, _ in entries if tag == _MASK), 7)
    group = next((permissions for tag, permissions, _ in entries if tag == _GROUP_OBJ), group) & mask
    users = {name: permissions & mask for tag, permissions, name in entries if tag == _USER}
    groups = {name: permissions & mask for tag, permissions, name in entries if tag == _GROUP}
    return Node(found.st_uid, found.st_gid, owner, group, others, users, groups)


def _is_apart(process: int) -> bool:
    """Say whether root made the PID namespace of a process, which is another one than ours."""
    namespace = os.open("ns/pid", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
    try:
        if os.fstat(namespace).st_ino == os.stat("/proc/self/ns/pid").st_ino:  # noqa: PTH116 - as the line before
            return False
        owner = fcntl.ioctl(namespace, _NS_GET_USERNS)
    finally:
        os.close(namespace)
    try:
        if os.fstat(owner).st_ino == _INITIAL_USER_NAMESPACE:
            return True
        return fcntl.ioctl(owner, _NS_GET_OWNER_UID, bytes(4)) == bytes(4)
    finally:
        os.close(owner)
