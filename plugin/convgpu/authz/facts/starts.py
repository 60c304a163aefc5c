"""Starts of containers that the Engine has not answered yet, which may take it minutes; survive restarts."""

import json
import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

_log: Final = logging.getLogger(__name__)

# Seconds after which a start counts as answered: a restart waits for the end of a container, an hour at most where
# rules are strict, and then it starts it. Answers are lost when a plugin of authorization after ours denies a call, or
# by another spelling of its address.
_ANSWERED: Final = 4200.0
# Seconds after a restart of the plugin, which may have missed the answer; the Engine may have been killed with it.
_ANSWERED_AFTER: Final = 180.0


@dataclass(frozen=True, slots=True)
class _Calls:
    """Calls of one user about one name that the Engine has not answered: how many, the last one's time, what counts.

    `waits`: seconds that the Engine may wait for the end of what runs, before it starts it.
    """

    count: int
    since: float
    names: frozenset[str]
    waits: int = 0


class UnansweredStarts:
    """Starts by the caller, and the call's name for a container: which of them are alike no answer tells.

    Its lock is a leaf: an answer never waits for who asks the Engine, which may wait for that answer.

    Args:
        path: of the file that keeps them.
        clock: Unix seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._calls = self._load()
        if self._calls:
            self._save()  # so that another restart makes them count no longer

    def begin(self, user: str, call: str, names: Collection[str], waits: int = 0) -> None:
        """Note a start, before the Engine carries it out; it counts under these names.

        `waits`: seconds that the Engine may wait for the container's end first.
        """
        with self._lock:
            now = self._clock()
            before = self._calls.get((user, call), _Calls(0, now, frozenset()))
            longest = max(before.waits, waits)
            self._calls[user, call] = _Calls(before.count + 1, now, before.names | frozenset(names), longest)
            self._save()

    def answered(self, user: str, call: str) -> None:
        """Note that the Engine has answered such a call, or does not get it. Of calls that are alike all have to be."""
        with self._lock:
            one = self._calls.pop((user, call), None)
            if one is None:
                return
            if one.count > 1:
                self._calls[user, call] = replace(one, count=one.count - 1)
            self._save()

    def await_answer(self, name: str) -> bool:
        """Tell whether the Engine is at work to start what counts under this name."""
        now = self._clock()
        with self._lock:
            return any(name in one.names and now - one.since < _ANSWERED for one in self._calls.values())

    def _load(self) -> dict[tuple[str, str], _Calls]:
        try:
            rows: list[Mapping[str, Any]] = json.loads(self._path.read_text())
            latest = self._clock() - _ANSWERED + _ANSWERED_AFTER
            return {(str(row["user"]), str(row["call"])): _read(row, latest) for row in rows}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            _log.error("%s cannot be read, so starts until now count for some seconds only: %s", self._path, error)
            return {}

    def _save(self) -> None:
        now = self._clock()
        self._calls = {key: one for key, one in self._calls.items() if now - one.since < _ANSWERED}
        rows = [
            {"user": user, "call": call, **asdict(one), "names": sorted(one.names)}
            for (user, call), one in self._calls.items()
        ]
        new = self._path.with_name(self._path.name + ".new")
        try:
            new.write_text(json.dumps(rows))
            os.replace(new, self._path)  # noqa: PTH105
        except OSError as error:
            _log.error("%s cannot be written; starts are in memory only: %s", self._path, error)


def _read(row: Mapping[str, Any], latest: float) -> _Calls:
    """Return the calls of a row of the file; `latest`: when one that waits for no end is taken to be made, at most."""
    waits = int(row.get("waits", 0))
    since = min(float(row["since"]), latest + waits)
    return _Calls(int(row["count"]), since, frozenset(map(str, row["names"])), waits)
