"""Bounds how many callers wait for the Engine's answers about containers: each of them holds a thread that judges.

The Engine answers nothing about a container whose lock it holds, for as long as who reads a copy of it takes.
"""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from convgpu.authz.ports import EngineUnreachable

# Of 32 threads that judge (`PluginWorker`): callers who wait for one container leave room for others, and all callers
# who wait for containers for calls that name none.
_ABOUT_ONE: Final = 8
_ABOUT_ALL: Final = 24
_PATIENCE: Final = 1.0
_DIGITS: Final = re.compile("[0-9a-f]+")


class Waiting:
    """The questions about containers that the Engine has not answered yet; may be shared between threads.

    Args:
        patience: seconds after which an answer is late.
    """

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._asked: list[tuple[str, float]] = []
        self._changed = threading.Condition()

    @contextmanager
    def about(self, name: str) -> Iterator[None]:
        """Ask about a container in this context, when there is room.

        Raises:
            EngineUnreachable: as many callers as may have waited for late answers, or for the whole patience there was
                no room.
        """
        name = name.lstrip("/")
        with self._changed:
            late = time.monotonic() + self._patience
            while (first := self._in_the_way(name)) is not None:
                left = min(first + self._patience, late) - time.monotonic()
                if left <= 0:
                    raise EngineUnreachable(f"the Engine does not answer about containers such as {name:.20}")
                self._changed.wait(left)
            asked = (name, time.monotonic())
            self._asked.append(asked)
        try:
            yield
        finally:
            with self._changed:
                self._asked.remove(asked)
                self._changed.notify_all()

    def _in_the_way(self, name: str) -> float | None:
        """Return when the first of those asked that leave no room for one more; None if there is room."""
        same = [asked for each, asked in self._asked if _may_be_one(each, name)]
        if len(same) >= _ABOUT_ONE:
            return min(same)
        return min(asked for _, asked in self._asked) if len(self._asked) >= _ABOUT_ALL else None


def _may_be_one(one: str, other: str) -> bool:
    """Tell whether two names may mean one container: an ID has many beginnings that name it, too."""
    if one == other:
        return True
    begins = one.startswith(other) or other.startswith(one)
    return begins and _DIGITS.fullmatch(one) is not None and _DIGITS.fullmatch(other) is not None
