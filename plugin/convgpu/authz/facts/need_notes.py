"""What containers that started needed, noted for `convgpu policy write`; survives restarts, and is bounded."""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

_log: Final = logging.getLogger(__name__)

# Needs that are kept; beyond, those that were used longest ago are forgotten.
MAX_NOTES: Final = 2000
_MAX_NAMES: Final = 3
_MAX_TEXT: Final = 300  # characters of an entry; a longer one is a text of the client's choice, and not kept
_AGAIN: Final = 3600.0  # seconds after which a later use of the same need is written


@dataclass(frozen=True, slots=True)
class Note:
    """One need: its section and entry, containers that needed it (the last three), and when last (Unix seconds)."""

    section: str
    value: str
    names: tuple[str, ...]
    last: float


class NeedNotes:
    """The notes; several threads may use them.

    Args:
        path: of the file that keeps them; None keeps them in memory.
        clock: Unix seconds.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._notes: dict[tuple[str, str], Note] = {} if path is None else read_notes(path)

    def add(self, needs: Iterable[tuple[str, str]], name: str) -> None:
        """Note what a container needed that starts: sections and entries of the strict list."""
        now = self._clock()
        with self._lock:
            news = [note for need in needs if (note := self._newer(*need, name, now)) is not None]
            if news:
                self._notes |= {(note.section, note.value): note for note in news}
                self._forget()
                self._save()

    def _newer(self, section: str, value: str, name: str, now: float) -> Note | None:
        """Return the note of a need as it is now; None if that says nothing new."""
        if len(value) > _MAX_TEXT:
            return None
        old = self._notes.get((section, value))
        if old is None:
            return Note(section, value, (name,), now)
        if name in old.names and now - old.last < _AGAIN:
            return None
        names = (*(each for each in old.names if each != name), name)[-_MAX_NAMES:]
        return replace(old, names=names, last=now)

    def _forget(self) -> None:
        if len(self._notes) > MAX_NOTES:
            kept = sorted(self._notes.items(), key=lambda item: item[1].last)[-MAX_NOTES:]
            self._notes = dict(kept)

    def _save(self) -> None:
        if self._path is None:
            return
        new = self._path.with_name(self._path.name + ".new")
        try:
            new.write_text(json.dumps([asdict(note) for note in self._notes.values()]))
            os.replace(new, self._path)  # noqa: PTH105
        except OSError as error:
            _log.error("%s cannot be written, so what starts is not noted: %s", self._path, error)


def read_notes(path: Path) -> dict[tuple[str, str], Note]:
    """Return the notes in a file; none if it is not there, or is not one."""
    try:
        rows: list[Mapping[str, object]] = json.loads(path.read_text())
        notes = [
            Note(str(row["section"]), str(row["value"]), tuple(map(str, row["names"])), float(row["last"]))  # type: ignore[arg-type, call-overload]
            for row in rows
        ]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.error("%s cannot be read, so what ran before is forgotten: %s", path, error)
        return {}
    return {(note.section, note.value): note for note in notes}
