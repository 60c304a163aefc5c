"""What has to survive a restart, and the folders of containers.

Docker keeps volumes over restarts of the plugin, so their names, options and mounts are kept too. Grants and usage
are not: processes tell what they use when they reconnect.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from convgpu.daemon.files import deliver, link_files
from convgpu.daemon.simulated import FILES

log = logging.getLogger(__name__)

MOUNTED_AT: Final = "/run/convgpu"
PRELOAD: Final = f"{MOUNTED_AT}/libconvgpu.so\n".encode()
_ID_LENGTH: Final = 16


@dataclass(slots=True)
class Volume:
    """A volume that Docker knows.

    Attributes:
        name: of the volume.
        options: as the user gave them.
        created: Unix seconds.
        mounts: how often each id is mounted.
        ended: it was mounted and is not any more.
    """

    name: str
    options: dict[str, str]
    created: float
    mounts: dict[str, int] = field(default_factory=dict)
    ended: bool = False


_VOLUMES: Final = TypeAdapter(list[Volume])


def folder_id(name: str) -> str:
    """Return the name of a volume's folder. Names come from outside and are never joined to paths."""
    return hashlib.sha256(name.encode()).hexdigest()[:_ID_LENGTH]


def make_staging(directory: Path) -> Path:
    """Return the folder in which files are made before they are put where containers see them."""
    staging = directory / "staging"
    staging.mkdir(mode=0o700, exist_ok=True)
    return staging


class Store:
    """Files under the scheduler's directory (docs/architecture.md, What lies where).

    Args:
        directory: of the scheduler.
        library: path of libconvgpu.so to deliver.
        driver: folder of the simulated driver, None with real devices.
    """

    def __init__(self, directory: Path, library: Path, driver: Path | None) -> None:
        self.staging = make_staging(directory)
        self._state = directory / "state.json"
        self._containers = directory / "containers"
        self._library = library
        self._driver = driver

    def load(self) -> list[Volume]:
        """Return the volumes of the last run. A damaged file is moved aside, never fatal."""
        try:
            return _VOLUMES.validate_json(self._state.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValidationError) as error:
            aside = self._state.with_suffix(".damaged")
            log.error("%s is damaged and moved to %s; volumes have to be created anew: %s", self._state, aside, error)
            self._state.replace(aside)
            return []

    def save(self, volumes: Iterable[Volume]) -> None:
        """Replace the state file in one step."""
        fresh = self._state.with_suffix(".new")
        fresh.write_text(json.dumps([asdict(volume) for volume in volumes]))
        fresh.replace(self._state)

    def folder(self, name: str) -> Path:
        """Return the folder of a volume, its mountpoint."""
        return self._containers / folder_id(name)

    def make_folder(self, name: str) -> Path:
        """Make or refresh the folder with everything but the socket.

        Raises:
            OSError: it cannot be written.
        """
        folder = self.folder(name)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        deliver(self._library, folder / "libconvgpu.so", 0o755, self.staging)
        deliver(PRELOAD, folder / "ld.so.preload", 0o644, self.staging)
        if self._driver is not None:
            link_files([self._driver / name for name in FILES], folder / "driver")
        return folder

    def remove_folder(self, name: str) -> None:
        """Remove the folder with everything in it."""
        shutil.rmtree(self.folder(name), ignore_errors=True)
