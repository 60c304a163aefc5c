"""The file with the rules of a site, read again whenever it has changed."""

import contextlib
import hashlib
import logging
import os
import threading
from pathlib import Path
from typing import Final

from convgpu.authz.site.rules import Rules, RulesError, parse_rules
from convgpu.protocol.site.strictness import says_strict

_log: Final = logging.getLogger(__name__)

_MAX_BYTES: Final = 1 << 20
_STAY: Final = "the rules from before stay"


class RulesFile:
    """The rules in a file; several threads may use it.

    While the file cannot be used, the previous rules stay in force, also over a restart, `error` gives the reason and
    `instead` what holds. If no previous rules are known, these are strict rules with an empty list if the file says
    that it is strict. Without a file the defaults hold.

    Args:
        path: of the file.
        kept: of the copy of the rules in force; None: they are forgotten at a restart.
    """

    def __init__(self, path: Path, kept: Path | None = None) -> None:
        self.path = path
        self.error: str | None = None
        self.instead = ""
        self._kept = kept
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
        text = ""
        try:
            text = _read(self.path)
            rules = parse_rules(text)
        except FileNotFoundError:
            rules = Rules()
            if self._seen is not None:
                _log.warning("%s is gone: the defaults are in force", self.path)
        except (OSError, UnicodeDecodeError, RulesError) as error:
            self.error = str(error)
            if self._seen is None:
                self._rules, self.instead = self._before()
            else:
                self.instead = _STAY
            _log.error("%s cannot be used, %s: %s", self.path, self.instead, self.error.replace("\n", "; "))
            self._seen = status
            return
        else:
            _log.info("rules of the site read from %s: mode %s", self.path, rules.mode)
        self.error = None
        self._rules = rules
        self._seen = status
        self._keep(text)

    def _before(self) -> tuple[Rules, str]:
        """Return the rules from before the restart, or what holds without them, and how to say that."""
        with contextlib.suppress(OSError, UnicodeDecodeError, RulesError):
            if self._kept is not None:
                mark, _, text = self._kept.read_bytes().decode("utf-8").partition("\n")
                if mark == _mark(text):  # else it was cut off, and what is left could permit more
                    return parse_rules(text), _STAY
        if self._says_strict():
            # The defaults permit what this site does not.
            return Rules(mode="strict"), "and strict rules without a list hold, and no quotas"
        return Rules(), "and the defaults hold"

    def _keep(self, text: str) -> None:
        """Keep the rules in force over a restart; without a file there is nothing to keep."""
        if self._kept is None:
            return
        new = self._kept.with_name(self._kept.name + ".new")
        try:
            if text:
                new.write_text(f"{_mark(text)}\n{text}")
                new.replace(self._kept)
            else:
                self._kept.unlink(missing_ok=True)
        except OSError as error:
            _log.error("%s cannot be written, so after a restart no earlier rules are known: %s", self._kept, error)

    def _says_strict(self) -> bool:
        try:
            return says_strict(self.path.read_bytes()[:_MAX_BYTES])
        except OSError:
            return False


def _mark(text: str) -> str:
    return f"# sha256 {hashlib.sha256(text.encode()).hexdigest()}"


def _read(path: Path) -> str:
    with path.open("rb") as file:
        raw = file.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise RulesError(f"line 1: longer than {_MAX_BYTES} bytes")
    return raw.decode("utf-8")
