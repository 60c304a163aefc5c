"""The file with the rules of a site, read again whenever it has changed."""

import logging
import os
import threading
from pathlib import Path
from typing import Final

from convgpu.authz.site.rules import Rules, RulesError, parse_rules
from convgpu.protocol.site.strictness import says_strict

_log: Final = logging.getLogger(__name__)

_MAX_BYTES: Final = 1 << 20


class RulesFile:
    """The rules in a file; several threads may use it.

    While the file cannot be used, the previous rules stay in force and `error` gives the reason; before the first ones,
    strict rules with an empty list if the file says that it is strict. Without a file the defaults hold.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: str | None = None
        self._rules = Rules()
        self._seen: tuple[int, ...] | None = None
        self._lock = threading.Lock()

    def rules(self) -> Rules:
        """Return the rules in force; one `stat` of the file if it has not changed."""
        status = self._status()
        if status != self._seen:
            with self._lock:
                if status != self._seen:
                    self._read(status)
        return self._rules

    def _status(self) -> tuple[int, ...]:
        try:
            found = os.stat(self.path)  # noqa: PTH116 - each judged call comes here, and it is three times faster
        except OSError as error:
            return (-(error.errno or 0),)
        return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def _read(self, status: tuple[int, ...]) -> None:
        try:
            rules = parse_rules(self._text())
        except FileNotFoundError:
            rules = Rules()
            if self._seen is not None:
                _log.warning("%s is gone: the defaults are in force", self.path)
        except (OSError, UnicodeDecodeError, RulesError) as error:
            self.error = str(error)
            if self._seen is None and self._says_strict():
                # Nothing is in force yet, and the defaults permit what this site does not.
                self._rules = Rules(mode="strict")
            _log.error(
                "%s cannot be used, the previous rules stay in force: %s", self.path, self.error.replace("\n", "; ")
            )
            self._seen = status
            return
        else:
            _log.info("rules of the site read from %s: mode %s", self.path, rules.mode)
        self.error = None
        self._rules = rules
        self._seen = status

    def _says_strict(self) -> bool:
        try:
            return says_strict(self.path.read_bytes()[:_MAX_BYTES])
        except OSError:
            return False

    def _text(self) -> str:
        with self.path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise RulesError(f"line 1: longer than {_MAX_BYTES} bytes")
        return raw.decode("utf-8")
