"""Names of the containers' folders, for the scheduler that makes them and the plugin that hands them on.

Apart from `layout`: importing hashlib takes longer than the whole rest of what an OCI runtime needs.
"""

import hashlib
from functools import lru_cache
from typing import Final

_LENGTH: Final = 16


@lru_cache(maxsize=4096)
def folder_of(volume: str) -> str:
    """Return the name of a volume's folder. Names of volumes come from outside and are never joined to paths."""
    return hashlib.sha256(volume.encode()).hexdigest()[:_LENGTH]
