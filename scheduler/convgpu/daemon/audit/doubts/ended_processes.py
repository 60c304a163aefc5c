"""Who tells of the memory of processes that have ended."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from convgpu.daemon.audit.doubts.namespaces import NamespaceQuestions
from convgpu.daemon.audit.doubts.unseen import UnseenMemory
from convgpu.daemon.system.births.origins import Origins


@dataclass(frozen=True, slots=True)
class EndedProcesses:
    """Each tells what the others do not; without one nobody does.

    Attributes:
        origins: know where processes ran that have ended.
        namespaces: know what each of several processes holds that had one pid.
        unseen: finds memory of dead ones that nobody saw.
        stays: returns the bytes of a device that ended processes left, and others keep behind descriptors.
        stays_of: returns the same of a container and a device, by the pids that those processes had; 0: not known.
        counted: returns the bytes that a container's limit counts of a process that is ending, by its pid and a device.
    """

    origins: Origins | None = None
    namespaces: NamespaceQuestions | None = None
    unseen: UnseenMemory | None = None
    stays: Callable[[str], int] = lambda _device: 0
    stays_of: Callable[[str, str], Mapping[int, int]] = lambda *_: {}
    counted: Callable[[int, str], int] = lambda _pid, _device: 0

    def close(self) -> None:
        """Ask nobody any more."""
        for one in (self.origins, self.namespaces, self.unseen):
            if one is not None:
                one.close()


NOBODY_TELLS: Final = EndedProcesses()
