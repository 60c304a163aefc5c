"""What processes map of managed memory (proc(5))."""

import re
from typing import Final

from convgpu.daemon.system.procfs import ask_threads

# START-END PERMISSIONS OFFSET: a shared mapping whose offset in its file is its address. The driver takes no other for
# managed memory (uvm_mmap in kernel-open/nvidia-uvm/uvm.c), and where a mapping begins anything else lies by accident
# only, far beyond the end of any file. Neither name nor number of the node proves as much.
_MANAGED: Final = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) [-r][-w][-x]s ([0-9a-f]+) ", re.MULTILINE)
_CHUNK: Final = 1 << 16
# Bytes of a list of mappings that no honest one has: half a million with ordinary names; 65,530 are usually permitted
# (`vm.max_map_count`). Who unmaps the lowest and maps above the highest is never read to the end.
_LONGEST: Final = 64 << 20
# Bytes that no device has.
UNENDING: Final = 1 << 62


def managed_size(pid: int, longest: int = _LONGEST) -> int:
    """Return the bytes of managed memory that a process maps; 0 if it has ended, UNENDING if its list has no end.

    Whoever holds the lock of its address space keeps us waiting, for as long as it likes: call it in a thread that
    nobody waits for. The first thread of a process may have ended, and shows nothing then.

    Args:
        pid: of the process.
        longest: bytes of its list after which it is not read to the end.
    """
    found = _read(f"/proc/{pid}/maps", longest)
    if found is not None:
        return found
    sizes: list[int] = []

    def tells(task: str) -> bool | None:
        size = _read(f"/proc/{task}/maps", longest)
        sizes.extend([] if size is None else [size])
        return None if size is None else True

    ask_threads(pid, tells)
    return sum(sizes)


def _read(path: str, longest: int) -> int | None:
    """Return the bytes of managed memory in a list of mappings, None if that is empty."""
    size, rest, length = None, b"", 0
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - unbuffered: other threads go on between the reads
            while chunk := file.read(_CHUNK):
                whole, _, rest = (rest + chunk).rpartition(b"\n")
                size = (size or 0) + sum(_sizes(whole))
                length += len(chunk)
                if length > longest:
                    return UNENDING
    except OSError:  # it has ended
        return None
    return size


def _sizes(lines: bytes) -> list[int]:
    rows = (tuple(int(word, 16) for word in row) for row in _MANAGED.findall(lines))
    return [end - start for start, end, offset in rows if offset == start and start]
