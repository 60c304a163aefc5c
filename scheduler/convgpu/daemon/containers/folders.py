"""The folders of containers, which they see as /run/convgpu."""

import hashlib
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from convgpu.daemon.gpu.simulated import FILES
from convgpu.daemon.system.atomic_files import deliver, is_delivered, link_files
from convgpu.daemon.system.mounts import Place, join, locate, mounts_of
from convgpu.daemon.system.remove_tree import remove_tree
from convgpu.protocol.folder_names import folder_of
from convgpu.protocol.layout import CONTAINERS_FOLDER, DRIVER_FOLDER, LIBRARY_FILE, LIBRARY_PATH, PRELOAD_FILE

log = logging.getLogger(__name__)

_PRELOAD: Final = f"{LIBRARY_PATH}\n".encode()


class _File(NamedTuple):
    """A file that containers get; `digest`: SHA-256 of its content."""

    name: str
    content: Path | bytes
    mode: int
    digest: bytes


def make_staging(directory: Path) -> Path:
    """Return the folder in which files are made before they are renamed to where containers see them."""
    staging = directory / "staging"
    staging.mkdir(mode=0o700, exist_ok=True)
    return staging


class Folders:
    """The folders under the scheduler's directory (docs/architecture.md, Files on the host).

    Args:
        directory: of the scheduler.
        library: path of libconvgpu.so to deliver.
        driver: folder of the simulated driver, None with real devices.

    Raises:
        OSError: the directory cannot be written.
    """

    def __init__(self, directory: Path, library: Path, driver: Path | None) -> None:
        self.staging = make_staging(directory)
        self._containers = directory / CONTAINERS_FOLDER
        self._driver = driver
        self._place: Place | None = None
        self._made: set[str] = set()
        self._files: Final = (
            _File(LIBRARY_FILE, library, 0o755, hashlib.sha256(library.read_bytes()).digest()),
            _File(PRELOAD_FILE, _PRELOAD, 0o644, hashlib.sha256(_PRELOAD).digest()),
        )
        # The same for every container, so `convgpu run` mounts it from here.
        self._deliver_changed(directory, self._files[1:])

    def path(self, name: str) -> Path:
        """Return the folder of a volume, its mountpoint."""
        return self._containers / folder_of(name)

    def place(self, name: str) -> Place | None:
        """Return where the folder of a volume lies, by which a mount of it is known; None if that cannot be said."""
        if self._place is None:
            self._place = locate(os.fsencode(self._containers.resolve()), mounts_of("self"))
        return self._place and Place(self._place.device, join(self._place.path, folder_of(name).encode()))

    def mountpoint(self, name: str) -> str:
        """Return `path` as text: faster for lists of a thousand containers."""
        return f"{self._containers}/{folder_of(name)}"

    def make(self, name: str) -> Path:
        """Make or refresh the folder and all its files except the socket.

        Raises:
            OSError: it cannot be written.
        """
        folder = self.path(name)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        self._deliver_changed(folder, self._files)
        if self._driver is not None:
            link_files([self._driver / name for name in FILES], folder / DRIVER_FOLDER, self.staging)
        self._made.add(name)
        return folder

    def restore(self, name: str) -> None:
        """Restore files that the container changed: it can write its folder. One of an earlier scheduler is made.

        Raises:
            OSError: it cannot be written.
        """
        if name not in self._made:
            self.make(name)
            return
        folder = self.path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for file in self._deliver_changed(folder, self._files):
            log.warning("%s of volume %s was not ours any more and is delivered again", file, name)

    def _deliver_changed(self, folder: Path, files: Sequence[_File]) -> list[str]:
        """Deliver the files that are not as they should be, and return their names; the others need no room."""
        changed = [one for one in files if not is_delivered(folder / one.name, one.digest, one.mode)]
        for one in changed:
            deliver(one.content, folder / one.name, one.mode, self.staging)
        return [one.name for one in changed]

    def remove(self, name: str) -> None:
        """Remove the folder with everything in it."""
        self._made.discard(name)
        remove_tree(self.path(name))

    def remove_orphans(self, names: Iterable[str]) -> list[str]:
        """Remove all folders except those of these volumes, and return the names of the removed ones."""
        known = {folder_of(name) for name in names}
        try:
            orphans = [folder for folder in self._containers.iterdir() if folder.name not in known]
        except FileNotFoundError:
            return []
        for folder in orphans:
            remove_tree(folder)
        return [folder.name for folder in orphans]
