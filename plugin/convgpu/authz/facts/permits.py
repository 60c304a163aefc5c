"""Which containers authorization let start although rules spoke against it: they keep a GPU without a limit."""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

_log: Final = logging.getLogger(__name__)

# Rules without which a container still has no GPU without a limit: who is exempted from them alone is not noted.
OF_NO_GPU: Final = frozenset({
    "gpu-drained", "limit-too-large", "priority-too-high", "slurm-job", "total-quota-exceeded", "strict-calls",
    "strict-exec", "strict-listing", "strict-registries", "strict-restarts", "strict-sysctls",
})  # fmt: skip
# Containers that are noted before those are forgotten that the Engine has no more.
FULL: Final = 256


class Permits:
    """The notes, by the Engine's ids; several threads may use them. They survive restarts.

    Of a container that is older than the notes, nobody knows whether it was permitted. So notes that are lost begin
    anew, and make nobody unpermitted.

    Args:
        path: of the file that keeps them; None keeps them in memory.
        clock: Unix seconds.
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self.since = clock()
        self._ids: frozenset[str] = frozenset()
        with self._lock:
            if not self._load():
                self._save()

    def __contains__(self, container: str) -> bool:
        """Tell whether a container is noted."""
        return container in self._ids

    @property
    def is_full(self) -> bool:
        """Whether those should be forgotten that the Engine has no more."""
        return len(self._ids) >= FULL

    def note(self, container: str, *, permitted: bool) -> None:
        """Note how a container starts, before it does."""
        with self._lock:
            if permitted != (container in self._ids):
                self._ids = self._ids | {container} if permitted else self._ids - {container}
                self._save()

    def keep_only(self, existing: Collection[str]) -> None:
        """Forget containers that the Engine has no more."""
        with self._lock:
            self._ids = self._ids.intersection(existing)
            self._save()

    def begin_anew(self) -> None:
        """Let nobody be taken for unpermitted who is there now: a permit could not be noted."""
        with self._lock:
            self.since = self._clock()
            self._save()

    def _load(self) -> bool:
        try:
            document = json.loads(self._path.read_text()) if self._path is not None else {}
            self.since, self._ids = float(document["since"]), frozenset(map(str, document["ids"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            if self._path is not None and not isinstance(error, FileNotFoundError):
                _log.error("%s cannot be read, so of containers until now nobody knows: %s", self._path, error)
            return False
        return True

    def _save(self) -> None:
        if self._path is None:
            return
        new = self._path.with_name(self._path.name + ".new")
        try:
            with new.open("w") as file:
                json.dump({"since": self.since, "ids": sorted(self._ids)}, file)
                file.flush()
                os.fsync(file.fileno())  # the Engine may start these containers again after a power loss
            os.replace(new, self._path)  # noqa: PTH105
        except OSError as error:
            _log.error("%s cannot be written, and is not believed after a restart: %s", self._path, error)
            with suppress(OSError):
                self._path.unlink()
