"""How the folder of a container is called, for the scheduler who makes it and the plugin who hands it on."""

import hashlib
from functools import lru_cache
from typing import Final

_LENGTH: Final = 16


@lru_cache(maxsize=4096)
def folder_of(volume: str) -> str:
    """Return the name of a volume's folder. Names of volumes come from outside and are never joined to paths."""
    return hashlib.sha256(volume.encode()).hexdigest()[:_LENGTH]
