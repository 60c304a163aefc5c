"""Starts of containers that the Engine has not answered yet, which may take it minutes; survive restarts."""

import json
import logging
import math
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

_log: Final = logging.getLogger(__name__)

# Seconds after which an answer may be lost: a restart waits for the end of a container, an hour at most where rules are
# strict, and then it starts it. Answers are lost when a plugin of authorization after ours denies a call, or by another
# spelling of its address.
_ANSWERED: Final = 4200.0
# Seconds after a restart of the plugin, which may have missed the answer; the Engine may have been killed with it.
_ANSWERED_AFTER: Final = 180.0
# Seconds for which nobody asks again about a container of which the Engine did not tell that its start is over.
_ASK_AGAIN: Final = 10.0


@dataclass(frozen=True, slots=True)
class Start:
    """The last start of a container by such a call that the Engine has not answered.

    Attributes:
        user, call: who started it, and by which name.
        container: its id; in notes of older versions that name.
        names: under which it counts.
        since: when that was (Unix seconds).
        waits: seconds that the Engine may wait for the end of what runs, before it starts it.
    """

    user: str
    call: str
    container: str
    names: frozenset[str]
    since: float
    waits: int = 0


@dataclass(frozen=True, slots=True)
class _Calls:
    """Calls of one user about one name that the Engine has not answered: how many, and the starts by container."""

    count: int
    starts: Mapping[str, Start]


class UnansweredStarts:
    """Starts by the caller, and the call's name for a container: which of them are alike no answer tells.

    One counts until it is answered, or until somebody has asked the Engine when its answer may be lost (`overdue`).

    Its lock is a leaf: an answer never waits for who asks the Engine, which may wait for that answer.

    Args:
        path: of the file that keeps them.
        clock: Unix seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._names: frozenset[str] = frozenset()  # of all starts; who counts asks about each name that there is
        self._asked: dict[Start, float] = {}  # when the Engine did not tell that it is over
        self._calls = self._load()
        if self._calls:
            self._save()  # so that another restart makes them count no longer

    def begin(self, user: str, call: str, names: Collection[str], waits: int = 0, *, container: str = "") -> None:
        """Note a start, before the Engine carries it out; it counts under these names.

        Args:
            user: who starts it.
            call: how the call names it.
            names: none, if nothing of it counts.
            waits: seconds that the Engine may wait for the container's end first.
            container: its id, if there is one.
        """
        with self._lock:
            calls = self._calls.get((user, call), _Calls(0, {}))
            own = container or call
            before = calls.starts.get(own, Start(user, call, own, frozenset(), 0))
            start = Start(user, call, own, before.names | frozenset(names), self._clock(), max(before.waits, waits))
            self._calls[user, call] = _Calls(calls.count + 1, {**calls.starts, own: start})
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
        """Tell whether the Engine is, or may be, at work to start what counts under this name."""
        return name in self._names

    def overdue(self) -> list[Start]:
        """Return the starts to ask the Engine about, as their answers may be lost; first what nobody asked for longest.

        They count until `over`.
        """
        now = self._clock()
        with self._lock:
            found = [start for start in self._all() if start.names and _is_overdue(start, now)]
            self._asked = {start: self._asked[start] for start in found if start in self._asked}
            asked = self._asked.copy()
        due = [start for start in found if start not in asked or not 0 <= now - asked[start] < _ASK_AGAIN]
        return sorted(due, key=lambda start: asked.get(start, -math.inf))

    def asked(self, start: Start) -> None:
        """Note that the Engine did not tell that a start is over."""
        with self._lock:
            self._asked[start] = self._clock()

    def over(self, starts: Collection[Start]) -> None:
        """Note that the Engine is at work with these no more. What was begun again since goes on counting."""
        gone = set(starts)
        with self._lock:
            if gone and any(start in gone for start in self._all()):
                self._keep(lambda start: start not in gone)
                self._save()

    def _all(self) -> Iterator[Start]:
        return (start for one in self._calls.values() for start in one.starts.values())

    def _keep(self, wanted: Callable[[Start], bool]) -> None:
        kept: dict[tuple[str, str], _Calls] = {}
        for key, one in self._calls.items():
            starts = {own: start for own, start in one.starts.items() if wanted(start)}
            if starts:
                kept[key] = one if len(starts) == len(one.starts) else replace(one, starts=starts)
        self._calls = kept

    def _load(self) -> dict[tuple[str, str], _Calls]:
        calls: dict[tuple[str, str], _Calls] = {}
        try:
            rows: list[Mapping[str, Any]] = json.loads(self._path.read_text())
            latest = self._clock() - _ANSWERED + _ANSWERED_AFTER
            for row in rows:
                start, count = _read(row, latest), int(row["count"])
                before = calls.get((start.user, start.call), _Calls(count, {}))
                calls[start.user, start.call] = replace(before, starts={**before.starts, start.container: start})
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            _log.error("%s cannot be read, so starts until now count for some seconds only: %s", self._path, error)
            return {}
        return calls

    def _save(self) -> None:
        now = self._clock()
        self._keep(lambda start: bool(start.names) or not _is_overdue(start, now))
        self._names = frozenset(name for start in self._all() for name in start.names)
        rows = [_row(start, one.count) for one in self._calls.values() for start in one.starts.values()]
        new = self._path.with_name(self._path.name + ".new")
        try:
            new.write_text(json.dumps(rows))
            os.replace(new, self._path)  # noqa: PTH105
        except OSError as error:
            _log.error("%s cannot be written; starts are in memory only: %s", self._path, error)


def _is_overdue(start: Start, now: float) -> bool:
    return now - start.since >= _ANSWERED


def _row(start: Start, count: int) -> dict[str, object]:
    """Return a row of the file; `asdict` takes ten times as long, for which all starts wait."""
    return {
        "user": start.user,
        "call": start.call,
        "container": start.container,
        "names": sorted(start.names),
        "since": start.since,
        "waits": start.waits,
        "count": count,
    }


def _read(row: Mapping[str, Any], latest: float) -> Start:
    """Return the start of a row of the file; `latest`: when one that waits for no end is taken to be made, at most."""
    user, call, waits = str(row["user"]), str(row["call"]), int(row.get("waits", 0))
    since = min(float(row["since"]), latest + waits)
    return Start(user, call, str(row.get("container") or call), frozenset(map(str, row["names"])), since, waits)
