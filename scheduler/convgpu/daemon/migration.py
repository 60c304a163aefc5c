"""Takes up what version 0.1 kept in `state.json`, once."""

import logging
import time
from pathlib import Path
from typing import Final

from pydantic import BaseModel, TypeAdapter, ValidationError

from convgpu.daemon.kept import Mount, Volume
from convgpu.daemon.store import Store
from convgpu.protocol.requests import Name

log = logging.getLogger(__name__)


class _Old(BaseModel):
    name: Name
    options: dict[str, str]
    created: float
    mounts: dict[str, int] = {}
    ended: bool = False


_VOLUMES: Final = TypeAdapter(list[_Old])


def migrate(directory: Path, store: Store) -> None:
    """Move the volumes of `state.json` into the database; a damaged file is moved aside.

    Raises:
        OSError: a file cannot be read or written.
    """
    file = directory / "state.json"
    (directory / "foreign.json").unlink(missing_ok=True)  # measured anew
    try:
        volumes = _VOLUMES.validate_json(file.read_bytes())
    except FileNotFoundError:
        return
    except ValidationError as error:
        aside = file.with_suffix(".damaged")
        log.error("%s is damaged and moved to %s; volumes have to be created anew: %s", file, aside, error)
        file.replace(aside)
        return
    store.set_setting("complete", None)
    store.complete = False
    for old in volumes:
        volume = Volume(old.name, old.options, old.created, "ended" if old.ended else "created", old.created)
        store.add(volume)
        if old.mounts:
            now = time.time()
            mounts = {mount: Mount(count, now) for mount, count in old.mounts.items() if count > 0}
            store.set_mounts(old.name, mounts, "running", now)
    file.replace(file.with_suffix(".json.migrated"))
    log.info("%d volumes of state.json are in the database now", len(volumes))
